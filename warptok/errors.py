"""The errors of warptok, of this process and of a service alike.

    WarptokError
    ├── InvalidRequest (ValueError)      an argument, a body or a vocabulary file is wrong
    │   ├── RowRefused                   one text, or one row of ids, cannot be encoded or decoded
    │   └── TooLarge                     something is above a limit of the service
    ├── UnknownVocabulary (LookupError)  no vocabulary has this name
    ├── DigestDiffers                    the vocabulary is another one than `if_digest` demands
    ├── NotAllowed (PermissionError)     the key is missing, unknown or lacks the scope
    ├── NotInstalled (ImportError)       a package is missing; the message says what to install
    ├── DeviceUnavailable (RuntimeError) the GPU cannot be used, or not for this
    ├── Unavailable (ConnectionError)    the service is not reached, is busy, starts or stops
    ├── DeadlinePassed (TimeoutError)    the answer took longer than the client or service allows
    └── ServiceFailed (RuntimeError)     a fault of the service

`code` is the word of docs/errors.md, the same in this process as in a service's answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from vocabularies.batch.batch import RowError


class Fault(NamedTuple):
    """One of several faults of a request, and its place in it."""

    where: str
    message: str


class WarptokError(Exception):
    """A call failed.

    Attributes:
        code: a word for programs, such as ``unknown_vocabulary``.
        message: a sentence for people.
        where: the place in the request, such as ``/texts/3``; "" if it has none.
        findings: all faults, where there are several.
        status: the HTTP status of a service's answer; None in this process.
        request_id: the id under which the service's log has the request; "" in this process.
        retry_after_s: the seconds after which the request may be sent again; None: not said.
    """

    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        where: str = "",
        findings: Sequence[Fault] = (),
        status: int | None = None,
        request_id: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.where = where
        self.findings = tuple(findings)
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.message}{place} [{self.code}{request}]"


class InvalidRequest(WarptokError, ValueError):
    """An argument, a body or a vocabulary file is wrong."""

    code = "invalid_request"


class RowRefused(InvalidRequest):
    """One text, or one row of ids, cannot be encoded or decoded.

    Attributes:
        row: its number in the batch.
    """

    def __init__(self, message: str, *, row: int = 0, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.row = row

    @classmethod
    def of(cls, row: int, error: RowError) -> RowRefused:
        """Make the error of a refused row."""
        place = f"row {row}, {error.where}" if error.where else f"row {row}"
        return cls(error.message, row=row, code=error.code, where=place)


class TooLarge(InvalidRequest):
    """Something is above a limit of the service, which the message names."""

    code = "too_large"


class UnknownVocabulary(WarptokError, LookupError):
    """No vocabulary has this name; near names are suggested."""

    code = "unknown_vocabulary"


class DigestDiffers(WarptokError):
    """The vocabulary has another digest than `if_digest` demands."""

    code = "digest_differs"


class NotAllowed(WarptokError, PermissionError):
    """The key is missing, unknown or lacks the scope, or the service allows this to nobody."""

    code = "forbidden"


class NotInstalled(WarptokError, ImportError):
    """A package is missing; the message says what to install."""

    code = "not_installed"


class DeviceUnavailable(WarptokError, RuntimeError):
    """The GPU cannot be used, or its kernels do not compute the vocabulary."""

    code = "device_unavailable"


class Unavailable(WarptokError, ConnectionError):
    """The service is not reached, is busy, starts or stops; the same call may be made again."""

    code = "unavailable"


class DeadlinePassed(WarptokError, TimeoutError):
    """The answer took longer than the client or the service allows."""

    code = "deadline_passed"


class ServiceFailed(WarptokError, RuntimeError):
    """A fault of the service; its log has the cause under `request_id`."""


BY_CODE: Mapping[str, type[WarptokError]] = MappingProxyType(
    {
        "unknown_vocabulary": UnknownVocabulary,
        "digest_differs": DigestDiffers,
        "too_large": TooLarge,
        "unauthorized": NotAllowed,
        "not_installed": NotInstalled,
        "deadline_passed": DeadlinePassed,
    }
)
"""The errors of codes; those of other codes follow from the status."""
BY_STATUS: Mapping[int, type[WarptokError]] = MappingProxyType(
    {
        401: NotAllowed,
        403: NotAllowed,
        408: Unavailable,
        412: DigestDiffers,
        413: TooLarge,
        429: Unavailable,
        503: Unavailable,
        504: DeadlinePassed,
    }
)
"""The errors of statuses; another status of 4xx is an InvalidRequest, of 5xx a ServiceFailed."""


def error_class(code: str, status: int, *, is_row: bool = False) -> type[WarptokError]:
    """Choose the class of an answer's error by its code, or by its status.

    Args:
        code: the code of docs/errors.md, or one of a newer service.
        status: the HTTP status.
        is_row: whether the code is one of a row, by its place in the answer.
    """
    if is_row:
        return RowRefused
    by_status = BY_STATUS.get(status, InvalidRequest if status < 500 else ServiceFailed)
    return BY_CODE.get(code, by_status)
