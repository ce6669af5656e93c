"""Exceptions with which the service refuses requests, each with an HTTP status and a code.

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

problem_details.py converts each exception to a problem document. Messages never quote the input;
they contain only its place or its length.
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
NOT_WRITABLE = (
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ESTALE,
)


class ServiceError(Exception):
    """A refusal with its HTTP status; `where` is the place of the fault in the request."""

    status = 500
    code = "internal"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, message: str, where: str = "", findings: Sequence[Finding] = ()) -> None:
        self.message = message
        self.where = where
        self.findings = tuple(findings)
        super().__init__(message)


class BadHead(ServiceError):
    """The head of the request is not valid HTTP/1.1; the connection is closed."""

    status, code, headers = 400, "bad_head", ((b"connection", b"close"),)


class UnsupportedTransferCoding(ServiceError):
    """The body has a transfer coding other than chunked; the connection is closed."""

    status, code, headers = 501, "unsupported_transfer_coding", ((b"connection", b"close"),)


class HostRefused(ServiceError):
    """The service does not answer requests for the host name in the header Host."""

    status, code = 403, "host_not_allowed"


class OriginRefused(ServiceError):
    """A web page of another origin may not change vocabularies or training jobs."""

    status, code = 403, "origin_not_allowed"


class BadJson(ServiceError):
    """The body is not JSON."""

    status, code = 400, "bad_json"


class LoneSurrogate(ServiceError):
    """A string contains half a surrogate pair, which is not a character."""

    status, code = 400, "lone_surrogate"


class BadBody(ServiceError):
    """The body is not valid in the format of its content type or encoding."""

    status, code = 400, "bad_body"


class BuiltinProtected(ServiceError):
    """A built-in vocabulary can be neither replaced nor deleted."""

    status, code = 403, "builtin_protected"


class UnknownVocabulary(ServiceError):
    """No vocabulary has this name; the message suggests similar names."""

    status, code = 404, "unknown_vocabulary"


class NameTaken(ServiceError):
    """The name already belongs to another vocabulary, alias, training job or region."""

    status, code = 409, "name_taken"


class AliasProtected(ServiceError):
    """The setting `aliases` defines this alias, so no request can change it."""

    status, code = 403, "alias_protected"


class AliasGiven(ServiceError):
    """The call needs a vocabulary's own name, but the request contains an alias."""

    status, code = 409, "alias_given"


class DigestDiffers(ServiceError):
    """The digest of the vocabulary differs from the one that the request requires."""

    status, code = 412, "digest_differs"


class TooLarge(ServiceError):
    """The request or its answer exceeds a limit, which the message names."""

    status, code = 413, "too_large"


class UnsupportedFormat(ServiceError):
    """The service does not support the content type, the encoding or the file format."""

    status, code = 415, "unsupported_format"


class InvalidRequest(ServiceError):
    """A field or an option of the request is invalid."""

    status, code = 422, "invalid_request"


class InvalidVocabulary(ServiceError):
    """A vocabulary file is invalid; the findings list each fault with its place."""

    status, code = 422, "vocabulary_invalid"


class RowRefused(ServiceError):
    """The only row of a request cannot be encoded or decoded; the code is that of the row."""

    status = 422

    def __init__(self, error: batch.RowError, pointer: str) -> None:
        self.code = error.code
        self.status = 500 if error.code == "engine_failed" else 422
        super().__init__(error.message, f"{pointer}: {error.where}" if error.where else pointer)


class Unauthorized(ServiceError):
    """The request has no API key, or an unknown one."""

    status, code, headers = 401, "unauthorized", ((b"www-authenticate", b"Bearer"),)


class Forbidden(ServiceError):
    """The key lacks the required scope, or the service allows this call to no client."""

    status, code = 403, "forbidden"


class RegionsOff(ServiceError):
    """The service does not allow shared memory; see the setting `shared_memory`."""

    status, code = 403, "shared_memory_off"


class UnknownRegion(ServiceError):
    """No region of shared memory is registered under this name."""

    status, code = 404, "unknown_region"


class TemplateFailed(ServiceError):
    """A chat template took too much time or memory."""

    status, code = 422, "template_failed"


class QueueFull(ServiceError):
    """Too many bytes are waiting in the queue."""

    status, code, headers = 429, "queue_full", ((b"retry-after", b"1"),)


class TooManyStreams(ServiceError):
    """Too many streams are open."""

    status, code, headers = 429, "too_many_streams", ((b"retry-after", b"5"),)


class TooManyConnections(ServiceError):
    """Too many connections are open, in total or from one address; this one is closed."""

    status, code = 503, "too_many_connections"
    headers = ((b"retry-after", b"1"), (b"connection", b"close"))


class RateLimited(ServiceError):
    """The client sends more requests or bytes per second than its key allows."""

    status, code = 429, "rate_limited"

    def __init__(self, message: str, where: str = "", retry_after_s: int = 1) -> None:
        super().__init__(message, where)
        self.headers = ((b"retry-after", b"%d" % max(1, retry_after_s)),)


class BodyTimeout(ServiceError):
    """The body of the request arrives too slowly; the connection is closed."""

    status, code, headers = 408, "body_timeout", ((b"connection", b"close"),)


class Draining(ServiceError):
    """The service is stopping."""

    status, code, headers = 503, "draining", ((b"retry-after", b"5"),)


class NotReady(ServiceError):
    """The service or the vocabulary is not ready to answer requests."""

    status, code, headers = 503, "not_ready", ((b"retry-after", b"1"),)


class DeadlinePassed(ServiceError):
    """The deadline passed before the answer began, or encoding would exceed a time limit."""

    status, code = 504, "deadline_passed"


class EngineFailed(ServiceError):
    """The engine failed; the log contains the reason."""

    status, code = 500, "engine_failed"


class EngineLost(ServiceError):
    """The engine process ended before it answered; it is being restarted."""

    status, code, headers = 503, "engine_lost", ((b"retry-after", b"1"),)


class NotInstalled(ServiceError, ImportError):
    """The call needs packages that are not installed; the message names the extra."""

    status, code = 501, "not_installed"


class UnknownJob(ServiceError):
    """No training job has this id."""

    status, code = 404, "unknown_job"


class WrongState(ServiceError):
    """The call is not allowed in the current state of the training job."""

    status, code = 409, "wrong_state"


class TooManyJobs(ServiceError):
    """Too many training jobs are waiting, running or interrupted."""

    status, code, headers = 429, "too_many_jobs", ((b"retry-after", b"60"),)


class NoSpace(ServiceError):
    """The disk is full."""

    status, code, headers = 507, "no_space", ((b"retry-after", b"60"),)


class StoreFailed(ServiceError):
    """The store on disk cannot be written, for example because its folder is read-only."""

    status, code = 500, "store_failed"


@contextmanager
def disk_errors() -> Iterator[None]:
    """Convert OSErrors in the block: a full disk to NoSpace, an unwritable store to StoreFailed."""
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
    """Return the refusal of a request that sent no byte for `idle_s` seconds."""
    return BodyTimeout(f"the client sent nothing for {idle_s} s (setting stream_idle_timeout_s)")


def make_late_refusal(event: str) -> DeadlinePassed:
    """Return the refusal of a request whose deadline passed before an event, such as its answer.

    The refusal closes the connection, as the body may not have been read.
    """
    refusal = DeadlinePassed(f"the deadline passed before {event}")
    refusal.headers = ((b"connection", b"close"),)
    return refusal
