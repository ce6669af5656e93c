"""One text as the body: the ids of the JSON call in every form of the answer; every refusal."""

from __future__ import annotations

import base64
import gzip
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.apis.bulk import text_chunks
from service.apis.bulk.text_chunks import Cutter
from service.engines.cpu.engine import CpuEngine
from service.http.body.decompression import PIECE_BYTES
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.reference.invalid_utf8 import encode_bytes

try:
    from compression import zstd
except ImportError:
    from backports import zstd

OCTETS = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}
ENGINE = CpuEngine()
TEXTS = ["", "ACGTNacgtn", "ACG[MASK]T[SEP]", "héllo wörld 北京", "[MA", "a" * 3000]


COMPRESS = {"gzip": gzip.compress, "zstd": zstd.compress, "deflate": zlib.compress}


async def post(client, content, headers=OCTETS, path="/v1/encode", **query):
    return await client.post(path, params=query, content=content, headers=headers)


@pytest.mark.parametrize("name", ["gpt2", "hyenadna", "caduceus", "gpn", "nt_v2", "evo_bytes"])
def test_the_ids_are_those_of_the_json_call(name):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            for text in TEXTS:
                answer = await post(client, text.encode(), vocabulary=name)
                body = {"vocabulary": name, "text": text}
                expected = (await client.post("/v1/encode", json=body)).json()
                assert np.frombuffer(answer.content, np.int32).tolist() == expected["ids"]
                assert answer.headers["x-warptok-num-tokens"] == str(expected["num_tokens"])
                assert answer.headers["x-warptok-dtype"] == "int32"
                assert answer.headers["x-warptok-digest"] == expected["digest"]
                assert answer.headers["x-warptok-engine"] == expected["engine"]

    run(scenario)


def test_without_the_accept_header_the_answer_is_the_json_calls():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            query = {"return_offsets": "codepoints", "return_tokens": "true", "max_length": "4"}
            headers = {"content-type": "text/plain; charset=utf-8"}
            answer = await post(client, "héllo".encode(), headers, vocabulary="gpt2", **query)
            body = {"vocabulary": "gpt2", "text": "héllo", "max_length": 4}
            body |= {"return_offsets": "codepoints", "return_tokens": True}
            assert answer.content == (await client.post("/v1/encode", json=body)).content

    run(scenario)


def test_the_case_of_a_media_type_does_not_matter():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            headers = {"content-type": "Text/Plain; Charset=UTF-8"}
            headers |= {"accept": "Application/Octet-Stream"}
            answer = await post(client, b"hello", headers, vocabulary="gpt2")
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.content == np.array([31373], np.int32).tobytes()

    run(scenario)


def test_bytes_that_are_no_utf8_have_ids_on_request():
    data = "Hello 🙂".encode()[:-1]
    ids = [token.id for token in encode_bytes(load("gpt2"), data, DEFAULT_OPTIONS)]

    async def scenario():
        async with serving(ENGINE) as (client, _):
            asked = {"vocabulary": "gpt2", "invalid_utf8": "bytes"}
            answer = await post(client, data, **asked)
            assert np.frombuffer(answer.content, np.int32).tolist() == ids
            text = {"content-type": "text/plain"}
            options = {"return_offsets": "bytes", "return_tokens": "true", "max_length": 2}
            answer = (await post(client, data, text, **asked, **options)).json()
            assert answer["ids"] == ids[:2]
            assert answer["offsets"][0] == [0, 5]
            assert len(answer["tokens"]) == 2
            assert answer["truncated"]["num_tokens"] == len(ids)
            back = {"vocabulary": "gpt2", "ids": ids, "as_base64": True}
            decoded = (await client.post("/v1/decode", json=back)).json()
            assert base64.b64decode(decoded["base64"]) == data
            valid = await post(client, b"Hello", **asked)
            assert np.frombuffer(valid.content, np.int32).tolist() == [15496]
            for query, status, words in (
                ({"vocabulary": "gpt2"}, 422, "not UTF-8"),
                ({"vocabulary": "dnabert2", "invalid_utf8": "bytes"}, 422, "not have all bytes"),
                (asked | {"invalid_utf8": "drop"}, 422, "refuse"),
            ):
                for headers in (OCTETS, text):
                    refused = await post(client, data, headers, **query)
                    assert refused.status_code == status
                    assert words in refused.text
            refused = await post(client, data, text, **asked, return_offsets="codepoints")
            assert refused.json()["where"] == "/return_offsets"
            answer = await post(client, b"A\xff", vocabulary="evo_bytes", invalid_utf8="bytes")
            assert np.frombuffer(answer.content, np.int32).tolist() == [65, 255]

    run(scenario)


