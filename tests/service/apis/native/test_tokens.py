"""The native calls through the application, with the fake engine: both entries, every refusal."""

from __future__ import annotations

import asyncio
import json
import threading

import orjson
import pytest

from service.apis.bulk import text as bulk_text
from service.batching.runner import run_works
from service.batching.work import EncodeWork
from service.core.call import Times
from service.engines.cpu.engine import CpuEngine
from service.http import asgi_fast_path
from service.http.asgi_fast_path import FAST_PATH_CALLS
from service.operations import decode, operation, schemas, windows
from service.operations import encode as encode_answers
from service.operations.rendering import json_stream
from service.registry.entries import LoadedVocabulary
from tests.support.app_client import serving
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run, until
from vocabularies import builtin
from vocabularies.batch.batch import EncodeOptions

V = "evo_bytes"
MODELS = {
    "/v1/encode": (schemas.EncodeRequest, schemas.EncodeResponse),
    "/v1/encode/batch": (schemas.EncodeBatchRequest, schemas.EncodeBatchResponse),
    "/v1/count": (schemas.CountRequest, schemas.CountResponse),
    "/v1/decode": (schemas.DecodeRequest, schemas.DecodeResponse),
    "/v1/decode/batch": (schemas.DecodeBatchRequest, schemas.DecodeBatchResponse),
    "/v1/windows": (schemas.WindowsRequest, schemas.WindowsResponse),
    "/v1/chunks": (schemas.ChunksRequest, schemas.ChunksResponse),
}
GOOD = [
    ("/v1/encode", {"vocabulary": V, "text": "hé"}),
    ("/v1/encode", {"vocabulary": V, "text": ""}),
    ("/v1/encode", {"vocabulary": V, "text": "hé🙂", "return_offsets": "utf16"}),
    ("/v1/encode", {"vocabulary": V, "text": "ab", "return_tokens": True, "dtype": "uint16"}),
    ("/v1/encode/batch", {"vocabulary": V, "texts": []}),
    ("/v1/encode/batch", {"vocabulary": V, "texts": ["a", "", "REFUSE", "ccc"]}),
    ("/v1/encode/batch", {"vocabulary": V, "texts": ["a", "bcd"], "padding": "longest"}),
    ("/v1/encode/batch", {"vocabulary": V, "texts": ["a"], "padding": 3, "padding_side": "left"}),
    ("/v1/encode/batch", {"vocabulary": V, "texts": ["a", "é"], "return_offsets": "codepoints"}),
    (
        "/v1/encode/batch",
        {
            "vocabulary": V,
            "texts": ["a", "b"],
            "special": ["match", "plain"],
            "return_offsets": [None, "bytes"],
            "return_tokens": [True, False],
        },
    ),
    ("/v1/count", {"vocabulary": V, "texts": ["a", "bcd", "REFUSE"]}),
    ("/v1/decode", {"vocabulary": V, "ids": [65, 195], "as_base64": True}),
    ("/v1/decode/batch", {"vocabulary": V, "ids": [[65], [], [999]]}),
]
BAD = [
    ("/v1/encode", b"{", 400, "bad_json"),
    ("/v1/encode", b'{"vocabulary": "x", "text": "\xff"}', 400, "bad_json"),
    ("/v1/encode", {"vocabulary": V}, 422, "invalid_request"),
    ("/v1/encode", {"vocabulary": V, "text": 5}, 422, "invalid_request"),
    ("/v1/encode", {"vocabulary": V, "text": "a", "txt": 1}, 422, "invalid_request"),
    ("/v1/encode", {"vocabulary": V, "text": "a", "max_length": "5"}, 422, "invalid_request"),
    ("/v1/encode", {"vocabulary": V, "text": "a", "max_length": -1}, 422, "invalid_request"),
    ("/v1/encode", {"vocabulary": V, "text": "a", "max_length": 2**63}, 422, "invalid_request"),
    ("/v1/encode", {"vocabulary": V, "text": "a", "dtype": "uint8"}, 422, "invalid_request"),
    ("/v1/encode", {"vocabulary": V, "text": "REFUSE"}, 422, "refused"),
    ("/v1/encode", {"vocabulary": V, "text": "BOOM"}, 500, "engine_failed"),
    ("/v1/encode", {"vocabulary": "evo_byte", "text": "a"}, 404, "unknown_vocabulary"),
    ("/v1/encode", {"vocabulary": V, "text": "a", "if_digest": "x"}, 412, "digest_differs"),
    ("/v1/encode", {"vocabulary": V, "text": "a" * 2000}, 413, "too_large"),
    ("/v1/encode", {"vocabulary": V, "text": "a" * 9000}, 413, "too_large"),
    ("/v1/encode/batch", {"vocabulary": V, "texts": ["a"] * 6}, 413, "too_large"),
    ("/v1/encode/batch", {"vocabulary": V, "texts": ["a", "é" * 501]}, 413, "too_large"),
    ("/v1/encode/batch", {"vocabulary": V, "texts": ["a"], "padding": 101}, 413, "too_large"),
    (
        "/v1/encode/batch",
        {"vocabulary": V, "texts": ["a", "b"], "circular": [True]},
        422,
        "invalid_request",
    ),
    (
        "/v1/encode/batch",
        {"vocabulary": "gpt2", "texts": ["a"], "padding": "longest"},
        422,
        "invalid_request",
    ),
    (
        "/v1/encode/batch",
        {"vocabulary": V, "texts": ["a"], "padding": 2, "pad_id": 512},
        422,
        "invalid_request",
    ),
    ("/v1/decode", {"vocabulary": V, "ids": [65, 2**70]}, 422, "id_out_of_range"),
    ("/v1/decode", {"vocabulary": V, "ids": [65, 1.5]}, 422, "invalid_request"),
    ("/v1/decode", {"vocabulary": V, "ids": [600]}, 422, "id_out_of_range"),
    ("/v1/windows", {"vocabulary": V, "sequence": "ACGT", "window": 0}, 422, "invalid_request"),
    (
        "/v1/windows",
        {"vocabulary": "mtdna6", "sequence": "ACGT", "channel": [0.5]},
        422,
        "invalid_request",
    ),
]
BAD += [
    ("/v1/encode?max_length=3", {"vocabulary": V, "text": "a"}, 422, "invalid_request"),
    ("/v1/count?x", {"vocabulary": V, "texts": ["a"]}, 422, "invalid_request"),
    ("/v1/windows?stride=3", {"vocabulary": V, "sequence": "ACGT"}, 422, "invalid_request"),
]
LIMITS = {"max_body_bytes": 8000, "max_text_bytes": 1000, "max_texts": 5, "max_padded_ids": 100}


