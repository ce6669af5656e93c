"""Every API makes spans in the client's trace, with stages; none if tracing is off."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.apis.grpc.server import GrpcServer
from service.core.call import Call, Times
from service.core.settings import Settings
from service.observability.tracing import Tracer, make_tracer
from service.protos import warptok_pb2
from tests.service.apis.native.test_tokens import V
from tests.service.http.connection.test_protocol import (
    answer,
    client_at,
    listening,
    request,
    text_body,
)
from tests.support.data_files import ROOT
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run, until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STAGES = ["parse", "queue", "encode", "serialize"]


def traceparent(sampled: str = "01") -> str:
    return f"00-{TRACE}-{PARENT}-{sampled}"


def traced(service: Any) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    service.observer.tracer = Tracer(provider, "truncated")
    return exporter


async def take(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """Those of one request, whose own is the last; its answer may be there before."""
    await until(lambda: any(each.name[0] == "/" for each in exporter.get_finished_spans()))
    spans = list(exporter.get_finished_spans())
    exporter.clear()
    return spans


def check(spans: list[ReadableSpan], route: str) -> ReadableSpan:
    """One request's span in the client's trace with its stages inside, one after another."""
    *stages, whole = spans
    assert whole.name == route
    assert f"{whole.context.trace_id:032x}" == TRACE
    assert f"{whole.parent.span_id:016x}" == PARENT
    assert [each.name for each in stages] == STAGES
    times = [t for each in stages for t in (each.start_time, each.end_time)]
    assert times == sorted(times)
    assert whole.start_time <= times[0] and times[-1] <= whole.end_time
    assert all(each.parent.span_id == whole.context.span_id for each in stages)
    return whole


def test_every_way_in_continues_the_clients_trace():
    async def scenario():
        async with listening(FakeEngine(delay_s=0.01)) as (app, port):
            exporter = traced(app.service)
            headers = {"traceparent": traceparent(), "tracestate": "a=b", "x-request-id": "mine"}
            async with client_at(port) as client:
                body = {"vocabulary": V, "text": "x"}
                for path in ("/v1/encode", "/v1/encode?"):
                    await client.post(path, json=body, headers=headers)
                    whole = check(await take(exporter), "/v1/encode")
                    assert whole.attributes["http.response.status_code"] == 200
                    assert whole.attributes["warptok.request_id"] == "mine"
                    assert whole.attributes["warptok.vocabulary"] == V
                    assert whole.attributes["client.address"] == "127.0.0.0/24"
                    assert whole.context.trace_state.get("a") == "b"
                refused = {"vocabulary": "nothing", "text": "x"}
                await client.post("/v1/encode", json=refused, headers=headers)
                (whole,) = await take(exporter)
                assert whole.attributes["error.type"] == "unknown_vocabulary"
                assert whole.status.is_unset
                fasta = "".join(f">{i}\nACGT\n" for i in range(20_000))
                query = f"/v1/encode/fasta?vocabulary={V}"
                await client.post(query, content=fasta, headers=headers)
                (whole,) = await take(exporter)
                assert whole.attributes["warptok.num_parts"] == 2
                assert whole.attributes["warptok.encode_s"] >= 0.02
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):  # The second head is one that was sent before.
                writer.write(request(text_body("x"), "/v1/encode", f"traceparent: {traceparent()}"))
                await answer(reader)
                check(await take(exporter), "/v1/encode")
            writer.close()
            server = GrpcServer(app.oip)
            await server.start("127.0.0.1", 0)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                path = "/warptok.v1.Tokenizer/Encode"
                method = channel.unary_unary(path, lambda each: each.SerializeToString())
                message = warptok_pb2.EncodeRequest(vocabulary=V, text=b"x")
                await method(message, metadata=(("traceparent", traceparent()),))
                check(await take(exporter), path)
            await server.stop(0)

    run(scenario)


@pytest.mark.parametrize(
    "times",
    [
        Times(begin=10, finished=10.5, num_works=1, parse_s=0.2, queue_s=0.2, encode_s=0.2),
        Times(begin=10, finished=10.5, num_works=1, encode_s=0.1, serialize_s=1e9),
    ],
)
def test_stages_whose_sums_overlap_lie_inside_of_their_request(times):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace = {"traceparent": traceparent()}
    Tracer(provider, "truncated").record(Call(trace=trace, times=times), "/v1/encode", 200)
    check(list(exporter.get_finished_spans()), "/v1/encode")


@pytest.mark.parametrize(
    ("given", "num_spans"), [(traceparent("00"), 0), (traceparent(), 5), ("nonsense", 5), (None, 5)]
)
def test_what_is_not_sampled_has_no_spans_and_what_is_no_trace_begins_one(given, num_spans):
    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            exporter = traced(app.service)
            headers = {} if given is None else {"traceparent": given}
            async with client_at(port) as client:
                body = {"vocabulary": V, "text": "x"}
                await client.post("/v1/encode", json=body, headers=headers)
            await until(lambda: app.service.metrics.counts()["warptok_requests_total"])
            spans = exporter.get_finished_spans()
            assert len(spans) == num_spans
            if num_spans and given != traceparent():
                assert spans[-1].parent is None

    run(scenario)


def test_spans_arrive_at_the_collector_that_the_environment_names(monkeypatch):
    received: list[bytes] = []

    def export(data: bytes, context: grpc.ServicerContext) -> bytes:
        received.append(data)
        return b""

    server = grpc.server(ThreadPoolExecutor(1))
    name = "opentelemetry.proto.collector.trace.v1.TraceService"
    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    try:
        tracer = make_tracer(Settings(tracing=True))
        tracer.record(Call(request_id=b"1"), "/v1/encode", 500)
        tracer.close()
    finally:
        server.stop(0)
    (sent,) = map(trace_service_pb2.ExportTraceServiceRequest.FromString, received)
    (resource,) = sent.resource_spans
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert named["service.name"] == "mine"
    (span,) = resource.scope_spans[0].spans
    assert (span.name, span.status.code) == ("/v1/encode", 2)


def test_without_the_extra_the_service_runs_and_tracing_says_what_is_missing():
    program = """
import sys
sys.modules["opentelemetry.sdk"] = sys.modules["opentelemetry.exporter"] = None
from service.server.app import create_app
from service.core.settings import Settings
from service.core.call import Times
from tests.support.fake_engine import FakeEngine
assert create_app(Settings(), FakeEngine()).service.observer.tracer is None
try:
    create_app(Settings(tracing=True), FakeEngine())
except ValueError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pip install 'warptok[tracing]'" in done.stdout