@pytest.mark.parametrize(("dtype", "width"), [("uint8", 1), ("uint16", 2), ("int32", 4)])
def test_ids_have_the_requested_width(dtype, width):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, b"ACGT", vocabulary="hyenadna", dtype=dtype)
            assert np.frombuffer(answer.content, dtype).tolist() == [7, 8, 9, 10, 1]
            assert answer.headers["content-length"] == str(5 * width)

    run(scenario)


def test_a_header_says_what_truncation_kept():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, b"ACGT", vocabulary="hyenadna", max_length=3)
            assert answer.headers["x-warptok-truncated"] == "num_tokens=5, kept=0-2"

    run(scenario)


@pytest.mark.parametrize("encoding", [*COMPRESS])
def test_a_compressed_body_is_read_in_members_and_frames(encoding):
    text = b"ACGT" * 600_000
    compress = COMPRESS[encoding]
    body = compress(text[:1_000_000]) + compress(b"") + compress(text[1_000_000:])

    async def scenario():
        async with serving(ENGINE) as (client, _):
            for path, content in (("/v1/encode", body),):
                headers = OCTETS | {"content-encoding": encoding}
                answer = await post(client, content, headers, path, vocabulary="hyenadna")
                assert int(answer.headers["x-warptok-num-tokens"]) == len(text) + 1
            json_body = compress(b'{"vocabulary": "gpt2", "text": "Hello"}')
            headers = {"content-type": "application/json", "content-encoding": encoding}
            answer = await client.post("/v1/encode", content=json_body, headers=headers)
            assert answer.json()["ids"] == [15496]

    run(scenario)


@pytest.mark.parametrize("zeros", [1, 100_000])
def test_zeros_behind_gzip_are_left_out_as_gzip_does(zeros):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            packed, headers = gzip.compress(b"ACGT"), OCTETS | {"content-encoding": "gzip"}
            for body in (packed + bytes(zeros), packed + bytes(zeros) + packed):
                answer = await post(client, body, headers, vocabulary="evo_bytes")
                assert answer.status_code == 200, answer.text
                ids = np.frombuffer(answer.content, np.int32)
                assert ids.tolist() == [*b"ACGT"] * body.count(packed)
            for body in (bytes(zeros) + packed, packed + bytes(zeros) + b"no gzip"):
                answer = await post(client, body, headers, vocabulary="evo_bytes")
                assert answer.status_code == 400

    run(scenario)


@pytest.mark.parametrize("encoding", [*COMPRESS])
@pytest.mark.parametrize("vocabulary", ["gpt2", "hyenadna"])
def test_what_a_body_decompresses_to_is_limited(encoding, vocabulary):
    compress = COMPRESS[encoding]
    bomb = compress(bytes(64 * PIECE_BYTES))

    async def scenario():
        async with serving(ENGINE, max_body_bytes=2_000_000) as (client, _):
            headers = OCTETS | {"content-encoding": encoding}
            answer = await post(client, bomb, headers, vocabulary=vocabulary)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")

    run(scenario)


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"max_body_bytes": 2000}, "max_body_bytes"),
        ({"max_text_bytes": 2000}, "max_text_bytes"),
        ({"max_body_bytes": 2000, "max_text_bytes": 2000}, "max_text_bytes"),
    ],
)
def test_a_refusal_names_the_setting_that_bounds(limits, setting):
    async def scenario():
        async with serving(ENGINE, **limits) as (client, _):
            answer = await post(client, b"A" * 2001, OCTETS, vocabulary="hyenadna")
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
            assert setting in answer.json()["detail"]

    run(scenario)


def broken(encoding: str) -> list[bytes]:
    compress = COMPRESS[encoding]
    whole = compress(b"ACGT" * 1000)
    return [whole[:-3], b"no archive", whole[:5] + b"\xff" * 40 + whole[45:]]


@pytest.mark.parametrize("encoding", [*COMPRESS])
@pytest.mark.parametrize("damage", range(3))
def test_a_damaged_body_is_refused(encoding, damage):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            headers = OCTETS | {"content-encoding": encoding}
            answer = await post(client, broken(encoding)[damage], headers, vocabulary="hyenadna")
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_body")
            assert answer.json()["where"] == "Content-Encoding"

    run(scenario)