@pytest.mark.parametrize(("path", "body"), GOOD)
def test_a_good_request_is_answered_in_the_documented_shape(path, body):
    async def scenario():
        async with serving(FakeEngine(), **LIMITS) as (client, _):
            response = await client.post(path, json=body)
            assert response.status_code == 200, response.text
            answer = response.json()
            response_model = MODELS[path][1]
            response_model.model_validate(answer)
            assert set(answer) <= set(response_model.model_fields)

    run(scenario)


@pytest.mark.parametrize(("path", "body", "status", "code"), BAD)
def test_a_bad_request_is_refused_with_its_code_and_the_next_one_answered(path, body, status, code):
    async def scenario():
        async with serving(FakeEngine(), **LIMITS) as (client, service):
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"content-type": "application/json"}
            response = await client.post(path, content=content, headers=headers)
            assert (response.status_code, response.json()["code"]) == (status, code), response.text
            assert response.headers["content-type"] == "application/problem+json"
            assert (await client.post("/v1/encode", json=GOOD[0][1])).status_code == 200
            assert service.batcher.queue_bytes == 0

    run(scenario)


def test_answers_to_large_bodies_are_the_same_and_written_by_other_threads(monkeypatch):
    seen: list[bool] = []

    def watched(function):
        def call(*arguments, **named):
            seen.append(threading.current_thread() is threading.main_thread())
            return function(*arguments, **named)

        return call

    class Watched:
        def __getattr__(self, name):
            value = getattr(orjson, name)
            return watched(value) if callable(value) else value

    for module in (json_stream, encode_answers, decode, windows):
        monkeypatch.setattr(module, "orjson", Watched())

    async def scenario():
        async with serving(FakeEngine(), **LIMITS) as (client, _):
            plain = ("/v1/encode?vocabulary=evo_bytes&return_offsets=bytes", "héllo")
            for path, body in [*GOOD, plain]:
                is_text = isinstance(body, str)
                content = body.encode() if is_text else json.dumps(body).encode()
                headers = {"content-type": "text/plain" if is_text else "application/json"}
                answers = []
                for large_bytes in (1 << 17, 0):
                    for module in (operation, asgi_fast_path, bulk_text):
                        monkeypatch.setattr(module, "LARGE_BYTES", large_bytes)
                    seen.clear()
                    answers.append(await client.post(path, content=content, headers=headers))
                    assert set(seen) <= {large_bytes > 0}
                assert answers[0].status_code == 200, path
                assert answers[0].content == answers[1].content
                assert seen, path

    run(scenario)


