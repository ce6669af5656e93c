"""Clients of a running service: the answers of a tokenizer, errors by code, and retries."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import pytest

import warptok
from service.core import errors as service_errors
from tests.support.data_files import ROOT
from tests.support.inputs.nasty_texts import TEXTS
from tests.support.server_process import Server
from vocabularies.builtin import load
from warptok.clients import service_calls, transport
from warptok.clients.transport import Response, RetryPolicy, make_error
from warptok.errors import error_class

ENDOFTEXT = "<|endoftext|>"
PROBLEM = {"code": "draining", "detail": "it stops", "where": ""}


@pytest.fixture(scope="module")
def gpt2() -> warptok.Tokenizer:
    return warptok.load("gpt2", device="cpu")


@pytest.fixture
def client(server: Server) -> Iterator[warptok.Client]:
    with warptok.Client(server.url, "gpt2") as client:
        yield client


def client_of(answer: Callable[[httpx.Request], httpx.Response], **options: int) -> warptok.Client:
    """A client of a service that a function plays."""
    http_client = httpx.Client(transport=httpx.MockTransport(answer))
    return warptok.Client("http://service", "gpt2", http_client=http_client, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_length": 3},
        {"special": "plain", "add_special_tokens": False},
        {"return_offsets": "utf16", "return_tokens": True},
        {"return_tokens": True, "token_form": "file"},
        {"max_length": [2] * len(TEXTS)},
        {"max_length": np.full(len(TEXTS), 2), "add_special_tokens": np.False_},
        {"max_length": np.int64(3), "add_special_tokens": np.False_},
        {"dtype": "uint16"},
        {"padding": "longest", "pad_id": 0, "return_offsets": "bytes"},
        {"padding": 300, "pad_id": 7, "padding_side": "left"},
    ],
)
@pytest.mark.parametrize("by", ["arrow", "json"])
def test_batches_are_those_of_a_tokenizer(client, gpt2, monkeypatch, options, by):
    monkeypatch.setattr(service_calls, "PART_ROWS", 7)  # Several requests.
    if by == "json":
        monkeypatch.setattr(service_calls, "find_spec", lambda name: None)
    ours, theirs = gpt2.encode_batch(TEXTS, **options), client.encode_batch(TEXTS, **options)
    assert type(theirs) is type(ours)
    assert theirs.ids.dtype == ours.ids.dtype
    assert theirs.ids.tolist() == ours.ids.tolist()
    assert theirs.num_tokens.tolist() == ours.num_tokens.tolist()
    assert theirs.tokens == ours.tokens
    assert theirs.truncated in (None, ours.truncated)
    if ours.offset_mapping is not None:
        assert theirs.offset_mapping.tolist() == ours.offset_mapping.tolist()
    if by == "json":
        assert theirs.digest == gpt2.digest
    assert theirs.engine == "cpu"
    assert 0 < theirs.kernel_time < 60


def test_calls_on_one_text_are_those_of_a_tokenizer(client, gpt2):
    for text in (*TEXTS[:12], b"Hello", "中" * 5000):
        assert client.encode(text) == gpt2.encode(text)
        assert client.count(text) == gpt2.count(text)
        assert client.offsets(text).tolist() == gpt2.offsets(text).tolist()
    assert client.encode(ENDOFTEXT, special="plain") == gpt2.encode(ENDOFTEXT, special="plain")
    assert client.encode("a\ud83d", surrogates="replace") == gpt2.encode("a\ufffd")
    assert client.encode(b"\xff", invalid_utf8="bytes") == [187]
    assert client.count(b"\xff", invalid_utf8="bytes") == 1
    layout = {"chunk_size": 4, "chunk_overlap": 1, "return_texts": True, "offset_unit": "bytes"}
    ours, theirs = gpt2.chunks(TEXTS[3], **layout), client.chunks(TEXTS[3], **layout)
    assert theirs.texts == ours.texts
    for name in ("ids", "offsets", "offset_mapping", "starts"):
        assert getattr(theirs, name).tolist() == getattr(ours, name).tolist()
    assert 0 < theirs.kernel_time < 60 > ours.kernel_time > 0


def test_counts_and_texts_are_those_of_a_tokenizer(client, gpt2, monkeypatch):
    monkeypatch.setattr(service_calls, "PART_ROWS", 7)
    batch = gpt2.encode_batch(TEXTS)
    assert client.count_batch(TEXTS).tolist() == batch.num_tokens.tolist()
    assert client.decode_batch(batch) == TEXTS
    assert client.decode_batch(batch.to_list()) == TEXTS
    assert client.decode(batch[3]) == TEXTS[3]
    assert client.decode_bytes(gpt2.encode("北")[:1]) == "北".encode()[:2]
    assert client.encode_batch([]).to_list() == []


def test_windows_and_padding_are_those_of_a_tokenizer(server):
    tok = warptok.load("mtdna6", device="cpu")
    sequence = "GATCACAGGTCTATCACCCT"
    options = {"window": 8, "stride": 4, "circular": True, "add_cls": True, "junction": "prepend"}
    levels = np.linspace(0, 1, len(sequence))
    with warptok.Client(server.url, "mtdna6") as client:
        ours = tok.windows(sequence, channel=levels, **options)
        theirs = client.windows(sequence, channel=levels, **options)
        for name in ("input_ids", "attention_mask", "position_ids", "channel", "starts"):
            assert getattr(theirs, name).dtype == getattr(ours, name).dtype
            assert getattr(theirs, name).tolist() == getattr(ours, name).tolist()
        assert 0 < theirs.kernel_time < 60 > ours.kernel_time > 0
        assert client.windows("").input_ids.size == 0
        padded = client.encode_batch([sequence, "ACGTACG"], padding="longest")
        right = tok.encode_batch([sequence, "ACGTACG"], padding="longest")
        assert padded.ids.tolist() == right.ids.tolist()


def test_windows_of_lower_case_become_upper_case(server):
    ours = warptok.load("hyenadna", device="cpu").windows("GATTACA", window=4, stride=2)

    async def scenario():
        async with warptok.AsyncClient(server.url, "hyenadna") as client:
            return await client.windows("gattaca", window=4, stride=2, uppercase=True)

    with warptok.Client(server.url, "hyenadna") as client:
        upper = client.windows("gattaca", window=4, stride=2, uppercase=True)
        assert upper.input_ids.tolist() == ours.input_ids.tolist()
        lower = client.windows("gattaca", window=4, stride=2)
        assert lower.input_ids.tolist() != ours.input_ids.tolist()
    assert asyncio.run(scenario()).input_ids.tolist() == ours.input_ids.tolist()


def test_what_the_service_says_of_itself(client):
    assert "gpt2" in {each["name"] for each in client.vocabularies()}
    assert client.info()["version"]
    assert repr(client).startswith("<warptok.Client 'gpt2' of http://127.0.0.1:")


def test_an_async_client_has_the_same_answers(server, gpt2):
    async def encode_all() -> list[list[int]]:
        async with warptok.AsyncClient(server.url, "gpt2") as client:
            assert (await client.encode_batch(TEXTS)).to_list() == gpt2.encode_batch(
                TEXTS
            ).to_list()
            assert await client.count("a b") == 2
            with pytest.raises(warptok.RowRefused):
                await client.encode(ENDOFTEXT, special="refuse")
            return await asyncio.gather(*map(client.encode, TEXTS))

    assert asyncio.run(encode_all()) == [gpt2.encode(text) for text in TEXTS]


def test_refusals_are_typed_by_their_codes(server, client):
    with (
        warptok.Client(server.url, "gpt") as unknown,
        pytest.raises(warptok.UnknownVocabulary, match="near names are gpt2") as refused,
    ):
        unknown.encode("a")
    assert (refused.value.code, refused.value.status) == ("unknown_vocabulary", 404)
    assert refused.value.request_id
    with (
        warptok.Client(server.url, "gpt2", if_digest="sha256:0") as other,
        pytest.raises(warptok.DigestDiffers),
    ):
        other.encode("a")
    with pytest.raises(warptok.RowRefused) as refused:
        client.encode_batch(["fine", ENDOFTEXT], special="refuse")
    assert (refused.value.code, refused.value.row) == ("special_token_refused", 1)
    kept = client.encode_batch(["fine", ENDOFTEXT], special="refuse", errors="keep")
    assert (kept.to_list(), [*kept.errors]) == ([[38125], []], [1])
    with pytest.raises(warptok.RowRefused, match="not_utf8"):
        client.encode(b"\xff")
    with pytest.raises(warptok.RowRefused, match="not_utf8"):
        client.count(b"\xff")
    with pytest.raises(warptok.RowRefused, match="id_out_of_range"):
        client.decode([99999])
    with pytest.raises(warptok.InvalidRequest, match="no padding token"):
        client.encode_batch(["a"], padding="longest")
    with pytest.raises(warptok.InvalidRequest, match="give padding_side= and pad_id="):
        client.encode_batch(["a"]).pad()


def test_arguments_are_checked_before_anything_is_sent():
    client = warptok.Client("http://127.0.0.1:1", "gpt2", retries=0)
    with pytest.raises(TypeError, match="did you mean max_length"):
        client.encode("a", max_lenght=1)
    with pytest.raises(TypeError, match="takes one text"):
        client.encode(["a"])
    with pytest.raises(warptok.InvalidRequest, match="values, but there are 2 texts"):
        client.encode_batch(["a", "b"], max_length=[1])
    with pytest.raises(warptok.InvalidRequest, match="stride is 0"):
        client.windows("A", stride=0)


def test_every_code_of_the_service_has_a_class():
    rows = re.findall(r"^\| `(\w+)` \| (\d+) ", (ROOT / "docs" / "errors.md").read_text(), re.M)
    assert len(rows) > 40
    for code, status in rows:
        kind = error_class(code, int(status))
        assert kind is not warptok.WarptokError
        if kind is warptok.ServiceFailed:
            assert status in ("500", "501", "507"), code
    assert error_class("draining", 503) is warptok.Unavailable
    assert error_class("unauthorized", 401) is warptok.NotAllowed
    assert error_class("not_installed", 501) is warptok.NotInstalled
    unlisted = {"", *(each.code for each in service_errors.ServiceError.__subclasses__())}
    invalid = {code for code, status in rows if status == "422"} & unlisted
    assert invalid == {*transport.REQUEST_CODES} - {""}


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_service_is_called_again_after_the_time_that_it_says(monkeypatch, status):
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    answers = iter([(status, {"retry-after": "2"}), (status, {"retry-after": "0"}), (200, {})])

    def answer(request: httpx.Request) -> httpx.Response:
        code, headers = next(answers)
        return httpx.Response(code, headers=headers, content=b"\1\0\0\0" if code == 200 else b"{}")

    assert client_of(answer).encode("a") == [1]
    assert waits[0] == 2
    assert 0.2 <= waits[1] <= 0.3


def test_a_lost_connection_is_made_again(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    failures = iter([httpx.ConnectError("refused"), httpx.RemoteProtocolError("cut")])

    def answer(request: httpx.Request) -> httpx.Response:
        if (failure := next(failures, None)) is not None:
            raise failure
        return httpx.Response(200, content=b"\1\0\0\0")

    assert client_of(answer).encode("a") == [1]


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (503, {}, warptok.Unavailable),  # It does not say that another try helps.
        (503, {"retry-after": "3600"}, warptok.Unavailable),
        (504, {}, warptok.DeadlinePassed),
        (500, {}, warptok.ServiceFailed),
        (422, {}, warptok.InvalidRequest),
        (403, {}, warptok.NotAllowed),
        (413, {}, warptok.TooLarge),
    ],
)
def test_other_answers_are_not_asked_for_again(status, headers, error):
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(status, headers=headers, content=b"<html>no problem document</html>")

    with pytest.raises(error, match=f"the service answered {status}"):
        client_of(answer).encode("a")
    assert len(requests) == 1


def test_a_timeout_is_not_sent_again():
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["x-request-timeout-ms"] == "30000"
        raise httpx.ReadTimeout("no answer")

    with pytest.raises(warptok.DeadlinePassed, match="has not answered in time"):
        client_of(answer).encode("a")


def test_a_service_that_is_not_there():
    with pytest.raises(warptok.Unavailable, match=r"http://127\.0\.0\.1:1 is not reached"):
        warptok.Client("http://127.0.0.1:1", "gpt2", retries=0).encode("a")


def test_attempts_end():
    policy = RetryPolicy(retries=2)
    busy = make_error(Response(503, {"retry-after": "1"}, b'{"code": "draining"}'))
    assert [policy.wait_s(attempt, busy) is None for attempt in range(3)] == [False, False, True]


def test_a_key_is_sent():
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer wt-key"
        return httpx.Response(200, content=b"")

    http_client = httpx.Client(transport=httpx.MockTransport(answer))
    client = warptok.Client("http://service", "gpt2", api_key="wt-key", http_client=http_client)
    assert client.encode("") == []


@pytest.mark.parametrize("key", ["wt-secret\n", "wt-secret é", "wt secret", ""])
@pytest.mark.parametrize(
    "kind", [warptok.Client, warptok.AsyncClient, warptok.GrpcClient, warptok.AsyncGrpcClient]
)
def test_a_key_that_no_header_can_have_is_refused_and_not_shown(kind, key):
    with pytest.raises(warptok.InvalidRequest, match="api_key is empty, or has") as caught:
        kind("http://127.0.0.1:1", "gpt2", api_key=key)
    assert "secret" not in str(caught.value)
    assert caught.value.where == "api_key"


def test_a_stream_that_ends_with_an_error():
    pa = pytest.importorskip("pyarrow")
    schema = pa.schema([("ids", pa.list_(pa.int32())), ("error", pa.string())])
    sink = pa.BufferOutputStream()
    metadata = {
        "warptok.error": "engine_failed",
        "warptok.message": "it broke",
        "warptok.where": "",
    }
    with pa.ipc.new_stream(sink, schema) as writer:
        row = pa.RecordBatch.from_pylist([{"error": "engine_failed: it broke"}], schema)
        writer.write_batch(row, custom_metadata=metadata)
    content = sink.getvalue().to_pybytes()
    with pytest.raises(warptok.WarptokError, match="it broke") as refused:
        client_of(lambda request: httpx.Response(200, content=content)).encode_batch(["a"])
    assert refused.value.code == "engine_failed"


def test_without_pyarrow_bytes_need_it(client, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(warptok.NotInstalled, match=r"pip install 'warptok\[arrow\]'"):
        client.count(b"\xff", invalid_utf8="bytes")


def test_digests_are_those_of_the_vocabulary(server):
    digest = load("gpt2").digest
    with warptok.Client(server.url, "gpt2", if_digest=digest) as client:
        assert client.encode_batch(["a"]).digest == digest
