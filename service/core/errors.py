"""The exceptions by which the service refuses a request, each with its status and code.

    ServiceError
    ├── BadHead 400 · UnsupportedTransferCoding 501 · HostRefused 403 · OriginRefused 403
    ├── BadJson 400 · BadBody 400 · UnsupportedFormat 415 · TooLarge 413
    ├── UnknownVocabulary 404 · NameTaken 409 · DigestDiffers 412 · BuiltinProtected 403
    ├── AliasProtected 403 · AliasGiven 409
    ├── InvalidRequest 422 · InvalidVocabulary 422 · RowRefused 422
    ├── Unauthorized 401 · Forbidden 403 · RegionsOff 403 · UnknownRegion 404 · TemplateFailed 422
    ├── UnknownJob 404 · WrongState 409 · TooManyJobs 429
    ├── NoSpace 507 · StoreFailed 500
    ├── QueueFull 429 · TooManyStreams 429 · RateLimited 429
    ├── TooManyConnections 503
    ├── BodyTimeout 408 · Draining 503 · NotReady 503 · DeadlinePassed 504
    └── EngineFailed 500 · EngineLost 503 · NotInstalled 501

Each becomes a problem document (problem_details.py). Messages never quote an input: they have its
place or its length only.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vocabularies.errors import Finding

if TYPE_CHECKING:
    from vocabularies.batch import batch

logger = logging.getLogger(__name__)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOENT, errno.ENOTDIR)


class ServiceError(Exception):
    """A refusal with its HTTP status; `where` names the place in the request."""

    status = 500
    code = "internal"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, message: str, where: str = "", findings: Sequence[Finding] = ()) -> None:
        self.message = message
        self.where = where
        self.findings = tuple(findings)
        super().__init__(message)


class BadHead(ServiceError):
    """The head of the request is not HTTP/1.1; its connection is closed."""

    status, code, headers = 400, "bad_head", ((b"connection", b"close"),)


class UnsupportedTransferCoding(ServiceError):
    """The body has another transfer coding than chunked; its connection is closed."""

    status, code, headers = 501, "unsupported_transfer_coding", ((b"connection", b"close"),)


class HostRefused(ServiceError):
    """The service does not answer for the name in the header Host."""

    status, code = 403, "host_not_allowed"


class OriginRefused(ServiceError):
    """A web page of another origin may not change vocabularies or training jobs."""

    status, code = 403, "origin_not_allowed"


class BadJson(ServiceError):
    """The body is not JSON."""

    status, code = 400, "bad_json"


class LoneSurrogate(ServiceError):
    """A string has half a surrogate pair, which is no character."""

    status, code = 400, "lone_surrogate"


class BadBody(ServiceError):
    """The body does not have the form that its content type or encoding names."""

    status, code = 400, "bad_body"


class BuiltinProtected(ServiceError):
    """A built-in vocabulary can be neither replaced nor deleted."""

    status, code = 403, "builtin_protected"


class UnknownVocabulary(ServiceError):
    """No vocabulary has this name; near names are suggested."""

    status, code = 404, "unknown_vocabulary"


class NameTaken(ServiceError):
    """The name means another digest."""

    status, code = 409, "name_taken"


class AliasProtected(ServiceError):
    """The setting `aliases` gives this name its meaning, which no request changes."""

    status, code = 403, "alias_protected"


class AliasGiven(ServiceError):
    """The call needs a vocabulary's own name, and got an alias."""

    status, code = 409, "alias_given"


class DigestDiffers(ServiceError):
    """The vocabulary has another digest than the request demands."""

    status, code = 412, "digest_differs"


class TooLarge(ServiceError):
    """Something is above a limit, which the message names."""

    status, code = 413, "too_large"


class UnsupportedFormat(ServiceError):
    """A content type or file format that is not read."""

    status, code = 415, "unsupported_format"


class InvalidRequest(ServiceError):
    """A field is wrong."""

    status, code = 422, "invalid_request"


class InvalidVocabulary(ServiceError):
    """A vocabulary file is wrong; the findings name every place."""

    status, code = 422, "vocabulary_invalid"


class RowRefused(ServiceError):
    """The only row of a request cannot be encoded or decoded; the code is the row's own."""

    status = 422

    def __init__(self, error: batch.RowError, pointer: str) -> None:
        self.code = error.code
        self.status = 500 if error.code == "engine_failed" else 422
        super().__init__(error.message, f"{pointer}: {error.where}" if error.where else pointer)


