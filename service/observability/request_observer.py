"""Counts, traces and logs every answered request, both HTTP and gRPC."""

from __future__ import annotations

import logging
from time import perf_counter

from service.core.call import CLIENT_CLOSED, Call
from service.observability.logging import fields
from service.observability.metrics import Metrics
from service.observability.tracing import Tracer
from service.security.addresses import format_address

logger = logging.getLogger(__name__)
Headers = list[tuple[bytes, bytes]]


class RequestObserver:
    """Counts, traces and logs the requests of one service.

    Args:
        metrics: counts the requests.
        tracer: makes the spans of requests; None: tracing is off.
        access_log: whether each request is logged.
        client_addresses: the setting `client_addresses`, for log lines.
        server_timing: whether answers have a Server-Timing header.
    """

    def __init__(
        self,
        metrics: Metrics,
        tracer: Tracer | None,
        *,
        access_log: bool,
        client_addresses: str,
        server_timing: bool,
    ) -> None:
        self.metrics = metrics
        self._count = metrics.usage.count
        self.tracer = tracer
        self.access_log = access_log
        self.client_addresses = client_addresses
        self.server_timing = server_timing

    def answer_headers(self, call: Call) -> Headers:
        """Return the headers of every answer."""
        headers = [(b"x-request-id", call.request_id)]
        if self.server_timing:
            headers.append((b"server-timing", format_server_timing(call)))
        return headers

    def format_answer_headers(self, call: Call) -> bytes:
        """Return the headers of every answer, formatted as lines of an HTTP head."""
        if self.server_timing:
            return b"".join([b"%b: %b\r\n" % header for header in self.answer_headers(call)])
        return b"x-request-id: %b\r\n" % call.request_id

    def add_serialize_time(self, call: Call, seconds: float) -> None:
        """Add the time that writing an answer, or a part of it, took."""
        call.times.serialize_s += seconds
        self.metrics.serialize_seconds.add(seconds)

    def finish(self, call: Call, route: str, status: int) -> None:
        """Record that a request was answered or refused, or that its client disconnected.

        Args:
            call: the request.
            route: the template of the path or the name of the method, never a client's own text.
            status: the HTTP status, or the HTTP status that corresponds to a gRPC status.
        """
        metrics, times = self.metrics, call.times
        seconds = perf_counter() - times.begin
        if times.num_works == 1 and times.head and not times.serialize_s:
            self.add_serialize_time(call, times.head - times.finished)
        if call.is_gone:
            status = CLIENT_CLOSED
            metrics.count_cancelled(call.key)
        else:
            self._count(route, status, seconds, call.num_bytes, call.key, call.vocabulary)
        if call.refusal:
            metrics.count_rejected(call.refusal)
        if self.tracer is not None:
            self.tracer.record(call, route, status)
        if self.access_log:
            self._log(call, route, status, seconds)

    def _log(self, call: Call, route: str, status: int, seconds: float) -> None:
        values = {
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "refusal": call.refusal,
            "key": call.key,
            "address": format_address(call.address, self.client_addresses),
            "vocabulary": call.vocabulary,
            "bytes": call.num_bytes or "",
            "request_id": call.request_id.decode(),
        }
        logger.info("answered", extra=fields(**{k: v for k, v in values.items() if v != ""}))


def format_server_timing(call: Call) -> bytes:
    """Format the finished stages, in milliseconds, as a Server-Timing header."""
    times = call.times
    stages = (times.parse_s * 1e3, times.queue_s * 1e3, times.encode_s * 1e3)
    return b"parse;dur=%.3f, queue;dur=%.3f, encode;dur=%.3f" % stages
