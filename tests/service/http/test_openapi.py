"""openapi.json: whole, and with the refusals that every path may answer."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading

import httpx
import pytest

from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.http.openapi import write_before_ready
from service.server.app import create_app
from service.server.uvicorn_server import Server
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run


@pytest.fixture(scope="module")
def document():
    return create_app(Settings(preload="none"), CpuEngine()).fastapi.openapi()


def test_every_reference_leads_somewhere(document):
    for reference in set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(document))):
        place = document
        assert reference.startswith("#/")
        for name in reference[2:].split("/"):
            place = place[name]


@pytest.mark.parametrize(
    ("method", "path", "media_type"),
    [
        ("post", "/v1/encode", "application/problem+json"),
        ("delete", "/v1/vocabularies/{name}", "application/problem+json"),
        ("post", "/tokenize", "application/json"),
        ("post", "/v2/models/{model}/infer", "application/json"),
        ("get", "/v1/models/{model}", "application/json"),
    ],
)
def test_refusals_are_described_in_the_shape_of_their_path(document, method, path, media_type):
    responses = document["paths"][path][method]["responses"]
    for status in ("401", "403", "404", "422"):
        assert media_type in responses[status]["content"], status
    assert ("429" in responses) == (method == "post")


def test_an_open_path_is_not_said_to_need_a_key(document):
    assert "401" not in document["paths"]["/livez"]["get"]["responses"]
    assert set(document["paths"]["/health"]["get"]["responses"]) == {"200", "503"}


def test_no_refusal_is_described_in_the_shape_of_the_framework(document):
    described = json.dumps(document["paths"])
    assert "HTTPValidationError" not in described


def test_pairs_in_answers_are_described_without_tuples(document):
    """schemathesis, and generators of clients, stop at prefixItems."""
    schemas = document["components"]["schemas"]
    assert schemas["ChunksResponse"]["properties"]["offsets"]["items"] == {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 2,
        "maxItems": 2,
    }
    answers = [schema for name, schema in schemas.items() if name.endswith("Response")]
    assert "prefixItems" not in json.dumps([*answers, schemas["Truncated"]])


def test_the_document_is_written_once_and_not_on_the_loop(monkeypatch):
    app = create_app(Settings(preload="none"), CpuEngine())
    threads = []
    describe = app.fastapi.openapi

    def note_thread():
        threads.append(threading.current_thread())
        return describe()

    monkeypatch.setattr(app.fastapi, "openapi", note_thread)

    async def read_several():
        transport = httpx.ASGITransport(app.fastapi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await asyncio.gather(*(client.get("/openapi.json") for _ in range(3)))

    answers = run(read_several)
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json() == json.loads(json.dumps(describe()))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_document_that_could_not_be_written_is_written_by_the_next_request(monkeypatch):
    app = create_app(Settings(preload="none"), CpuEngine())
    describe, failures = app.fastapi.openapi, [MemoryError()]

    def fail_once():
        if failures:
            raise failures.pop()
        return describe()

    monkeypatch.setattr(app.fastapi, "openapi", fail_once)

    async def read_twice():
        transport = httpx.ASGITransport(app.fastapi, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return [(await client.get("/openapi.json")).status_code for _ in range(2)]

    assert run(read_twice) == [500, 200]


def test_a_server_has_written_the_document_when_it_has_started(monkeypatch):
    settings = Settings(preload="none", grpc_port=0)
    app = create_app(settings, FakeEngine())
    describe, calls = app.fastapi.openapi, []
    monkeypatch.setattr(app.fastapi, "openapi", lambda: calls.append(1) or describe())

    async def scenario():
        server = Server(app.asgi, settings, app)
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        with socket.create_server(("127.0.0.1", 0)) as port:
            await server.startup([port])
            assert len(calls) == 1
            async with httpx.AsyncClient() as client:
                url = f"http://127.0.0.1:{port.getsockname()[1]}/openapi.json"
                assert (await client.get(url)).json()["info"]["title"] == "warptok"
            await server.shutdown([port])

    run(scenario)
    assert len(calls) == 1
    assert app.fastapi.openapi_schema is None  # Only the bytes are kept.


def test_a_document_that_cannot_be_written_does_not_stop_the_start(monkeypatch, caplog):
    app = create_app(Settings(preload="none"), FakeEngine())
    monkeypatch.setattr(app.fastapi, "openapi", lambda: 1 / 0)
    run(lambda: write_before_ready(app.fastapi))
    assert "This is a bug. openapi.json cannot be written" in caplog.text
