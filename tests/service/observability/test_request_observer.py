"""The records of every request through every API: id, stages, refusal, a log line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from time import perf_counter
from typing import Any

import grpc
import pytest

from service.apis.grpc.server import GrpcServer
from service.core.context_vars import REQUEST_ID
from service.core.settings import Settings
from service.http.streaming_response import BrokenStream
from service.observability.logging import JsonLines, TextLines, configure, fields
from service.protos import inference_pb2, warptok_pb2
from service.security.api_keys import add_key
from tests.service.apis.native.test_tokens import V
from tests.service.http.connection.test_protocol import answer, client_at, listening, request
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run, until

TEXT = "canary in the text"
STAGES = ("parse", "queue", "encode", "serialize")


@contextlib.asynccontextmanager
async def all_apis(**settings: Any):
    """A sender for each API: (text, vocabulary, id) -> HTTP's status, and the id back."""
    async with listening(FakeEngine(), **settings) as (app, port):
        server = GrpcServer(app.oip)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with (
            client_at(port) as client,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            await client.post(f"/v1/vocabularies/{V}/load")

            async def hot(text: str, vocabulary: str, name: str) -> tuple[int, str]:
                body = json.dumps({"vocabulary": vocabulary, "text": text}).encode()
                writer.write(request(body, "/v1/encode", f"X-Request-Id: {name}"))
                status, headers, _ = await answer(reader)
                return status, headers[b"x-request-id"].decode()

            def posted(path: str, body: Any, query: str = "", media_type: str = "") -> Any:
                async def post(text: str, vocabulary: str, name: str) -> tuple[int, str]:
                    headers = {"x-request-id": name}
                    if media_type:
                        headers["content-type"] = media_type
                    content = body(text, vocabulary)
                    if not isinstance(content, str):
                        content = json.dumps(content)
                    url = path.format(vocabulary) + query.format(vocabulary)
                    got = await client.post(url, content=content, headers=headers)
                    return got.status_code, got.headers["x-request-id"]

                return post

            async def call(path: str, message: Any, name: str) -> tuple[int, str]:
                method = channel.unary_unary(path, lambda each: each.SerializeToString())
                called = method(message, metadata=(("x-request-id", name),))
                try:
                    await called
                except grpc.aio.AioRpcError as error:
                    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
                    return 404, name if name.encode() in details else ""
                return 200, dict(await called.trailing_metadata())["x-request-id"]

            async def rpc(text: str, vocabulary: str, name: str) -> tuple[int, str]:
                message = warptok_pb2.EncodeRequest(vocabulary=vocabulary, text=text.encode())
                return await call("/warptok.v1.Tokenizer/Encode", message, name)

            async def rpc_oip(text: str, vocabulary: str, name: str) -> tuple[int, str]:
                message = inference_pb2.ModelInferRequest(model_name=vocabulary)
                message.inputs.add(name="text", datatype="BYTES", shape=[1])
                message.inputs[0].contents.bytes_contents.append(text.encode())
                return await call("/inference.GRPCInferenceService/ModelInfer", message, name)

            def oip(text: str, vocabulary: str) -> Any:
                data = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}
                return {"inputs": [data]}

            apis = {
                "hot protocol": hot,
                "hot routes": posted(
                    "/v1/encode", lambda t, v: {"text": t, "vocabulary": v}, "?", "application/json"
                ),
                "bulk text": posted("/v1/encode", lambda t, v: t, "?vocabulary={}", "text/plain"),
                "FASTA": posted("/v1/encode/fasta", lambda t, v: f">a\n{t}\n", "?vocabulary={}"),
                "dialect": posted("/tokenize", lambda t, v: {"model": v, "prompt": t}),
                "OIP": posted("/v2/models/{}/infer", oip),
                "gRPC": rpc,
                "OIP over gRPC": rpc_oip,
            }
            yield apis, app.service
        writer.close()
        await server.stop(0)


def counted(service: Any, name: str) -> dict[str, float]:
    """{labels: value} of one metric, but for zeros."""
    text = service.metrics.exposition()[0].decode()
    rows = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in rows if float(value)}


async def until_finished(service: Any, num_requests: int) -> None:
    """Wait until this many requests are counted, which happens after the client has its answer."""
    counts = service.metrics.counts
    await until(lambda: sum(counts()["warptok_requests_total"].values()) == num_requests)


