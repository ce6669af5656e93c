"""What an answer needs of its request: what the head says, when it came, how long it took."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

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
