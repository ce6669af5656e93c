"""Faults that fuzzing found (`python -m tests.fuzz`), each with its smallest request."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
from dataclasses import replace

import grpc
import pytest

from service.apis.bulk.arrow_stream import BodyReader
from service.engines.cpu.bpe.tokenizers_encoder import read_tokenizer
from service.engines.cpu.engine import CpuEngine
from service.engines.selftest import make_test_texts
from service.observability.logging import TextLines
from service.protos import warptok_pb2 as pb
from service.registry.management import MAX_FILES
from tests.fuzz.hunt import resident_bytes
from tests.fuzz.inputs.requests import requests
from tests.fuzz.open_apis import open_apis
from tests.service.apis.grpc.test_grpc import batch_request
from tests.service.apis.grpc.test_grpc import serving as grpc_serving
from tests.support.app_client import serving
from tests.support.inputs.tokenizer_documents import ABC, document, encoded
from tests.support.waiting import run, until, wait_until
from vocabularies.builtin import load
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.preprocessing import class_patterns
from vocabularies.preprocessing.normalizers import compile_replacement

ENGINE = CpuEngine()
INFER = "/v2/models/gpn/infer"
LENGTH = "inference-header-content-length"


@pytest.mark.parametrize("digits", [b"\xb2", b"\xb9", b"9" * 5000, b"-1", b"+1", b"1_0"])
def test_digits_that_are_none_are_no_fault_of_ours(digits):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.post(INFER, content=b"{}", headers={LENGTH: digits})
            assert (answer.status_code, LENGTH in answer.json()["error"]) == (422, True)
            url, headers = "/v1/vocabularies/mine", {"content-length": digits}
            answer = await client.put(url, content=encoded(ABC), headers=headers)
            assert answer.status_code == 201

    run(scenario)


def test_a_timeout_in_other_digits_is_refused():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["x"]}
            body = {"inputs": [tensor], "parameters": {"timeout": "\u00b2"}}
            assert (await client.post(INFER, json=body)).status_code == 422

    run(scenario)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/nothing", 404),
        ("PATCH", "/v2/models/gpn/infer", 405),
        ("POST", "/v2/models/gpn/infer%0a", 422),
        ("GET", "/tokenize", 405),
        ("GET", "/v1/messages/count_tokens", 405),
        ("POST", "/v1/models/gpn", 405),
        ("GET", "/v2.x", 404),
    ],
)
def test_a_refusal_before_any_route_has_the_shape_of_its_path(method, path, status):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.request(method, path)
            assert answer.status_code == status
            has_problem = answer.headers["content-type"] == "application/problem+json"
            assert has_problem == path.startswith("/v2.")
            assert has_problem or "error" in answer.json()

    run(scenario)


WRONG_UPLOADS = {
    "no hash of a list": document({"a": 0}, [], unk_token=["a"]),
    "a kind of kinds": {"model_type": ["kmer"]},
    "characters without any": {"model_type": "character", "vocab_size": 9},
    "a wrong decoder": document({"a": 0}, [], decoder={"type": "Nothing"}, byte_fallback=True),
    "a wrong number": document({"a": 0}, [], dropout=False, continuing_subword_prefix=7),
    "a prefix longer than its token": document(
        {"a": 0, "b": 1, "ab": 2}, ["a b"], continuing_subword_prefix="#" * 9
    ),
    "steps that are no list": document(
        {"a": 0}, [], byte_fallback=True, pre_tokenizer={"type": "Sequence", "pretokenizers": 1e308}
    ),
    "millions of ids that mean nothing": document({"a": 0, "b": 3_999_999}, []),
}


@pytest.mark.parametrize("name", WRONG_UPLOADS)
def test_a_wrong_vocabulary_is_the_fault_of_who_sends_it(name, caplog):
    kind = "kmer" if "model_type" in WRONG_UPLOADS[name] else "tokenizer.json"

    async def scenario():
        async with serving(ENGINE) as (client, _):
            content = json.dumps(WRONG_UPLOADS[name])
            url = f"/v1/vocabularies/mine?format={kind}"
            answer = await client.put(url, content=content)
            assert (answer.status_code, answer.json()["code"]) == (422, "vocabulary_invalid")

    run(scenario)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_empty_word_of_a_list_is_named():
    with pytest.raises(VocabularyError, match="line 1: the word is empty"):
        read_vocabulary({"vocab.txt": b"\n[UNK]"})


def test_the_other_strand_of_a_text_is_refused_and_of_a_sequence_is_not():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = {"vocabulary": "gpt2", "text": "GATTACA", "reverse_complement": True}
            answer = await client.post("/v1/encode", json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "no_other_strand")
            body = {
                "vocabulary": "gpt2",
                "texts": ["ACGT", "ACGT"],
                "reverse_complement": [True, False],
            }
            answer = (await client.post("/v1/encode/batch", json=body)).json()
            assert [fault["row"] for fault in answer["errors"]] == [0]
            for name in ("dnabert2", "hyenadna", "mtdna6", "gpn", "evo_bytes"):
                texts = {"texts": ["GATTACA"], "reverse_complement": True}
                answer = await client.post("/v1/count", json={"vocabulary": name, **texts})
                assert "errors" not in answer.json(), name

    run(scenario)


def test_bytes_that_are_no_message_are_the_fault_of_who_sends_them(caplog):
    async def scenario():
        async with grpc_serving() as (client, _):
            for path in ("Encode", "EncodeBatch", "EncodeStream", "PutVocabulary"):
                call = client.channel.unary_stream(f"/warptok.v1.Tokenizer/{path}")
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    async for _ in call(b"\xff\xff"):
                        pass
                assert caught.value.code().name == "INVALID_ARGUMENT", path

    run(scenario)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_files_without_end_are_refused_though_they_are_empty():
    """By a client of threads: grpc.aio says INTERNAL where it still sends behind a refusal."""

    def refusal(port: int) -> str:
        requests = (pb.PutVocabularyRequest(vocabulary="mine", file=str(i)) for i in range(10**9))
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            put = channel.stream_unary(
                "/warptok.v1.Tokenizer/PutVocabulary", pb.PutVocabularyRequest.SerializeToString
            )
            with pytest.raises(grpc.RpcError) as caught:
                put(requests, timeout=120)
            return caught.value.details()

    async def scenario():
        async with grpc_serving() as (client, _):
            details = await asyncio.to_thread(refusal, client.port)
            assert f"more than {MAX_FILES} files" in details

    run(scenario)


@pytest.mark.parametrize(
    "method",
    [
        "/warptok.v1.Tokenizer/EncodeStream",
        "/warptok.v1.Tokenizer/PutVocabulary",
        "/inference.GRPCInferenceService/ModelStreamInfer",
    ],
)
def test_a_grpc_stream_in_which_nothing_comes_is_ended(method):
    async def scenario():
        async with grpc_serving(stream_idle_timeout_s=0.2) as (client, service):
            call = client.channel.stream_stream(method)()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    pass
            assert caught.value.code().name == "DEADLINE_EXCEEDED"
            assert "stream_idle_timeout_s" in caught.value.details()
            assert service.batcher.num_streams == 0

    run(scenario)


@pytest.mark.parametrize(
    "method",
    ["/warptok.v1.Tokenizer/EncodeStream", "/inference.GRPCInferenceService/ModelStreamInfer"],
)
def test_grpc_streams_are_counted_among_all_streams(method):
    async def scenario():
        async with grpc_serving(max_streams=1) as (client, service):
            first = client.channel.stream_stream(method)()
            await until(lambda: service.streams.num_streams)
            second = client.channel.stream_stream(method)()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in second:
                    pass
            assert caught.value.code().name == "RESOURCE_EXHAUSTED"
            assert "max_streams is 1" in caught.value.details()
            await first.done_writing()
            async for _ in first:
                pass
            assert service.streams.num_streams == 0

    run(scenario)


def test_a_grpc_stream_whose_answers_are_not_read_is_ended():
    async def scenario():
        settings = {"stream_idle_timeout_s": 0.5, "preload": "evo_bytes"}
        async with grpc_serving(**settings) as (client, service):
            call = client.channel.stream_stream("/warptok.v1.Tokenizer/EncodeStream")()
            request = batch_request(["A" * 2**20], "evo_bytes").SerializeToString()
            writing = asyncio.ensure_future(write_for_ever(call, request))
            await until(lambda: service.batcher.num_streams)
            await until(lambda: not service.batcher.num_streams)
            call.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    run(scenario)


async def write_for_ever(call, request):
    while True:
        await call.write(request)


def test_nothing_that_an_exception_says_is_in_the_log():
    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    handler, log = Lines(), logging.getLogger("service.some")
    handler.setFormatter(TextLines())
    log.addHandler(handler)
    try:
        raise_one_of_another()
    except ExceptionGroup:
        log.exception("it failed")
    log.removeHandler(handler)
    assert "SECRET" not in lines[0]
    for kind in ("ExceptionGroup", "KeyError", "ValueError"):
        assert kind in lines[0]
    assert "in raise_one_of_another" in lines[0]


def raise_one_of_another():
    word = "SECRET"
    try:
        int(word)
    except ValueError as error:
        raise ExceptionGroup(word, [KeyError(word)]) from error


def test_a_vocabulary_knows_whether_it_has_strands():
    for name, has in (("gpt2", False), ("cl100k_base", False), ("dnabert2", True), ("nt_v2", True)):
        assert load(name).supports_reverse_complement == has


@pytest.mark.parametrize("way", ["whole", "cut", "gone"])
def test_nothing_of_an_arrow_stream_stays_in_memory(way):
    """Arrow's objects hold what they call; Python's collector does not look into them."""
    (arrow, *_) = (message for message in requests() if message.body == "arrow")
    if way == "cut":
        bodies = (gzip.compress(arrow.bodies[0])[:-9],)
        headers = (*arrow.headers, (b"content-encoding", b"gzip"))
        arrow = replace(arrow, bodies=bodies, headers=headers)

    def num_readers() -> int:
        gc.collect()
        return sum(isinstance(each, BodyReader) for each in gc.get_objects())

    async def scenario():
        async with open_apis(ENGINE, preload="gpn", default_vocabulary="gpn") as apis:
            for _ in range(20):
                await apis.request(arrow, leaves=way == "gone")
            del apis.log.lines[:]

    before = num_readers()
    run(scenario)
    wait_until(lambda: num_readers() <= before + 1, "the end of its readers")


def test_a_library_that_is_let_go_is_gone_from_memory(monkeypatch):
    """Its cache of words would stay: 55 kB of the smallest vocabulary."""
    # A thread for each core would keep some memory each, and come to it sooner or later.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    texts, sizes = make_test_texts(load("gpn")), []
    for number in range(201):
        tokens = {"A": 0, "C": 1, "AC": 2, f"x{number}": 3}
        library = read_tokenizer(json.dumps(document(tokens, ["A C"])))
        library.encode_batch_fast(texts)
        if number % 100 == 0:
            del library
            gc.collect()
            sizes.append(resident_bytes())
    assert sizes[2] - sizes[1] < 2 << 20


def test_sets_of_uploaded_patterns_are_not_kept_for_ever():
    for function in (class_patterns._set_mask, class_patterns._member_mask):
        assert function.cache_info().maxsize <= 64
    assert compile_replacement.cache_info().maxsize <= 64