def test_every_api_gives_the_request_its_id_and_counts_its_stages_once():
    async def scenario():
        async with all_apis() as (apis, service):
            for i, (api, send) in enumerate(apis.items(), start=1):
                before = counted(service, "warptok_stage_duration_seconds_count")
                assert await send(TEXT, V, f"mine-{i}") == (200, f"mine-{i}"), api
                await until_finished(service, 1 + i)
                after = counted(service, "warptok_stage_duration_seconds_count")
                for stage in STAGES:
                    label = f'stage="{stage}"'
                    once = after.get(label, 0) - before.get(label, 0)
                    # One text as the body needs no parsing.
                    assert once == (1 if (api, stage) != ("bulk text", "parse") else 0), (
                        api,
                        stage,
                    )

    run(scenario)


def test_every_api_counts_a_refusal_once_under_its_code():
    async def scenario():
        async with all_apis() as (apis, service):
            for i, (api, send) in enumerate(apis.items(), start=1):
                assert await send(TEXT, "nothing", f"mine-{i}") == (404, f"mine-{i}"), api
                await until_finished(service, 1 + i)
                rejected = counted(service, "warptok_requests_rejected_total")
                assert rejected == {'reason="unknown_vocabulary"': i}, api
            requests = counted(service, "warptok_requests_total")
            assert sum(n for labels, n in requests.items() if 'status="404"' in labels) == i

    run(scenario)


@pytest.mark.parametrize("given", [None, "", "two words", "a\tb", "x" * 129, "naïve"])
def test_an_id_that_could_forge_a_log_line_is_replaced(given):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            async with client_at(port) as client:
                headers = {} if given is None else {"x-request-id": given.encode()}
                ids = [(await client.get("/livez", headers=headers)).headers["x-request-id"]]
                ids.append((await client.get("/nothing", headers=headers)).headers["x-request-id"])
                assert all(re.fullmatch("[0-9a-f]{16}", each) for each in ids)
                assert ids[0] != ids[1]

    run(scenario)


def test_server_timing_says_how_long_the_stages_took():
    async def scenario():
        async with listening(FakeEngine(delay_s=0.03), server_timing=True) as (_, port):
            async with client_at(port) as client:
                for query in ("", "?"):  # The hot protocol's way, and the other one.
                    for _ in range(2):
                        body, begin = {"vocabulary": V, "text": TEXT}, perf_counter()
                        got = await client.post("/v1/encode" + query, json=body)
                    found = re.fullmatch(
                        r"parse;dur=(\S+), queue;dur=(\S+), encode;dur=(\S+)",
                        got.headers["server-timing"],
                    )
                    parse, queue, encode = map(float, found.groups())
                    assert 0 < parse and 0 <= queue and 30 <= encode  # Milliseconds.
                    assert parse + queue + encode <= 1000 * (perf_counter() - begin)

    run(scenario)


def test_no_api_logs_an_input_and_each_request_has_its_line(caplog):
    caplog.set_level(logging.INFO)

    async def scenario():
        async with all_apis(access_log=True) as (apis, service):
            for i, send in enumerate(apis.values()):
                await send(TEXT, V, f"good-{i}")
                await send(f"{TEXT} BOOM", V, f"bad-{i}")  # The engine fails on this word.
                await send(TEXT, TEXT.replace(" ", ""), f"unknown-{i}")
            await until_finished(service, 1 + 3 * len(apis))

    run(scenario)
    handler = JsonLines()
    own = [record for record in caplog.records if record.name.startswith("service")]
    lines = [json.loads(handler.format(record)) for record in own]
    assert "canary" not in json.dumps(lines)
    answered = {line["request_id"]: line for line in lines if line["message"] == "answered"}
    for i in range(8):
        assert answered[f"good-{i}"]["status"] == 200
        assert answered[f"bad-{i}"]["route"] == answered[f"good-{i}"]["route"]
        assert answered[f"unknown-{i}"]["refusal"] == "unknown_vocabulary"
        assert "vocabulary" not in answered[f"unknown-{i}"]
        assert answered[f"good-{i}"]["vocabulary"] == answered[f"bad-{i}"]["vocabulary"] == V
        assert answered[f"good-{i}"]["bytes"] >= len(TEXT)
        assert answered[f"good-{i}"]["address"] == "127.0.0.0/24"