def test_every_call_of_the_fast_path_is_in_openapi_and_its_examples_validate():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            paths = (await client.get("/openapi.json")).json()["paths"]
            for path, (request_model, _) in MODELS.items():
                declared = paths[path]["post"]["requestBody"]["content"]["application/json"]
                assert declared["schema"]["title"] == request_model.__name__
                for example in declared["schema"]["examples"]:
                    request_model.model_validate(example)
                    assert (await client.post(path, json=example)).status_code == 200, example
            assert set(FAST_PATH_CALLS) == set(MODELS)

    run(scenario)


def test_every_call_documents_its_refusals_as_problems():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            paths = (await client.get("/openapi.json")).json()["paths"]
            for path in (*MODELS, "/v1/vocabularies/{name}"):
                for declared in paths[path].values():
                    refused = {s: r for s, r in declared["responses"].items() if s[0] == "4"}
                    assert {"404", "422"} <= set(refused), path
                    assert all("application/problem+json" in r["content"] for r in refused.values())

    run(scenario)


def test_a_row_of_a_batch_that_is_refused_leaves_the_others_answered():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            body = {"vocabulary": V, "texts": ["a", "REFUSE", "BOOM", "b"], "padding": "longest"}
            answer = (await client.post("/v1/encode/batch", json=body)).json()
            assert answer["ids"] == [[97], [1], [1], [98]]
            assert answer["attention_mask"] == [[1], [0], [0], [1]]
            assert answer["num_tokens"] == [1, 0, 0, 1]
            assert [(e["row"], e["code"]) for e in answer["errors"]] == [
                (1, "refused"),
                (2, "engine_failed"),
            ]

    run(scenario)


@pytest.mark.parametrize("value", ["0", "x", "-5", "1.5", "9" * 400, "9" * 5000])
def test_a_wrong_deadline_header_is_refused(value):
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            headers = {"X-Request-Timeout-Ms": value}
            response = await client.post("/v1/encode", json=GOOD[0][1], headers=headers)
            assert (response.status_code, response.json()["where"]) == (422, "X-Request-Timeout-Ms")

    run(scenario)


def test_a_deadline_of_the_client_is_kept_and_a_full_queue_says_429():
    async def scenario():
        engine = FakeEngine()
        settings = {"inline_batch_bytes": 0, "max_queue_bytes": 1024}
        async with serving(engine, **settings) as (client, service):
            await client.post("/v1/encode", json=GOOD[0][1])
            engine.gate.clear()
            body = {"vocabulary": V, "text": "x" * 200}
            waiting = [
                asyncio.ensure_future(client.post("/v1/encode", json=body)) for _ in range(2)
            ]
            await until(lambda: service.batcher.queue_rows == 2)
            headers = {"X-Request-Timeout-Ms": "50"}
            late = await client.post("/v1/encode", json=body, headers=headers)
            assert (late.status_code, late.json()["code"]) == (504, "deadline_passed")
            body["text"] = "x" * 800
            full = await client.post("/v1/encode", json=body)
            assert (full.status_code, full.json()["code"]) == (429, "queue_full")
            assert int(full.headers["retry-after"]) >= 1
            assert (await client.get("/livez")).status_code == 200
            engine.gate.set()
            assert [r.status_code for r in await asyncio.gather(*waiting)] == [200, 200]
            await until(lambda: not service.batcher.queue_bytes)  # The late one's batch, too.

    run(scenario)


