"""Faults that attacks on the APIs found: bypassed keys, endless loops, wasted memory."""

from __future__ import annotations

import asyncio
import json
import logging
import time

import numpy as np
import pyarrow as pa
import pytest

from service.apis.bulk import text_chunks
from service.apis.bulk.arrow_writer import END
from service.apis.bulk.fasta import _Records
from service.engines.cpu.engine import CpuEngine
from service.security import api_keys
from service.server.app import ROUTES
from tests.support.app_client import serving
from tests.support.waiting import run, until
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

ENGINE = CpuEngine()
OCTETS = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}
CHAT = [{"role": "user", "content": "Hello"}]


async def upload(client, **config):
    (document,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
    content = json.dumps(config).encode()
    files = {"a": ("tokenizer.json", document), "b": ("tokenizer_config.json", content)}
    return await client.put("/v1/vocabularies/mine?replace=true", files=files)


@pytest.mark.parametrize("character", ["%0A", "%0D", "%00", "%7F"])
def test_a_control_character_passes_no_key_by(character, tmp_path):
    path = tmp_path / "keys.json"
    headers = {"x-api-key": api_keys.add_key(path, "me", ("encode",))}

    async def scenario():
        async with serving(ENGINE, api_keys_file=path, shared_memory=True) as (client, _):
            for routes in ROUTES:
                for route in routes.router.routes:
                    place = route.path_format.replace("{", "").replace("}", "")
                    for url in (place + character, place.replace("/", f"/{character}", 1)):
                        for method in route.methods:
                            answer = await client.request(method, url, headers=headers)
                            # What looks like a route of OpenAI's is refused as theirs are.
                            refused = 400 if url.startswith("/v1/models/") else 422
                            assert answer.status_code == refused, (method, url)

    run(scenario)


def test_a_text_that_can_be_cut_nowhere_is_encoded_whole(monkeypatch):
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 1024)
    text = "[" * 10_000 + "A"

    async def scenario():
        async with serving(ENGINE) as (client, _):
            url = "/v1/encode?vocabulary=hyenadna"
            begin = time.process_time()
            answer = await client.post(url, content=text.encode(), headers=OCTETS)
            expected = ENGINE.encode(load("hyenadna"), Batch([text])).ids
            assert np.frombuffer(answer.content, np.int32).tolist() == expected.tolist()
            assert time.process_time() - begin < 10

    run(scenario)


def test_windows_that_overlap_too_much_are_refused_before_they_are_made():
    async def scenario():
        async with serving(ENGINE, max_window_ids=100_000) as (client, _):
            content = b">a\n" + b"ACGT" * 1000 + b"\n"
            url = "/v1/encode/fasta?vocabulary=hyenadna&window=1000000&stride=1"
            answer = await client.post(url, content=content)
            assert (answer.status_code, answer.json()["where"]) == (413, "/stride")

    run(scenario)


SHAPES = [[10**12], [2**62], [10**30], [2**31, 2**33], [100_000_000, 0], [9] * 100_000]


@pytest.mark.parametrize("shape", SHAPES, ids=[str(shape[:2]) for shape in SHAPES])
@pytest.mark.parametrize("datatype", ["BYTES", "INT32"])
@pytest.mark.slow
def test_a_shape_that_is_only_claimed_takes_no_memory(shape, datatype):
    ENGINE.load(load("gpt2"))  # Which is not timed.

    async def scenario():
        async with serving(ENGINE) as (client, _):
            name, model = ("text", "gpt2") if datatype == "BYTES" else ("input_ids", "gpt2.decode")
            tensor = {"name": name, "datatype": datatype, "shape": shape, "data": []}
            begin = time.process_time()
            answer = await client.post(f"/v2/models/{model}/infer", json={"inputs": [tensor]})
            is_empty = 0 in shape and datatype == "BYTES"
            assert answer.status_code in ((200,) if is_empty else (413, 422))
            assert time.process_time() - begin < 4

    run(scenario)


@pytest.mark.parametrize("timeout", ["abc", [1], -5, 1.5, 10**30])
def test_a_timeout_that_is_none_is_refused(timeout):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["x"]}
            body = {"inputs": [tensor], "parameters": {"timeout": timeout}}
            assert (await client.post("/v2/models/gpt2/infer", json=body)).status_code == 422

    run(scenario)


def test_an_output_cannot_be_requested_twice():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["x"]}
            body = {"inputs": [tensor], "outputs": [{"name": "input_ids"}] * 2}
            answer = await client.post("/v2/models/gpt2/infer", json=body)
            assert "twice" in answer.json()["error"]

    run(scenario)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/decode", {"vocabulary": "gpt2", "ids": [""] * 200_000}),
        ("/v1/encode/batch", {"vocabulary": "gpt2", "texts": [1] * 200_000}),
        ("/detokenize", {"tokens": [""] * 200_000}),
        ("/tokenize", {"prompt": [1] * 200_000}),
    ],
)
def test_a_long_list_of_what_is_wrong_is_refused_for_the_first_of_it(path, body):
    content = json.dumps(body).encode()

    async def scenario():
        async with serving(ENGINE) as (client, _):
            begin = time.process_time()
            answer = await client.post(
                path, content=content, headers={"content-type": "application/json"}
            )
            assert answer.status_code in (400, 422)
            assert time.process_time() - begin < 4

    run(scenario)


