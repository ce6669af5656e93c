"""What an answer needs of its request: what its head says, when it came, how long it took.

Heads of HTTP and gRPC become the same Call.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import getrandbits
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from service.core.errors import InvalidRequest

if TYPE_CHECKING:
    from starlette import types as asgi

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
Scope = Literal["any", "encode", "decode", "manage", "train"]
"""What a request needs of its key; any: a key, whatever its scopes."""


@dataclass(slots=True)
class Times:
    """The times of one request; those of a stream's parts add up.

    Attributes:
        begin: perf_counter time at which its head was there.
        read: perf_counter time at which its body, or a part of it, was there; 0: nothing is known.
        finished: perf_counter time at which the engine had finished the last of its work.
        head: perf_counter time at which its answer began; 0: it has not.
        num_works: how many works have been finished.
        parse_s, queue_s, encode_s, serialize_s: seconds in each stage, of all works together.
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

    def finish_work(self, waited_s: float, encoded_s: float, now: float) -> None:
        """The engine has finished one work of the request."""
        self.queue_s += waited_s
        self.encode_s += encoded_s
        self.finished = now
        self.num_works += 1


@dataclass(slots=True)
class Call:
    """One request over HTTP or gRPC.

    Attributes:
        query: the query string of its URL.
        request_id: the client's X-Request-Id, or one made here.
        trace: what the client says of the trace that the request belongs to: traceparent and
            tracestate, by name.
        media_type: Content-Type without its parameters.
        content_length: bytes of the body as announced; 0 when it is not known.
        encoding: Content-Encoding of the body; None: it came as it is.
        timeout_ms: the header X-Request-Timeout-Ms as it came.
        timeout_s: seconds the client gives us; None: the service's own deadline.
        receive: the ASGI callable that tells when the client is gone.
        may: raises ServiceError where the client's key has not a scope; None: its path was checked.
        times: when it came and how long its stages took.
        refusal: the code with which it was refused; "" if it was not.
        is_gone: its client has left.
    """

    query: bytes = b""
    request_id: bytes = b""
    trace: dict[str, str] | None = None
    media_type: bytes = b""
    content_length: int = 0
    encoding: str | None = None
    timeout_ms: bytes | None = None
    timeout_s: float | None = None
    receive: Callable[[], Awaitable[Any]] | None = None
    may: Callable[[Scope], object] | None = None
    times: Times = field(default_factory=Times)
    refusal: str = ""
    is_gone: bool = False


def get_call(scope: asgi.Scope) -> Call:
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