INPUTS = [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["x"]}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"model": V, "prompt": "x"}),
        ("/v1/responses/input_tokens", {"model": V, "input": "x"}),
        (f"/v2/models/{V}/infer", {"inputs": INPUTS}),
        (f"/v2/models/{V}/infer", {"inputs": INPUTS, "parameters": {"timeout": 0}}),
    ],
)
def test_a_clients_deadline_holds_on_other_systems_routes(path, body):
    async def scenario():
        engine = FakeEngine()
        async with serving(engine, inline_batch_bytes=0) as (client, _):
            running = asyncio.ensure_future(client.post("/v1/encode", json=GOOD[0][1]))
            engine.gate.clear()
            await until(lambda: engine.batches)
            headers = {"X-Request-Timeout-Ms": "50"}
            late = await client.post(path, json=body, headers=headers)
            assert late.status_code == 504, late.text
            engine.gate.set()
            assert (await running).status_code == 200
            wrong = await client.post(path, json=body, headers={"X-Request-Timeout-Ms": "x"})
            assert wrong.status_code in (400, 422)
            assert "X-Request-Timeout-Ms" in wrong.text

    run(scenario)


def test_a_large_answer_comes_in_pieces_and_whole():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            text = "ACGT" * 100_000
            response = await client.post("/v1/encode", json={"vocabulary": V, "text": text})
            assert bytes(response.json()["ids"]) == text.encode()
            assert "content-length" not in response.headers

    run(scenario)


@pytest.mark.parametrize("max_ids", [0, 2, 8_192])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/encode", {"text": "h\u00e9"}),
        ("/v1/encode", {"text": ""}),
        ("/v1/encode/batch", {"texts": []}),
        ("/v1/encode/batch", {"texts": ["a", "", "ccc"]}),
        ("/v1/encode/batch", {"texts": ["a", "REFUSE", "ccc"]}),
    ],
)
def test_who_asks_for_nothing_gets_what_all_get(monkeypatch, path, body, max_ids):
    """Plain answers are written in one call where they are short, and as others where not."""
    monkeypatch.setattr(encode_answers, "MAX_IDS", max_ids)

    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            plain = await client.post(path, json={"vocabulary": V, **body})
            said = {"vocabulary": V, **body, "add_special_tokens": True}
            assert plain.status_code == 200
            assert plain.content == (await client.post(path, json=said)).content

    run(scenario)


def test_a_neighbour_that_is_cut_does_not_change_a_plain_answer():
    engine, vocabulary = CpuEngine(), builtin.load(V)
    entry = LoadedVocabulary(V, vocabulary, engine.load(vocabulary))
    request = schemas.EncodeBatchRequest(vocabulary=V, texts=["abc", "d"])
    plain = EncodeWork(vocabulary, request.texts)
    cut = EncodeWork(vocabulary, ["abc"], EncodeOptions(max_length=2))
    alone = run_works(engine, [plain]).results[0]
    beside = run_works(engine, [plain, cut]).results[0]
    assert encode_answers.is_short(request, alone)
    assert not encode_answers.is_short(request, beside)
    answers = [
        encode_answers._render_texts(None, Times(), entry, request, 0, result)
        for result in (alone, beside)
    ]
    assert b"".join(answers[0]) == b"".join(answers[1])


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/html"},
        {"content-type": "application/json", "content-encoding": "br"},
    ],
)
def test_a_body_that_is_not_read_is_refused_with_what_to_send(headers):
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            response = await client.post("/v1/encode", content=b"{}", headers=headers)
            assert (response.status_code, response.json()["code"]) == (415, "unsupported_format")

    run(scenario)


def test_fastapis_own_refusals_have_our_shape():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            for method, path, status in [
                ("GET", "/nowhere", 404),
                ("GET", "/v1/encode", 405),
                ("PUT", "/v1/vocabularies/x?id_offset=-1", 422),
            ]:
                response = await client.request(method, path)
                assert response.status_code == status
                assert response.headers["content-type"] == "application/problem+json"
                assert {"type", "title", "status", "detail", "code", "where"} <= set(
                    response.json()
                )

    run(scenario)
