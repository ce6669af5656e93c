"""The client by gRPC: the answers of a tokenizer, errors by code, and retries."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import numpy as np
import pytest

import warptok
from tests.clients.test_clients import grpc_address
from tests.support.inputs.nasty_texts import TEXTS
from tests.support.server_process import Server
from tests.warptok.test_imports import CALLS
from vocabularies.batch.batch import EncodeOptions
from warptok.clients import grpc_calls, grpc_client

grpc = pytest.importorskip("grpc")
ENDOFTEXT = "<|endoftext|>"


@pytest.fixture(scope="module")
def gpt2() -> warptok.Tokenizer:
    return warptok.load("gpt2", device="cpu")


@pytest.fixture(scope="module")
def target(server: Server) -> str:
    server.wait_ready()
    return grpc_address(server)


@pytest.fixture
def client(target: str) -> Iterator[warptok.GrpcClient]:
    with warptok.GrpcClient(target, "gpt2") as client:
        yield client


@pytest.mark.parametrize("name", CALLS)
def test_it_has_the_calls_of_a_tokenizer(name):
    tokenizers = inspect.signature(getattr(warptok.Tokenizer, name))
    for kind in (warptok.GrpcClient, warptok.AsyncGrpcClient):
        assert inspect.signature(getattr(kind, name)) == tokenizers


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_length": 3, "truncation_side": "left"},
        {"special": "plain", "add_special_tokens": False},
        {"return_offsets": "utf16"},
        {"max_length": [2, None, 1] * (len(TEXTS) // 3) + [None] * (len(TEXTS) % 3)},
        {"max_length": np.full(len(TEXTS), 2), "add_special_tokens": np.False_},
        {"dtype": "uint16"},
        {"return_tokens": True},
        {"return_tokens": True, "token_form": "file"},
        {"padding": 300, "pad_id": 7, "padding_side": "left", "return_offsets": "bytes"},
    ],
)
def test_batches_are_those_of_a_tokenizer(client, gpt2, monkeypatch, options):
    monkeypatch.setattr("warptok.clients.service_calls.PART_ROWS", 7)  # Several requests.
    ours, theirs = gpt2.encode_batch(TEXTS, **options), client.encode_batch(TEXTS, **options)
    assert type(theirs) is type(ours)
    assert theirs.ids.dtype == ours.ids.dtype
    assert theirs.ids.tolist() == ours.ids.tolist()
    assert theirs.num_tokens.tolist() == ours.num_tokens.tolist()
    assert theirs.truncated == ours.truncated
    assert theirs.tokens == ours.tokens
    assert (theirs.engine, theirs.digest) == ("cpu", gpt2.digest)
    assert 0 < theirs.kernel_time < 60 > ours.kernel_time > 0
    if ours.offset_mapping is not None:
        assert theirs.offset_mapping.tolist() == ours.offset_mapping.tolist()


def test_calls_on_one_text_are_those_of_a_tokenizer(client, gpt2):
    for text in (*TEXTS[:12], b"Hello", "中" * 5000):
        assert client.encode(text) == gpt2.encode(text)
        assert client.count(text) == gpt2.count(text)
        for unit in ("codepoints", "utf16", "bytes"):
            assert client.offsets(text, unit).tolist() == gpt2.offsets(text, unit).tolist()
    assert client.encode(ENDOFTEXT, special="plain") == gpt2.encode(ENDOFTEXT, special="plain")
    assert client.encode("a\ud83d", surrogates="replace") == gpt2.encode("a\ufffd")
    assert client.encode(b"\xff", invalid_utf8="bytes") == [187]
    assert client.count(b"\xff", invalid_utf8="bytes") == 1
    layout = {"chunk_size": 4, "chunk_overlap": 1, "return_texts": True, "offset_unit": "utf16"}
    ours, theirs = gpt2.chunks(TEXTS[3], **layout), client.chunks(TEXTS[3], **layout)
    assert (theirs.texts, theirs.num_tokens) == (ours.texts, ours.num_tokens)
    for name in ("ids", "offsets", "offset_mapping", "starts"):
        assert getattr(theirs, name).tolist() == getattr(ours, name).tolist()
    assert 0 < theirs.kernel_time < 60 > ours.kernel_time > 0


def test_counts_texts_and_windows_are_those_of_a_tokenizer(client, target, gpt2):
    batch = gpt2.encode_batch(TEXTS)
    assert client.count_batch(TEXTS).tolist() == batch.num_tokens.tolist()
    lengths = [1, 2] * (len(TEXTS) // 2) + [1] * (len(TEXTS) % 2)
    assert client.count_batch(TEXTS, max_length=lengths).max() == 2
    assert client.decode_batch(batch) == TEXTS
    assert client.decode(batch[3]) == TEXTS[3]
    assert client.decode_bytes(gpt2.encode("北")[:1]) == "北".encode()[:2]
    assert client.encode_batch([]).to_list() == []
    assert "gpt2" in {each["name"] for each in client.vocabularies()}
    assert client.info()["limits"]["max_texts"] > 0
    tok = warptok.load("mtdna6", device="cpu")
    sequence = "GATCACAGGTCTATCACCCT"
    options = {"window": 8, "stride": 4, "circular": True, "add_cls": True, "junction": "prepend"}
    levels = np.linspace(0, 1, len(sequence))
    with warptok.GrpcClient(target, "mtdna6") as other:
        ours = tok.windows(sequence, channel=levels, **options)
        theirs = other.windows(sequence, channel=levels, **options)
        for name in ("input_ids", "attention_mask", "position_ids", "channel", "starts"):
            assert getattr(theirs, name).dtype == getattr(ours, name).dtype
            assert getattr(theirs, name).tolist() == getattr(ours, name).tolist()
        assert 0 < theirs.kernel_time < 60 > ours.kernel_time > 0


def test_messages_have_every_option():
    fields = {
        "add_special_tokens": False,
        "special": "plain",
        "max_length": 7,
        "truncation_side": "left",
        "reverse_complement": True,
        "circular": True,
        "spans": True,
        "invalid_utf8": "bytes",
        "uppercase": True,
    }
    assert set(fields) == {each.name for each in dataclasses.fields(EncodeOptions)}
    form = grpc_calls.AnswerForm("uint16", has_tokens=True, token_form="file")
    calls = grpc_calls.GrpcCalls("gpt2", if_digest="sha256:0")
    message = calls.write_options(EncodeOptions(**fields), form)
    written = {each.name: getattr(message, each.name) for each in message.DESCRIPTOR.fields}
    del written["augmentation"]  # `tests/warptok/test_augmentation.py` has it.
    fields["return_offsets"] = fields.pop("spans")
    others = {"dtype": "uint16", "if_digest": "sha256:0"}
    others |= {"return_kernel_time": True, "return_tokens": True, "token_form": "file"}
    assert written == fields | others


def test_lower_case_becomes_upper_case(client, target, gpt2):
    ours = warptok.load("hyenadna", device="cpu").windows("GATTACA", window=4, stride=2)
    with warptok.GrpcClient(target, "hyenadna") as other:
        upper = other.windows("gattaca", window=4, stride=2, uppercase=True)
    assert upper.input_ids.tolist() == ours.input_ids.tolist()
    assert client.encode("gattaca", uppercase=True) == gpt2.encode("GATTACA")
    assert client.count("gattaca", uppercase=True) == gpt2.count("GATTACA")


def test_every_call_checks_the_digest(target, gpt2):
    calls = (
        lambda client: client.encode("A"),
        lambda client: client.encode_batch(["A"]),
        lambda client: client.count("A"),
        lambda client: client.chunks("A"),
        lambda client: client.decode([7]),
        lambda client: client.decode_bytes([7]),
        lambda client: client.decode_batch([[7]]),
        lambda client: client.windows("ACGT", window=4),
    )
    digest = warptok.load("hyenadna", device="cpu").digest
    with (
        warptok.GrpcClient(target, "hyenadna", if_digest="sha256:0") as wrong,
        warptok.GrpcClient(target, "hyenadna", if_digest=digest) as right,
    ):
        for call in calls:
            call(right)
            with pytest.raises(warptok.DigestDiffers, match="the digest of"):
                call(wrong)


def test_an_async_client_has_the_same_answers(target, gpt2):
    async def encode_all() -> list[list[int]]:
        async with warptok.AsyncGrpcClient(target, "gpt2") as client:
            assert repr(client) == f"<warptok.AsyncGrpcClient 'gpt2' of {target}>"
            batch = await client.encode_batch(TEXTS)
            assert batch.to_list() == gpt2.encode_batch(TEXTS).to_list()
            assert await client.count("a b") == 2
            assert await client.decode_batch(batch) == TEXTS
            assert "cpu" in (await client.info())["engines"]
            with pytest.raises(warptok.RowRefused) as refused:
                await client.encode(ENDOFTEXT, special="refuse")
            assert (refused.value.code, refused.value.status) == ("special_token_refused", 422)
            assert refused.value.request_id
            return await asyncio.gather(*map(client.encode, TEXTS))

    assert asyncio.run(encode_all()) == [gpt2.encode(text) for text in TEXTS]


def test_an_async_client_calls_again():
    async def encode() -> list[int]:
        async with warptok.AsyncGrpcClient(server.target, "gpt2", api_key="wt-key") as client:
            return await client.encode("a")

    server = Refusing([busy(0), grpc.StatusCode.UNAVAILABLE])
    assert asyncio.run(encode()) == [1]
    assert server.metadata["authorization"] == "Bearer wt-key"
    server.refusals = [busy(3600)]
    with pytest.raises(warptok.Unavailable) as refused:
        asyncio.run(encode())
    assert refused.value.retry_after_s == 3600
    server.server.stop(None)


def test_refusals_are_typed_by_their_codes(target, client):
    with (
        warptok.GrpcClient(target, "gpt") as unknown,
        pytest.raises(warptok.UnknownVocabulary, match="near names are gpt2") as refused,
    ):
        unknown.encode("a")
    assert (refused.value.code, refused.value.status) == ("unknown_vocabulary", 404)
    assert refused.value.request_id
    with (
        warptok.GrpcClient(target, "gpt2", if_digest="sha256:0") as other,
        pytest.raises(warptok.DigestDiffers),
    ):
        other.encode("a")
    with pytest.raises(warptok.RowRefused) as refused:
        client.encode_batch(["fine", ENDOFTEXT], special="refuse")
    assert (refused.value.code, refused.value.row) == ("special_token_refused", 1)
    kept = client.encode_batch(["fine", ENDOFTEXT], special="refuse", errors="keep")
    assert (kept.to_list(), [*kept.errors]) == ([[38125], []], [1])
    for call in (client.encode, client.count):
        with pytest.raises(warptok.RowRefused, match="not_utf8"):
            call(b"\xff")
    for token_id in (99999, 2**32 + 64, -(2**32) + 64):  # Beyond int32 it becomes no other id.
        with pytest.raises(warptok.RowRefused, match="id_out_of_range"):
            client.decode([token_id])
        with pytest.raises(warptok.RowRefused, match="id_out_of_range"):
            client.decode_batch([[64], [token_id]])
    with pytest.raises(warptok.InvalidRequest, match="give padding_side= and pad_id="):
        client.encode_batch(["a"], padding="longest")
    with pytest.raises(TypeError, match="did you mean max_length"):
        client.encode("a", max_lenght=1)


class Refusing:
    """A server on a free port that ends calls with given statuses, and then answers."""

    def __init__(self, refusals: list[Any]) -> None:
        self.refusals, self.num_calls = refusals, 0
        self.metadata: dict[str, Any] = {}
        self.server = grpc.server(futures.ThreadPoolExecutor(1))
        methods = {"Encode": grpc.unary_unary_rpc_method_handler(self.answer)}
        handler = grpc.method_handlers_generic_handler("warptok.v1.Tokenizer", methods)
        self.server.add_generic_rpc_handlers((handler,))
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def answer(self, request: bytes, context: Any) -> bytes:
        from google.rpc import status_pb2
        from grpc_status import rpc_status

        self.num_calls += 1
        self.metadata = dict(context.invocation_metadata())
        if self.refusals:
            refusal = self.refusals.pop(0)
            if isinstance(refusal, status_pb2.Status):
                context.abort_with_status(rpc_status.to_status(refusal))
            context.abort(refusal, "it broke")
        return b"\x0a\x04\x01\x00\x00\x00"  # ids = [1].


def busy(retry_after: int | None) -> Any:
    """The status of a service that is draining, as the service makes it."""
    from service.apis.grpc.status import _status
    from service.core.errors import Draining

    error = Draining("it stops")
    error.headers = () if retry_after is None else ((b"retry-after", b"%d" % retry_after),)
    return _status(error, "id7")


def test_a_busy_or_lost_service_is_called_again(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(grpc_client.time, "sleep", waits.append)
    server = Refusing([busy(2), grpc.StatusCode.UNAVAILABLE])
    client = warptok.GrpcClient(server.target, "gpt2", api_key="wt-key")
    assert client.encode("a") == [1]
    assert server.metadata["authorization"] == "Bearer wt-key"
    assert waits[0] == 2 and 0.2 <= waits[1] <= 0.3
    server.server.stop(None)


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (lambda: busy(None), warptok.Unavailable),  # It does not say that another try helps.
        (lambda: busy(3600), warptok.Unavailable),
        (lambda: grpc.StatusCode.DEADLINE_EXCEEDED, warptok.DeadlinePassed),
        (lambda: grpc.StatusCode.INTERNAL, warptok.ServiceFailed),
    ],
)
def test_others_are_not_called_again(refusal, error):
    server = Refusing([refusal(), refusal()])
    with warptok.GrpcClient(server.target, "gpt2") as client, pytest.raises(error):
        client.encode("a")
    assert server.num_calls == 1
    server.server.stop(None)


def test_a_service_that_is_not_there():
    with (
        warptok.GrpcClient("127.0.0.1:1", "gpt2", retries=0) as client,
        pytest.raises(warptok.Unavailable, match=r"127\.0\.0\.1:1 is not reached"),
    ):
        client.encode("a")
