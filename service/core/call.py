"""The data of one request: fields of its head, and its times.

The headers of HTTP and the metadata of gRPC become the same `Call`.
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
"""The ids that are accepted from clients; other bytes could forge lines of a log."""
SCOPE_KEY = "warptok.call"
MAX_DIGITS = 18
CLIENT_CLOSED = 499
"""The status of a request whose client left; nginx uses it, and no client receives it."""
Scope = Literal["any", "encode", "decode", "manage", "train"]
"""The scope that a request's key must have; "any": a key with any scope."""


@dataclass(slots=True)
class Times:
    """The times of one request; the stages of a stream's parts are summed.

    Attributes:
        begin: the perf_counter time at which its head was read.
        read: the perf_counter time at which its body, or a part of it, was read; 0: not known.
        finished: the perf_counter time at which the engine finished its last work item.
        head: the perf_counter time at which its answer began; 0: it has not begun.
        num_works: the number of finished work items.
        parse_s, queue_s, encode_s, serialize_s: the seconds in each stage, of all work items.
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
        query: the query string of its URL.
        request_id: the client's X-Request-Id, or one made here.
        trace: the client's headers traceparent and tracestate, by name; None: it sent none.
        media_type: Content-Type without its parameters.
        content_length: the announced bytes of the body; 0 if they are not known.
        encoding: Content-Encoding of the body; None: it is not compressed.
        timeout_ms: the header X-Request-Timeout-Ms, unparsed.
        ends_at: the perf_counter time after which the client waits for no answer.
        receive: the ASGI callable that reports a disconnected client.
        may: raises ServiceError if the client's key lacks a scope; None: its path was checked.
        times: the times of its stages.
        key: the name of the client's key; "" if it has none.
        address: the IP address of the client; "" if it is not known.
        vocabulary: the name of the vocabulary that it uses; "" if it uses none.
        num_bytes: the size of its work items in the queue.
        refusal: the code with which it was refused; "" if it was not.
        is_gone: whether its client has disconnected.
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
    """Get the call of an ASGI request; the first use makes it."""
    call: Call | None = scope.get(SCOPE_KEY)
    if call is None:
        call = scope[SCOPE_KEY] = read_call(scope["headers"])
        call.query = scope.get("query_string", b"")
    return call


def read_call(headers: Iterable[tuple[bytes, bytes]]) -> Call:
    """Read a call from the headers of an HTTP request, or from the metadata of a gRPC call."""
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
    """Parse a number of bytes in a header; None: it is no number, or has too many digits."""
    return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else None


def read_timeout(call: Call) -> None:
    """Set the end of a call from the header X-Request-Timeout-Ms, if it has one.

    Raises:
        InvalidRequest: it is not a positive whole number.
    """
    value = call.timeout_ms
    if value is None:
        return
    if not value.isdigit() or len(value) > 15 or int(value) == 0:
        raise InvalidRequest("must be a positive number of milliseconds", "X-Request-Timeout-Ms")
    call.ends_at = call.times.begin + int(value) / 1000