class Unauthorized(ServiceError):
    """A key is missing, or not known."""

    status, code, headers = 401, "unauthorized", ((b"www-authenticate", b"Bearer"),)


class Forbidden(ServiceError):
    """The key lacks the scope, or the service allows this to no client."""

    status, code = 403, "forbidden"


class RegionsOff(ServiceError):
    """Shared memory is not allowed here."""

    status, code = 403, "shared_memory_off"


class UnknownRegion(ServiceError):
    """No region of shared memory has this name."""

    status, code = 404, "unknown_region"


class TemplateFailed(ServiceError):
    """A chat template took too long or too much memory."""

    status, code = 422, "template_failed"


class QueueFull(ServiceError):
    """Too many bytes are waiting."""

    status, code, headers = 429, "queue_full", ((b"retry-after", b"1"),)


class TooManyStreams(ServiceError):
    """Too many streams are open."""

    status, code, headers = 429, "too_many_streams", ((b"retry-after", b"5"),)


class TooManyConnections(ServiceError):
    """Too many connections are open, in all or of one address; this one is closed."""

    status, code = 503, "too_many_connections"
    headers = ((b"retry-after", b"1"), (b"connection", b"close"))


class RateLimited(ServiceError):
    """A client sends more requests or bytes in a second than its key allows."""

    status, code = 429, "rate_limited"

    def __init__(self, message: str, where: str = "", retry_after_s: int = 1) -> None:
        super().__init__(message, where)
        self.headers = ((b"retry-after", b"%d" % max(1, retry_after_s)),)


class BodyTimeout(ServiceError):
    """No byte of a request came for too long; its connection is closed."""

    status, code, headers = 408, "body_timeout", ((b"connection", b"close"),)


class Draining(ServiceError):
    """The service is stopping."""

    status, code, headers = 503, "draining", ((b"retry-after", b"5"),)


class NotReady(ServiceError):
    """The service, or the vocabulary, cannot answer yet."""

    status, code, headers = 503, "not_ready", ((b"retry-after", b"1"),)


class DeadlinePassed(ServiceError):
    """The deadline passed before the answer began, or the text takes its vocabulary too long."""

    status, code = 504, "deadline_passed"


class EngineFailed(ServiceError):
    """The engine failed; the log has the reason."""

    status, code = 500, "engine_failed"


class EngineLost(ServiceError):
    """The engine process ended before it had answered; it is being started again."""

    status, code, headers = 503, "engine_lost", ((b"retry-after", b"1"),)


class NotInstalled(ServiceError, ImportError):
    """The call needs packages that this installation leaves out; the message names the extra."""

    status, code = 501, "not_installed"


class UnknownJob(ServiceError):
    """No training job has this id."""

    status, code = 404, "unknown_job"


class WrongState(ServiceError):
    """The state of a training job does not allow this."""

    status, code = 409, "wrong_state"


class TooManyJobs(ServiceError):
    """Too many training jobs wait, run or are interrupted."""

    status, code, headers = 429, "too_many_jobs", ((b"retry-after", b"60"),)


class NoSpace(ServiceError):
    """The disk is full."""

    status, code, headers = 507, "no_space", ((b"retry-after", b"60"),)


class StoreFailed(ServiceError):
    """The store on disk cannot be written, for example because its folder is read-only."""

    status, code = 500, "store_failed"


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn a full disk in the block into NoSpace, and other errors of writing into StoreFailed."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            logger.error("the disk of the service is full")
            raise NoSpace("the disk of the service is full") from error
        if error.errno in NOT_WRITABLE:
            logger.error("the store cannot be written: %s", error)
            raise StoreFailed(f"the store cannot be written: {error.strerror}") from error
        raise


def make_body_timeout(idle_s: float | None) -> BodyTimeout:
    """Make the refusal of a request that sent no byte for `idle_s` seconds."""
    return BodyTimeout(f"nothing came for {idle_s} s (stream_idle_timeout_s)")


def make_late_refusal(event: str) -> DeadlinePassed:
    """Make the refusal of a request whose client's time ended before an event.

    The connection is closed, as the body may not have been read.
    """
    refusal = DeadlinePassed(f"the deadline passed before {event}")
    refusal.headers = ((b"connection", b"close"),)
    return refusal
