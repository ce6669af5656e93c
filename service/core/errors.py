"""Every refusal of the service: one family, one table of statuses, one document.

    ServiceError
    ├── BadJson 400 · BadBody 400 · UnsupportedFormat 415 · TooLarge 413
    ├── UnknownVocabulary 404 · NameTaken 409 · DigestDiffers 412 · BuiltinProtected 403
    ├── InvalidRequest 422 · InvalidVocabulary 422 · RowRefused 422
    ├── Unauthorized 401 · Forbidden 403 · RegionsOff 403 · UnknownRegion 404 · TemplateFailed 422
    ├── UnknownJob 404 · WrongState 409 · TooManyJobs 429 (training_errors.py)
    ├── NoSpace 507 · StoreFailed 500 (store_errors.py)
    ├── QueueFull 429 · TooManyStreams 429 · RateLimited 429
    ├── BodyTimeout 408 (body_timeout.py) · Draining 503 · NotReady 503 · DeadlinePassed 504
    └── EngineFailed 500 · EngineLost 503

Each answers application/problem+json (RFC 9457). Inputs are never echoed: places and lengths only.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from service.observability.logging import REQUEST_ID
from vocabularies.batch import batch
from vocabularies.errors import Finding, VocabularyError

logger = logging.getLogger(__name__)
MAX_FINDINGS = 20
Headers = list[tuple[bytes, bytes]]


class ServiceError(Exception):
    """A refusal with its HTTP status; `where` names the place in the request."""

    status = 500
    code = "internal"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, message: str, where: str = "", findings: Sequence[Finding] = ()) -> None:
        self.message, self.where, self.findings = message, where, tuple(findings)
        super().__init__(message)


class BadJson(ServiceError):
    """The body is not JSON."""

    status, code = 400, "bad_json"


class BadBody(ServiceError):
    """The body is not what its content type or encoding says."""

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


class DigestDiffers(ServiceError):
    """The vocabulary is not the one the client asked for."""

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
    """The key has not the scope, or nobody may do this here."""

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


class RateLimited(ServiceError):
    """A client asks for more in a second than its key allows."""

    status, code = 429, "rate_limited"

    def __init__(self, message: str, where: str = "", retry_after_s: int = 1) -> None:
        super().__init__(message, where)
        self.headers = ((b"retry-after", b"%d" % max(1, retry_after_s)),)


class Draining(ServiceError):
    """The service is stopping."""

    status, code, headers = 503, "draining", ((b"retry-after", b"5"),)


class NotReady(ServiceError):
    """The service, or the vocabulary, cannot answer yet."""

    status, code, headers = 503, "not_ready", ((b"retry-after", b"1"),)


class DeadlinePassed(ServiceError):
    """The request's time was up before its turn came."""

    status, code = 504, "deadline_passed"


class EngineFailed(ServiceError):
    """The engine failed; the log has the reason."""

    status, code = 500, "engine_failed"


class EngineLost(ServiceError):
    """The engine process ended before it had answered; it is being started again."""

    status, code, headers = 503, "engine_lost", ((b"retry-after", b"1"),)


def invalid_body(error: ValidationError | RequestValidationError) -> ServiceError:
    """What pydantic found, as our refusal: every place as a JSON pointer, never the input."""
    faults = error.errors()
    first = faults[0]
    if first["type"] == "json_invalid":
        reason = str(first.get("ctx", {}).get("error", first["msg"]))
        _, _, place = str(first["msg"]).partition(" at ")
        return BadJson(f"the body is not JSON: {reason}", place)
    findings = [Finding(_pointer(fault["loc"]), str(fault["msg"])) for fault in faults]
    message = findings[0].message
    if len(findings) > 1:
        message += f" (and {len(findings) - 1} more)"
    return InvalidRequest(message, findings[0].where, findings[:MAX_FINDINGS])


def _pointer(location: Sequence[Any]) -> str:
    """A JSON pointer; the names of pydantic's own union branches are left out."""
    if location and location[0] in ("body", "query", "path", "header"):
        location = location[1:]
    parts = [str(part) for part in location if part != "str" and "[" not in str(part)]
    return "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in parts)


def as_service_error(error: Exception) -> ServiceError:
    """Any exception as a refusal; what nobody foresaw becomes 500 with a number for the log."""
    match error:
        case ServiceError():
            return error
        case VocabularyError():
            first = error.findings[0]
            return InvalidVocabulary(first.message, first.where, error.findings[:100])
        case ValidationError() | RequestValidationError():
            return invalid_body(error)
        case HTTPException():
            refusal = ServiceError(str(error.detail))
            refusal.status = error.status_code
            refusal.code = HTTPStatus(error.status_code).name.lower()
            pairs = (error.headers or {}).items()
            refusal.headers = tuple((k.lower().encode(), v.encode()) for k, v in pairs)
            return refusal
    number = REQUEST_ID.get() or uuid.uuid4().hex[:12]
    logger.error("This is a bug. Request %s failed", number, exc_info=error)
    return ServiceError(f"an error of ours; it stands in the log under {number}")


def problem(error: Exception) -> tuple[int, Headers, bytes]:
    """Status, headers and body of the refusal that an exception means."""
    refusal = as_service_error(error)
    document: dict[str, Any] = {
        "type": f"/problems/{refusal.code}",
        "title": refusal.code.replace("_", " "),
        "status": refusal.status,
        "detail": refusal.message,
        "code": refusal.code,
        "where": refusal.where,
    }
    if len(refusal.findings) > 1:
        document["findings"] = [
            {"where": finding.where, "message": finding.message} for finding in refusal.findings
        ]
    body = orjson.dumps(document)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        *refusal.headers,
    ]
    return refusal.status, headers, body