REFUSED = [
    ({}, b"x", 422, "/vocabulary"),
    ({"vocabulary": "gpt2", "max_lenght": "1"}, b"x", 422, "/max_lenght"),
    ({"vocabulary": "gpt2", "max_length": "many"}, b"x", 422, "/max_length"),
    ({"vocabulary": "gpt2", "dtype": "uint8"}, b"x", 422, "/dtype"),
    ({"vocabulary": "gpt2", "return_tokens": "true"}, b"x", 422, "Accept"),
    ({"vocabulary": "gpt2"}, b"ab\xffc", 422, "body: byte 2"),
    ({"vocabulary": "gpt2", "special": "refuse"}, b"a<|endoftext|>", 422, "body: byte 1"),
    ({"vocabulary": "gpt2", "if_digest": "sha256:no"}, b"x", 412, "/if_digest"),
    ({"vocabulary": "nothing"}, b"x", 404, ""),
]


@pytest.mark.parametrize(("query", "body", "status", "where"), REFUSED)
def test_a_refusal_names_the_place(query, body, status, where):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, body, **query)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert not where or answer.json()["where"] == where

    run(scenario)


def test_an_option_that_is_there_twice_is_refused():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            url = "/v1/encode?vocabulary=gpt2&vocabulary=evo_bytes"
            answer = await client.post(url, content=b"x", headers=OCTETS)
            assert (answer.status_code, answer.json()["where"]) == (422, "/vocabulary")

    run(scenario)


@pytest.mark.parametrize("place", [0, 5, 8, 17, 40])
def test_a_refused_place_is_counted_from_the_texts_begin(place, monkeypatch):
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 8)

    async def scenario():
        async with serving(ENGINE) as (client, _):
            text = b"A" * place + b"\xff" + b"C" * 20
            answer = await post(client, text, vocabulary="hyenadna")
            assert answer.json()["where"] == f"body: byte {place}"

    run(scenario)


def test_characters_come_piece_by_piece_with_the_ids_of_the_whole(monkeypatch):
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 12)
    text = "ACGTNé北京[MASK]AC[MASK[SEP]][PAD][CLS" * 3

    async def chunks():
        for begin in range(0, len(text.encode()), 5):
            yield text.encode()[begin : begin + 5]

    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, chunks(), vocabulary="hyenadna")
            expected = ENGINE.encode(load("hyenadna"), Batch([text])).ids
            assert np.frombuffer(answer.content, np.int32).tolist() == expected.tolist()

    run(scenario)


@given(st.text("ACGT[MASKCLEPD]é北", max_size=60), st.lists(st.integers(1, 20), max_size=8))
@settings(max_examples=300)
def test_parts_of_a_text_have_the_ids_of_the_whole(text, sizes):
    vocabulary = load("hyenadna")
    options = EncodeOptions(add_special_tokens=False)
    cutter = Cutter.make(vocabulary, options)
    assert cutter is not None
    rest, ids = text.encode(), []
    for size in sizes:
        cut = cutter.cut(np.frombuffer(rest[:size], np.uint8))
        ids += ENGINE.encode(vocabulary, Batch.from_bytes([rest[:cut]], options)).ids.tolist()
        rest = rest[cut:]
    ids += ENGINE.encode(vocabulary, Batch.from_bytes([rest], options)).ids.tolist()
    assert ids == ENGINE.encode(vocabulary, Batch([text], options=options)).ids.tolist()


@pytest.mark.parametrize("name", ["gpt2", "nt_v2", "dnabert2", "mtdna6"])
def test_vocabularies_whose_ids_depend_on_neighbours_are_not_cut(name):
    assert Cutter.make(load(name), DEFAULT_OPTIONS) is None


@pytest.mark.parametrize(
    ("charset", "status"),
    [("utf-8", 200), ('"UTF8"', 200), ("us-ascii", 200), ("latin-1", 415), ("utf-16", 415)],
)
def test_a_text_that_says_it_is_no_utf8_is_refused(charset, status):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            headers = {"content-type": f"text/plain; format=flowed; Charset={charset}"}
            # Latin-1's "Ã©" is UTF-8's "é".
            answer = await post(client, "Ã©".encode("latin-1"), headers, vocabulary="gpt2")
            assert answer.status_code == status
            if status == 415:
                assert answer.json()["where"] == "Content-Type"
                assert charset in answer.json()["detail"]

    run(scenario)


def test_another_encoding_is_not_read_and_the_refusal_says_what_is():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            headers = OCTETS | {"content-encoding": "br"}
            answer = await post(client, b"x", headers, vocabulary="gpt2")
            assert answer.status_code == 415
            assert "gzip" in answer.json()["detail"]

    run(scenario)
