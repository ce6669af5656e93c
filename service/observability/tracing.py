"""Makes OpenTelemetry spans of finished requests; needs the extra warptok[tracing].

    traceparent of the client ─► span of the request ─┬─ parse
                                                      ├─ queue
                                                      ├─ encode
                                                      └─ serialize

Spans use only times that are measured anyway, so a request that is not sampled costs little. The
span of a stream has the sums of its stages, and no spans of its parts. No span contains an input.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

from service.core.version import package_version
from service.security.addresses import format_address

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from service.core.call import Call, Times
    from service.core.settings import Settings

FIRST_ERROR = 500
STAGES = ("parse", "queue", "encode", "serialize")


def make_tracer(settings: Settings) -> Tracer | None:
    """Make a tracer if the setting `tracing` is on; the OTEL_ environment variables configure it.

    Raises:
        ValueError: the extra is not installed.
    """
    if not settings.tracing:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        message = f"tracing needs the extra: pip install 'warptok[tracing]' ({error})"
        raise ValueError(message) from error
    own = Resource({"service.name": "warptok", "service.version": package_version()})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracer(provider, settings.client_addresses)


class Tracer:
    """Makes the spans of finished requests.

    Args:
        provider: the provider with the sampler and the exporter.
        client_addresses: the setting `client_addresses`.
    """

    def __init__(self, provider: TracerProvider, client_addresses: str) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._client_addresses = client_addresses
        self._tracer = provider.get_tracer("warptok", package_version())
        self._extract = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER
        self._error = Status(StatusCode.ERROR)
        self._inside = set_span_in_context

    def record(self, call: Call, route: str, status: int) -> None:
        """Make the spans of a request that has just finished."""
        times, now = call.times, perf_counter()
        origin = time.time_ns() - int(now * 1e9)  # Of perf_counter's time.
        span = self._tracer.start_span(
            route,
            self._extract(call.trace or {}),
            self._kind,
            start_time=origin + int(times.begin * 1e9),
        )
        if not span.is_recording():
            return
        span.set_attributes(_attributes(call, route, status))
        span.set_attributes(self._client_attributes(call))
        if status >= FIRST_ERROR:
            span.set_status(self._error)
        inside = self._inside(span)
        for stage, begin, end in _stages(times, now):
            child = self._tracer.start_span(stage, inside, start_time=origin + int(begin * 1e9))
            child.end(origin + int(end * 1e9))
        span.end(origin + int(now * 1e9))

    def _client_attributes(self, call: Call) -> dict[str, str]:
        """Return the attributes that name a request's client and vocabulary."""
        named = {
            "client.address": format_address(call.address, self._client_addresses),
            "warptok.key": call.key,
            "warptok.vocabulary": call.vocabulary,
        }
        return {name: value for name, value in named.items() if value}

    def close(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()


def _attributes(call: Call, route: str, status: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "http.route": route,
        "http.response.status_code": status,
        "warptok.request_id": call.request_id.decode(),
    }
    if call.refusal:
        attributes["error.type"] = call.refusal
    times = call.times
    if times.num_works > 1:
        attributes["warptok.num_parts"] = times.num_works
        for stage in STAGES:
            attributes[f"warptok.{stage}_s"] = getattr(times, f"{stage}_s")
    return attributes


def _stages(times: Times, now: float) -> Iterator[tuple[str, float, float]]:
    """Yield each stage of a request that is not a stream, with its perf_counter begin and end.

    The times are clipped to the request, as sums of separate measurements may exceed it.
    """
    if times.num_works != 1:
        return
    encoding = times.finished - times.encode_s
    queued = encoding - times.queue_s
    begin, end = queued - times.parse_s, times.finished + times.serialize_s
    ends = (begin, queued, encoding, times.finished, end)
    inside = [min(max(each, times.begin), now) for each in ends]
    yield from zip(STAGES, inside, inside[1:], strict=False)
