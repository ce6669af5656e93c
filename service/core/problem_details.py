"""Converts exceptions to refusals, and refusals to application/problem+json (RFC 9457).

Every exception becomes a ServiceError. An unexpected one becomes a 500; its message contains the
id of the request, by which the traceback can be found in the log.
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

from service.core.context_vars import REQUEST_ID
from service.core.errors import BadJson, InvalidRequest, InvalidVocabulary, ServiceError
from vocabularies.errors import Finding, VocabularyError

logger = logging.getLogger(__name__)
MAX_FINDINGS = 20
MAX_INTEGER = 1 << 63
EXPECTED = "Input should be "
BRANCHES = ("str", "constrained-int")  # Names of pydantic for branches of a union.
Headers = list[tuple[bytes, bytes]]


def invalid_body(error: ValidationError | RequestValidationError) -> ServiceError:
    """Convert a pydantic error to a refusal with JSON pointers; never quote the input."""
    faults = error.errors()
    first = faults[0]
    if first["type"] == "json_invalid":
        reason = str(first.get("ctx", {}).get("error", first["msg"]))
        _, _, place = str(first["msg"]).partition(" at ")
        return BadJson(f"the body is not JSON: {reason}", place)
    findings = _find_places(faults)
    message = findings[0].message
    if len(findings) > 1:
        message += f" (and {len(findings) - 1} more)"
    return InvalidRequest(message, findings[0].where, findings[:MAX_FINDINGS])


def _find_places(faults: Sequence[Any]) -> list[Finding]:
    """Describe the faults, merged by place: pydantic reports one for each branch of a union.

    If one branch fits but has a fault inside, the faults of the other branches are omitted.
    """
    messages: dict[str, list[str]] = {}
    for fault in faults:
        described = messages.setdefault(_pointer(fault["loc"]), [])
        message = _describe(fault)
        if described and message.startswith(EXPECTED) and described[0].startswith(EXPECTED):
            message = message.removeprefix(EXPECTED)
        if message not in described and EXPECTED + message not in described:
            described.append(message)
    inner = {place[:end] for place in messages for end, sign in enumerate(place) if sign == "/"}
    return [
        Finding(place, " or ".join(described))
        for place, described in messages.items()
        if place not in inner
    ]


def _describe(fault: Any) -> str:
    """Return the message of a fault; orjson has converted integers beyond 64 bits to floats."""
    value = fault.get("input")
    if value is None and fault["type"] != "missing":
        return "must not be null"
    if fault["type"] == "int_type" and isinstance(value, float) and abs(value) >= MAX_INTEGER:
        return "the number is larger than any id"
    return str(fault["msg"])


def _pointer(location: Sequence[Any]) -> str:
    """Convert a pydantic location to a JSON pointer; omit the names of union branches."""
    if location and location[0] in ("body", "query", "path", "header"):
        location = location[1:]
    parts = [str(part) for part in location if part not in BRANCHES and "[" not in str(part)]
    return "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in parts)


def as_service_error(error: Exception) -> ServiceError:
    """Convert any exception to a refusal; an unexpected one is logged and becomes a 500."""
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
    """Convert any exception to the status, headers and body of a problem document."""
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
