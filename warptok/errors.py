"""The errors of warptok, raised by tokenizers of this process and by clients of a service.

    WarptokError
    ├── InvalidRequest (ValueError)      an argument, a body or a vocabulary file is wrong
    │   ├── RowRefused                   one text, or one row of ids, cannot be encoded or decoded
    │   └── TooLarge                     something exceeds a limit of the service
    ├── UnknownVocabulary (LookupError)  no vocabulary has this name
    ├── DigestDiffers                    the vocabulary's digest is not `if_digest`
    ├── NotAllowed (PermissionError)     the key is missing, unknown or lacks the scope
    ├── NotInstalled (ImportError)       a package is missing; the message says what to install
    ├── DeviceUnavailable (RuntimeError) the GPU cannot be used, or not for this vocabulary
    ├── Unavailable (ConnectionError)    the service is not reached, busy, starting or stopping
    ├── DeadlinePassed (TimeoutError)    the answer took longer than the client or service allows
    └── ServiceFailed (RuntimeError)     the service failed

`code` is a word of docs/errors.md; it is the same in this process and in a service's answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from vocabularies.batch.batch import RowError


class Fault(NamedTuple):
    """One of several faults of a request, and its place in the request."""

    where: str
    message: str


class WarptokError(Exception):
    """A call failed.

    Attributes:
        code: a word for programs, such as ``unknown_vocabulary``.
        message: a sentence for people.
        where: the place in the request, such as ``/texts/3``; "" if no place is known.
        findings: all faults, if there are several.
        status: the HTTP status of the service's answer; None for an error of this process.
        request_id: the id of the request in the service's log; "" for an error of this process.
        retry_after_s: the seconds after which the request may be retried; None: unknown.
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
        row: the number of the row in the batch.
    """

    def __init__(self, message: str, *, row: int = 0, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.row = row

    @classmethod
    def of(cls, row: int, error: RowError) -> RowRefused:
        """Make the error for a refused row."""
        place = f"row {row}, {error.where}" if error.where else f"row {row}"
        return cls(error.message, row=row, code=error.code, where=place)


class TooLarge(InvalidRequest):
    """A request exceeds a limit of the service; the message names the limit."""

    code = "too_large"


class UnknownVocabulary(WarptokError, LookupError):
    """No vocabulary has this name; the message suggests similar names."""

    code = "unknown_vocabulary"


class DigestDiffers(WarptokError):
    """The vocabulary has another digest than `if_digest` demands."""

    code = "digest_differs"


class NotAllowed(WarptokError, PermissionError):
    """The API key is missing, unknown or lacks the scope, or nobody may make this call."""

    code = "forbidden"


class NotInstalled(WarptokError, ImportError):
    """A package is missing; the message says what to install."""

    code = "not_installed"


class DeviceUnavailable(WarptokError, RuntimeError):
    """The GPU cannot be used, or its kernels do not compute the vocabulary."""

    code = "device_unavailable"


class Unavailable(WarptokError, ConnectionError):
    """The service cannot be reached, is busy, starting or stopping; the call may be retried."""

    code = "unavailable"


class DeadlinePassed(WarptokError, TimeoutError):
    """The answer took longer than the client or the service allows."""

    code = "deadline_passed"


class ServiceFailed(WarptokError, RuntimeError):
    """The service failed; its log has the cause under `request_id`."""


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
"""The error class of each code; for other codes the status decides."""
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
"""The error class of each status; other 4xx are InvalidRequest, and other 5xx ServiceFailed."""


def error_class(code: str, status: int, *, is_row: bool = False) -> type[WarptokError]:
    """Choose the error class for an answer by its code, or by its status if the code is unknown.

    Args:
        code: a code of docs/errors.md, or an unknown one from a newer service.
        status: the HTTP status.
        is_row: whether the answer reports the code for one row.
    """
    if is_row:
        return RowRefused
    by_status = BY_STATUS.get(status, InvalidRequest if status < 500 else ServiceFailed)
    return BY_CODE.get(code, by_status)
