"""Converts refusals to gRPC statuses with google.rpc details: reason, field, retry delay."""

from __future__ import annotations

from typing import NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from service.core.errors import ServiceError

CODES = {
    400: code_pb2.INVALID_ARGUMENT,
    401: code_pb2.UNAUTHENTICATED,
    403: code_pb2.PERMISSION_DENIED,
    404: code_pb2.NOT_FOUND,
    408: code_pb2.DEADLINE_EXCEEDED,
    409: code_pb2.ALREADY_EXISTS,
    412: code_pb2.FAILED_PRECONDITION,
    413: code_pb2.INVALID_ARGUMENT,
    415: code_pb2.INVALID_ARGUMENT,
    422: code_pb2.INVALID_ARGUMENT,
    429: code_pb2.RESOURCE_EXHAUSTED,
    501: code_pb2.UNIMPLEMENTED,
    503: code_pb2.UNAVAILABLE,
    504: code_pb2.DEADLINE_EXCEEDED,
    507: code_pb2.RESOURCE_EXHAUSTED,
}
DOMAIN = "warptok"
# A client by default refuses trailers of more than 8 KiB: the message, percent-encoded, and the
# details, which repeat it, in base64.
MAX_MESSAGE_BYTES = 1024
MAX_FIELD_BYTES = 256
MAX_DESCRIPTION_BYTES = 512
MAX_VIOLATIONS_BYTES = 2048


async def abort(
    context: grpc.aio.ServicerContext, refusal: ServiceError, request_id: str
) -> NoReturn:
    """End a call with the status of a refusal; the details contain the request id."""
    await context.abort_with_status(rpc_status.to_status(_status(refusal, request_id)))
    raise AssertionError("abort_with_status raises")


def _status(refusal: ServiceError, request_id: str) -> status_pb2.Status:
    where = _field(refusal.where)
    message = f"{where}: {refusal.message}" if where else refusal.message
    message = _shorten(message, MAX_MESSAGE_BYTES)
    code = CODES.get(refusal.status, code_pb2.INTERNAL)
    info = error_details_pb2.ErrorInfo(reason=refusal.code, domain=DOMAIN)
    info.metadata["http_status"] = str(refusal.status)
    details = [_pack(info)]
    places = [(_field(finding.where), finding.message) for finding in refusal.findings]
    if code == code_pb2.INVALID_ARGUMENT:
        places = places or [(where, refusal.message)]
        details.append(_pack(_describe_places(places)))
    retry_after = dict(refusal.headers).get(b"retry-after")
    if retry_after is not None:
        delay = duration_pb2.Duration(seconds=int(retry_after))
        details.append(_pack(error_details_pb2.RetryInfo(retry_delay=delay)))
    details.append(_pack(error_details_pb2.RequestInfo(request_id=request_id)))
    return status_pb2.Status(code=code, message=message, details=details)


def _describe_places(places: list[tuple[str, str]]) -> error_details_pb2.BadRequest:
    """Describe the fields and their faults; omit the last ones if they are too many to send."""
    described = error_details_pb2.BadRequest()
    for field, text in places:
        described.field_violations.add(
            field=_shorten(field, MAX_FIELD_BYTES),
            description=_shorten(text, MAX_DESCRIPTION_BYTES),
        )
        if described.ByteSize() > MAX_VIOLATIONS_BYTES:
            described.field_violations.pop()
            break
    return described


def _shorten(text: str, max_bytes: int) -> str:
    """Cut a text to a number of bytes of UTF-8, three of which are the ellipsis at its end."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    return data[: max_bytes - 3].decode(errors="ignore") + "…"


def _field(where: str) -> str:
    """Convert a place to the field path that gRPC uses.

    Example: the JSON pointer /channel/5 becomes channel[5]; other places are not changed.
    """
    pointer, rest, place = where.partition(":")
    if not pointer.startswith("/"):
        return where
    first, *parts = pointer[1:].split("/")
    steps = [f"[{part}]" if part.isdigit() else f".{part}" for part in parts]
    return first + "".join(steps) + rest + place


def _pack(detail: error_details_pb2.ErrorInfo) -> any_pb2.Any:
    detail_message = any_pb2.Any()
    detail_message.Pack(detail)
    return detail_message