@pytest.mark.parametrize("rule", ["none", "truncated", "whole"])
def test_lines_and_metrics_say_whose_request_it_was(tmp_path, caplog, rule):
    caplog.set_level(logging.INFO)
    path = tmp_path / "keys.json"
    secrets = {name: add_key(path, name, ("encode",)) for name in ("alice", "bob")}
    settings = {"api_keys_file": path, "trusted_proxies": "127.0.0.1", "client_addresses": rule}

    async def scenario():
        async with listening(FakeEngine(), access_log=True, **settings) as (app, port):
            server = GrpcServer(app.oip)
            await server.start("127.0.0.1", 0)
            body = {"vocabulary": V, "text": TEXT}
            async with (
                client_at(port) as client,
                grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
            ):
                for number, secret in enumerate(secrets.values(), start=1):
                    headers = {"x-api-key": secret, "x-forwarded-for": f"203.0.113.{number}"}
                    for path in ("/v1/encode", "/v1/encode", "/v1/encode?"):
                        got = await client.post(path, json=body, headers=headers)
                        assert got.status_code == 200
                    got = await client.post("/v1/decode", json={}, headers=headers)
                    assert got.status_code == 403
                    method = channel.unary_unary(
                        "/warptok.v1.Tokenizer/Encode", lambda each: each.SerializeToString()
                    )
                    message = warptok_pb2.EncodeRequest(vocabulary=V, text=TEXT.encode())
                    await method(message, metadata=tuple(headers.items()))
            await until_finished(app.service, 10)
            await server.stop(0)
            for name in secrets:
                found = counted(app.service, "warptok_key_requests_total")
                assert found[f'key="{name}",status="200"'] == 4
            found = counted(app.service, "warptok_vocabulary_request_duration_seconds_count")
            assert found == {f'vocabulary="{V}"': 8}

    run(scenario)
    lines = [each.fields for each in caplog.records if each.message == "answered"]
    for number, name in enumerate(secrets, start=1):
        own = [line for line in lines if line.get("key") == name]
        assert len(own) == 4
        whole, truncated = f"203.0.113.{number}", "203.0.113.0/24"
        shown = {"none": None, "truncated": truncated, "whole": whole}[rule]
        assert {line.get("address") for line in own} == {shown}
    refused = [line for line in lines if line["status"] == 403]
    assert len(refused) == 2 and "key" not in refused[0]


def test_a_log_line_is_one_line_with_its_fields_in_both_formats():
    record = logging.LogRecord("x", logging.INFO, "", 0, "said %d\nthings", (2,), None)
    record.fields = fields(route="/a", status=200)["fields"]
    token = REQUEST_ID.set("mine")
    try:
        line, text = json.loads(JsonLines().format(record)), TextLines().format(record)
    finally:
        REQUEST_ID.reset(token)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "x",
        "message": "said 2\nthings",
        "request_id": "mine",
        "route": "/a",
        "status": 200,
    }
    assert "\n" not in JsonLines().format(record)
    assert text.endswith("INFO x: said 2\nthings request_id=mine route=/a status=200")


def test_an_error_of_ours_stands_in_the_log_under_the_requests_id(caplog, monkeypatch):
    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            monkeypatch.setattr(app.service.registry, "find", lambda name: 1 / 0)
            async with client_at(port) as client:
                body = {"vocabulary": "nothing", "text": "x"}
                headers = {"x-request-id": "mine"}
                got = await client.post("/v1/encode", json=body, headers=headers)
                assert got.status_code == 500
                assert "the log under mine" in got.json()["detail"]

    run(scenario)
    assert "Request mine failed" in caplog.text


def test_an_answer_that_was_cut_off_is_logged_once(monkeypatch):
    """uvicorn would write a traceback too, though the stream's own line has the reason."""
    server = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(server, "filters", [])
    monkeypatch.setattr(server, "level", server.level)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    configure(Settings())
    records = []
    for error in (BrokenStream("deadline_passed"), ValueError()):
        made = (type(error), error, None)
        record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "x", None, made)
        records.append(bool(server.filter(record)))
    assert records == [False, True]


def test_a_process_without_stderr_writes_no_log(monkeypatch):
    server, handlers = logging.getLogger("uvicorn.error"), []
    monkeypatch.setattr(server, "filters", [])
    monkeypatch.setattr(server, "level", server.level)
    monkeypatch.setattr(
        logging, "basicConfig", lambda **values: handlers.extend(values["handlers"])
    )
    monkeypatch.setattr("sys.stderr", None)
    configure(Settings())
    assert [type(each) for each in handlers] == [logging.NullHandler]
