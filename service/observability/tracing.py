"""Spans of requests for OpenTelemetry, made when a request has ended: the extra warptok[tracing].

    traceparent of the client ─► span of the request ─┬─ parse
                                                      ├─ queue
                                                      ├─ encode
                                                      └─ serialize

Nothing is measured for it that is not measured anyway, so that a request whose trace is not sampled
costs a look at its parent. A stream's span has its stages' sums and no spans of its many parts. No
span has any input.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

from service.core.version import package_version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from service.core.call import Call, Times
    from service.core.settings import Settings

FIRST_ERROR = 500
STAGES = ("parse", "queue", "encode", "serialize")


def make_tracer(settings: Settings) -> Tracer | None:
    """What the setting `tracing` asks for; where spans go, the OTEL_ variables say.

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
    return Tracer(provider)


class Tracer:
    """Makes the spans of requests that have ended.

    Args:
        provider: has the sampler, and knows where spans go.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("warptok", package_version())
        self._extract = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER
        self._error = Status(StatusCode.ERROR)
        self._inside = set_span_in_context

    def record(self, call: Call, route: str, status: int) -> None:
        """One request that has ended just now."""
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
        if status >= FIRST_ERROR:
            span.set_status(self._error)
        inside = self._inside(span)
        for stage, begin, end in _stages(times, now):
            child = self._tracer.start_span(stage, inside, start_time=origin + int(begin * 1e9))
            child.end(origin + int(end * 1e9))
        span.end(origin + int(now * 1e9))

    def close(self) -> None:
        """Send what is left."""
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
    """Each stage of a request that is no stream, with the perf_counter times of both its ends.

    They are sums beside each other, of which two may count the same moment of a busy processor: no
    stage begins before the request or ends behind it.
    """
    if times.num_works != 1:
        return
    encoding = times.finished - times.encode_s
    queued = encoding - times.queue_s
    begin, end = queued - times.parse_s, times.finished + times.serialize_s
    ends = (begin, queued, encoding, times.finished, end)
    inside = [min(max(each, times.begin), now) for each in ends]
    yield from zip(STAGES, inside, inside[1:], strict=False)
