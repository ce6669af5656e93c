"""Data of one request: the fields of its head, and timestamps.

A `Call` is read from HTTP headers and from gRPC metadata alike.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from random import getrandbits
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from service.core.errors import InvalidRequest

if TYPE_CHECKING:
    from starlette import types as asgi

HEADERS = frozenset(
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
"""Pattern of the request ids that clients may send; other bytes could forge lines of a log."""
SCOPE_KEY = "warptok.call"
MAX_DIGITS = 18
CLIENT_CLOSED = 499
"""The status of a request whose client left; nginx uses it, and no client receives it."""
Scope = Literal["any", "encode", "decode", "manage", "train"]
"""The scope that a request's key must have; "any": a key with any scope."""


@dataclass(slots=True)
class Times:
    """Timestamps of one request, and the seconds of its stages, summed over all work items.

    Attributes:
        begin: the perf_counter time at which the request's head was read.
        read: the perf_counter time at which its body, or a part of it, was read; 0 if unknown.
        finished: the perf_counter time at which the engine finished its last work item.
        head: the perf_counter time at which its answer began; 0 before that.
        num_works: the number of finished work items.
        parse_s, queue_s, encode_s, serialize_s: the seconds in each stage, summed.
    """

    begin: float = field(default_factory=perf_counter)
    read: float = 0.0
    finished: float = 0.0
    head: float = 0.0
    num_works: int = 0
    parse_s: float = 0.0
    queue_s: float = 0.0
    encode_s: float = 0.0
    serialize_s: float = 0.0


@dataclass(slots=True)
class Call:
    """One request over HTTP or gRPC.

    Attributes:
        query: the query string of the URL.
        request_id: the client's X-Request-Id, or an id that the service generates.
        trace: the client's headers traceparent and tracestate, by name; None if it sent none.
        media_type: the Content-Type without its parameters.
        content_length: the announced size of the body in bytes; 0 if unknown.
        encoding: the Content-Encoding of the body; None if it is not compressed.
        timeout_ms: the header X-Request-Timeout-Ms, unparsed.
        ends_at: the perf_counter time after which the client no longer waits for an answer.
        receive: the ASGI callable that reports that the client has disconnected.
        may: a function that raises ServiceError if the client's key lacks a scope; None if the
            scope of the path was checked already.
        times: the request's timestamps and the seconds of its stages.
        key: the name of the client's key; "" if it has none.
        address: the IP address of the client; "" if unknown.
        vocabulary: the name of the vocabulary that the request uses; "" if it uses none.
        num_bytes: the size of the request's work items in the queue.
        refusal: the error code with which the request was refused; "" if it was not refused.
        is_gone: whether the client has disconnected.
    """

    query: bytes = b""
    request_id: bytes = b""
    trace: dict[str, str] | None = None
    media_type: bytes = b""
    content_length: int = 0
    encoding: str | None = None
    timeout_ms: bytes | None = None
    ends_at: float = inf
    receive: Callable[[], Awaitable[Any]] | None = None
    may: Callable[[Scope], object] | None = None
    times: Times = field(default_factory=Times)
    key: str = ""
    address: str = ""
    vocabulary: str = ""
    num_bytes: int = 0
    refusal: str = ""
    is_gone: bool = False


def get_call(scope: asgi.Scope) -> Call:
    """Return the call of an ASGI request; create it at the first use."""
    call: Call | None = scope.get(SCOPE_KEY)
    if call is None:
        call = scope[SCOPE_KEY] = read_call(scope["headers"])
        call.query = scope.get("query_string", b"")
    return call


def read_call(headers: Iterable[tuple[bytes, bytes]]) -> Call:
    """Create the call of a request from its HTTP headers or gRPC metadata."""
    call = Call()
    for name, value in headers:
        if name in HEADERS:
            _set_field(call, name, value)
    if not call.request_id:
        call.request_id = b"%016x" % getrandbits(64)
    return call


def _set_field(call: Call, name: bytes, value: bytes) -> None:
    if name == b"content-type":
        call.media_type = value.split(b";")[0].strip().lower()
    elif name == b"content-length":
        call.content_length = parse_size(value) or 0
    elif name == b"content-encoding":
        call.encoding = None if value.lower() == b"identity" else value.decode("latin-1")
    elif name == b"x-request-timeout-ms":
        call.timeout_ms = value
    elif name == b"x-request-id":
        call.request_id = value if REQUEST_ID.fullmatch(value) else b""
    else:
        call.trace = {**(call.trace or {}), name.decode(): value.decode("latin-1")}


def parse_size(value: bytes) -> int | None:
    """Parse a header that is a number of bytes; return None if it is invalid or too long."""
    return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else None


def read_timeout(call: Call) -> None:
    """Set `call.ends_at` from the header X-Request-Timeout-Ms, if the request has this header.

    Raises:
        InvalidRequest: the header is not a positive whole number.
    """
    value = call.timeout_ms
    if value is None:
        return
    if not value.isdigit() or len(value) > 15 or int(value) == 0:
        raise InvalidRequest("must be a positive number of milliseconds", "X-Request-Timeout-Ms")
    call.ends_at = call.times.begin + int(value) / 1000
