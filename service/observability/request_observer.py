"""What every answered request leaves behind, whichever way it came: counts, a span, a log line."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING

from service.observability.logging import fields

if TYPE_CHECKING:
    from service.core.call import Call
    from service.operations.context import Service

logger = logging.getLogger(__name__)
CLIENT_CLOSED = 499  # As nginx counts it; nobody reads it.
Headers = list[tuple[bytes, bytes]]


def answer_headers(service: Service, call: Call) -> Headers:
    """What every answer's head says of the request."""
    headers = [(b"x-request-id", call.request_id)]
    if service.settings.server_timing:
        headers.append((b"server-timing", server_timing(call)))
    return headers


def server_timing(call: Call) -> bytes:
    """The stages so far, in milliseconds, as browsers and proxies read them."""
    times = call.times
    stages = (times.parse_s * 1e3, times.queue_s * 1e3, times.encode_s * 1e3)
    return b"parse;dur=%.3f, queue;dur=%.3f, encode;dur=%.3f" % stages


def serialized(service: Service, call: Call, seconds: float) -> None:
    """So long it took to write an answer, or a part of it."""
    call.times.serialize_s += seconds
    service.metrics.serialize_seconds.add(seconds)


def finish(service: Service, call: Call, route: str, status: int) -> None:
    """One request has been answered or refused, or its client has left.

    Args:
        service: whose request it was.
        call: the request.
        route: a path's template or a method's name, never what a client made up.
        status: the HTTP status, or the one that a gRPC status stands for.
    """
    metrics, times = service.metrics, call.times
    seconds = perf_counter() - times.begin
    if times.num_works == 1 and times.head and not times.serialize_s:
        serialized(service, call, times.head - times.finished)
    if call.is_gone:
        status = CLIENT_CLOSED
        metrics.cancelled()
    else:
        metrics.requests(route, status, seconds)
    if call.refusal:
        metrics.rejected(call.refusal)
    if service.tracer is not None:
        service.tracer.record(call, route, status)
    if service.settings.access_log:
        ms = round(seconds * 1000, 3)
        values = {"route": route, "status": status, "ms": ms, "refusal": call.refusal}
        values |= {"request_id": call.request_id.decode()}
        logger.info("answered", extra=fields(**{k: v for k, v in values.items() if v != ""}))
