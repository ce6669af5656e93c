"""What a request's head says, over HTTP and gRPC alike: one Call for everything that answers it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import getrandbits
from typing import TYPE_CHECKING

from service.core.call import Call
from service.core.errors import InvalidRequest

if TYPE_CHECKING:
    from starlette.types import Scope

KNOWN = frozenset(
    (
        b"content-type",
        b"content-length",
        b"content-encoding",
        b"x-request-timeout-ms",
        b"x-request-id",
        b"traceparent",
        b"tracestate",
    )
)
REQUEST_ID = re.compile(rb"[\w.:/+=@-]{1,128}", re.ASCII)
"""Ids of clients that are taken over; others could forge lines of a log."""
IN_SCOPE = "warptok.call"
MAX_DIGITS = 18


def get_call(scope: Scope) -> Call:
    """Get the call of an ASGI request, which is made when it is first asked for."""
    call: Call | None = scope.get(IN_SCOPE)
    if call is None:
        call = scope[IN_SCOPE] = read_call(scope["headers"])
        call.query = scope.get("query_string", b"")
    return call


def repeat_call(first: Call, content_length: int) -> Call:
    """Make the call of a head that says what another one said, but for the length of its body.

    Neither has an id, or a trace, of its client's: those are told from head to head.
    """
    return Call(
        request_id=_new_id(),
        media_type=first.media_type,
        content_length=content_length,
        timeout_ms=first.timeout_ms,
    )


def read_call(headers: Iterable[tuple[bytes, bytes]]) -> Call:
    """Read what the headers, or the metadata, of a request say."""
    call = Call()
    for name, value in headers:
        if name in KNOWN:
            _take(call, name, value)
    if not call.request_id:
        call.request_id = _new_id()
    return call


def _new_id() -> bytes:
    return b"%016x" % getrandbits(64)


def _take(call: Call, name: bytes, value: bytes) -> None:
    if name == b"content-type":
        call.media_type = value.split(b";")[0].strip().lower()
    elif name == b"content-length":
        call.content_length = whole_number(value) or 0
    elif name == b"content-encoding":
        call.encoding = None if value.lower() == b"identity" else value.decode("latin-1")
    elif name == b"x-request-timeout-ms":
        call.timeout_ms = value
    elif name == b"x-request-id":
        call.request_id = value if REQUEST_ID.fullmatch(value) else b""
    else:
        call.trace = {**(call.trace or {}), name.decode(): value.decode("latin-1")}


def whole_number(value: bytes) -> int | None:
    """A number of bytes out of a header; None where it is none, or longer than any that is."""
    return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else None


def read_timeout(call: Call) -> None:
    """Take the client's deadline from ``X-Request-Timeout-Ms``, where it has sent one.

    Raises:
        InvalidRequest: it is not a positive whole number.
    """
    value = call.timeout_ms
    if value is None:
        return
    if not value.isdigit() or len(value) > 15 or int(value) == 0:
        raise InvalidRequest("must be a positive number of milliseconds", "X-Request-Timeout-Ms")
    call.timeout_s = int(value) / 1000