def test_records_that_end_where_a_read_ends_are_records():
    record = b">aa\n" + b"A" * (2**18 - 5) + b"\n"

    class Body:
        rest = record * 6

        def read(self, size):
            data, self.rest = self.rest[:size], self.rest[size:]
            return memoryview(data)

    records, names = _Records(Body(), 300_000, None, was_packed=False, uppercase=False), []
    while (found := records.next_batch()) is not None:
        names += found.metadata.names
    assert names == ["aa"] * 6


def test_nothing_of_a_stream_that_breaks_is_in_the_log(caplog):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            good = b"".join(b"@r%d\nACGT\n+\nIIII\n" % i for i in range(200_000))
            content = good + b"@SECRETNAME\nACGT\n+OTHERSECRET\nIIII\n"
            with caplog.at_level(logging.DEBUG, "service"):
                answer = await client.post("/v1/encode/fasta?vocabulary=gpn", content=content)
            assert answer.status_code == 200
            rows = pa.ipc.open_stream(answer.content).read_all()
            assert rows.num_rows < 200_000
            assert rows.column("error").to_pylist()[-1].startswith("bad_body: ")
            assert answer.content.endswith(END)
        assert "ended with an error: bad_body at record 200001" in caplog.text
        assert "SECRET" not in caplog.text
        assert "bug" not in caplog.text

    run(scenario)


def test_a_stream_whose_client_sleeps_is_ended():
    async def scenario():
        async with serving(ENGINE, stream_idle_timeout_s=0.2) as (client, service):

            async def slow():
                yield b">a\nACGT\n"
                await asyncio.Event().wait()  # For ever.
                yield b">b\nACGT\n"

            answer = await client.post("/v1/encode/fasta?vocabulary=gpn", content=slow())
            assert (answer.status_code, answer.json()["code"]) == (408, "body_timeout")
            assert service.streams.num_streams == 0

    run(scenario)


def test_a_config_may_hold_numbers_beyond_64_bits_and_no_half_characters():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            assert (await upload(client, model_max_length=10**30)).status_code == 201
            answer = await client.get("/tokenizer_info?model=mine")
            assert answer.json()["model_max_length"] == 10**30
            answer = await upload(client, bos_token="\ud800")
            assert (answer.status_code, answer.json()["code"]) == (422, "vocabulary_invalid")

    run(scenario)


@pytest.mark.parametrize("template", ['{{ "\\ud800" }}', '{{ raise_exception("\\ud800") }}'])
def test_half_characters_of_a_template_are_no_fault_of_ours(template):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, chat_template=template)
            answer = await client.post("/tokenize", json={"model": "mine", "messages": CHAT})
            assert answer.status_code in (200, 400)

    run(scenario)


@pytest.mark.parametrize("model", [5, {"a": 1}])
def test_a_model_that_is_no_name_is_refused(model):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = {"model": model, "input": "x"}
            answer = await client.post("/v1/responses/input_tokens", json=body)
            assert answer.status_code == 400

    run(scenario)


def test_a_slow_template_does_not_hold_other_chats_beyond_their_deadline():
    async def scenario():
        async with serving(ENGINE, chat_template_timeout_ms=60_000) as (client, _):
            loops = "{% for i in range(99999) %}" * 2 + "{% endfor %}" * 2
            await upload(client, chat_template=loops)
            headers = {"x-request-timeout-ms": "500"}
            body = {"model": "mine", "messages": CHAT}
            answers = await asyncio.gather(
                *(client.post("/tokenize", json=body, headers=headers) for _ in range(8))
            )
            # Whoever waits for the template's end is told 400, a minute later.
            assert [answer.status_code for answer in answers] == [504] * 8

    run(scenario)


@pytest.mark.parametrize(
    "path",
    ["/tokenize", "/v1/completions/render", "/v2/repository/index", "/v1/vocabularies/gpt2/verify"],
)
def test_a_client_that_leaves_in_its_body_is_no_bug_of_ours(path, caplog):
    async def scenario():
        async with serving(ENGINE) as (client, service):
            app = client._transport.app
            messages = iter(
                [{"type": "http.request", "body": b"{", "more_body": True}]
                + [{"type": "http.disconnect"}] * 5
            )

            async def receive():
                return next(messages)

            async def send(message):
                pass

            scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
            scope |= {"query_string": b"", "headers": [], "http_version": "1.1", "scheme": "http"}
            scope |= {"server": ("test", 80), "client": ("test", 1), "root_path": ""}
            await app(scope, receive, send)
            assert "cancelled_total 1" in service.metrics.exposition()[0].decode()

    run(scenario)
    assert "bug" not in caplog.text


def test_a_stream_that_was_accepted_is_finished_while_the_service_stops():
    async def scenario():
        async with serving(ENGINE) as (client, service):
            stopping = None

            async def records():
                nonlocal stopping
                yield b">first\nACGT\n" + b">long\n" + b"ACGT" * 2_000_000 + b"\n"
                await until(lambda: service.streams.num_streams)
                stopping = asyncio.ensure_future(service.batcher.stop(120))
                await asyncio.sleep(0)  # It begins.
                refused = await client.post(
                    "/v1/encode", json={"vocabulary": "gpn", "text": "ACGT"}
                )
                assert refused.status_code == 503
                yield b">last\nACGT\n"

            url = "/v1/encode/fasta?vocabulary=gpn&dtype=uint8"
            answer = await client.post(url, content=records())
            names = pa.ipc.open_stream(answer.content).read_all().column("name").to_pylist()
            assert names == ["first", "long", "last"]
            await stopping

    run(scenario)
