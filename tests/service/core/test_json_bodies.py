"""Halves of surrogate pairs in JSON are refused by name, or replaced where the request says so."""

from __future__ import annotations

import gzip
import json
import sys

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from service.core.errors import BadJson, LoneSurrogate
from service.core.json_bodies import MAX_NAMED_BYTES, parse_json
from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies import builtin
from vocabularies.formats.huggingface.writer import tokenizer_json

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = "a\ud83db \ude42\ud83d\ud83d"
REPLACED = "a\ufffdb \ufffd\ufffd\ufffd"  # As tiktoken does, by UTF-16.
JSON = {"content-type": "application/json"}


def load(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadJson(str(error)) from error


@given(
    st.text(st.characters(categories=["Cs", "Lu"]) | st.sampled_from('🙂\\"u\n'), max_size=8),
    st.booleans(),
)
def test_every_half_becomes_one_replacement_character(text, is_escaped):
    if is_escaped:
        expected = json.loads(json.dumps(text))  # Two halves that stand together are a pair.
        body = json.dumps({"surrogates": "replace", "text": text}).encode()
    else:
        expected = text
        body = json.dumps({"surrogates": "replace", "text": text}, ensure_ascii=False)
        body = body.encode(errors="surrogatepass")
    replaced = "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in expected)
    assert parse_json(load, body)["text"] == replaced


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (rb'{"text": "\ud800"}', "/text"),
        (rb'{"texts": ["a", "\\ud800", "\ud83d\ude42", "b\ude42", "\ude42"]}', "/texts/3"),
        (rb'{"a": [{"b/c": 1}, {"b/c": "\ud800"}], "d": "\ud800"}', "/a/1/b~1c"),
        (b'{"text": "\xed\xa0\x80"}', "/text"),
        (rb'{"text": "\ud800", "surrogates": "refuse"}', "/text"),
        (b'{"x": "' + b"a" * MAX_NAMED_BYTES + b'",\n "text": "\\ude42"}', "line 2 column 11"),
        (rb'{"\ud800": 1}', "line 1 column 3"),
        (rb'{"\ud800": "\ud800"}', "/\ufffd"),
    ],
)
def test_a_half_is_refused_with_its_place(body, place):
    with pytest.raises(LoneSurrogate) as caught:
        parse_json(load, body)
    assert caught.value.where == place


@pytest.mark.parametrize("body", [b"{", b'{"a": "\\ud800"', b'{"a": "\xff"}', b'{"a": "\\x"}'])
def test_what_is_no_json_is_refused_as_such(body):
    with pytest.raises(BadJson):
        parse_json(load, body)


def test_requests_get_the_ids_of_the_replaced_text():
    library = Tokenizer.from_str(tokenizer_json(builtin.load("gpt2")))
    expected = library.encode(REPLACED).ids
    oip = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}]}
    cases = [
        ("/v1/encode", {"vocabulary": "gpt2", "text": TEXT}, lambda answer: answer["ids"]),
        ("/v1/encode/batch", {"vocabulary": "gpt2", "texts": [TEXT]}, lambda a: a["ids"][0]),
        ("/v1/chunks", {"vocabulary": "gpt2", "text": TEXT}, lambda answer: answer["ids"][0]),
        ("/tokenize", {"model": "gpt2", "prompt": TEXT}, lambda answer: answer["tokens"]),
        ("/tokenize", {"model": "gpt2", "content": TEXT}, lambda answer: answer["tokens"]),
        ("/v1/completions/render", {"model": "gpt2", "prompt": TEXT}, lambda a: a[0]["token_ids"]),
        ("/v2/models/gpt2/infer", oip, lambda answer: answer["outputs"][0]["data"]),
    ]

    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            for path, body, get_ids in cases:
                refused = await client.post(path, content=json.dumps(body), headers=JSON)
                assert refused.status_code in (400, 422)
                assert "half a surrogate pair" in refused.text
                if path.startswith("/v2"):
                    body = body | {"parameters": {"surrogates": "replace"}}
                else:
                    body = body | {"surrogates": "replace"}
                answer = await client.post(path, content=json.dumps(body), headers=JSON)
                assert answer.status_code == 200, answer.text
                assert get_ids(answer.json()) == expected
                whole = json.dumps(body).replace("\\ud83d", "x").replace("\\ude42", "x")
                assert (await client.post(path, content=whole, headers=JSON)).status_code == 200
            body = {"vocabulary": "gpt2", "texts": [TEXT, "b"], "surrogates": "replace"}
            counted = await client.post("/v1/count", content=json.dumps(body), headers=JSON)
            assert counted.json()["num_tokens"] == [len(expected), 1]
            body = {"vocabulary": "gpt2", "text": "a", "surrogates": "drop"}
            wrong = await client.post("/v1/encode", json=body)
            assert (wrong.status_code, wrong.json()["where"]) == (422, "/surrogates")
            verify = json.dumps({"texts": [TEXT]})
            refused = await client.post(
                "/v1/vocabularies/gpt2/verify", content=verify, headers=JSON
            )
            assert refused.json()["code"] == "lone_surrogate"

    run(scenario)


def test_json_in_another_encoding_is_refused_by_its_name():
    text = '{"vocabulary": "gpt2", "text": "a", "prompt": "a"}'
    bodies = {
        b"\xef\xbb\xbf" + text.encode(): "byte-order mark",
        text.encode("utf-16"): "UTF-16",
        text.encode("utf-16-le"): "UTF-16",
        text.encode("utf-16-be"): "UTF-16",
        text.encode("utf-32"): "UTF-32",
        text.encode("utf-32-be"): "UTF-32",
        gzip.compress(text.encode()): "send it with Content-Encoding: gzip",
        zstd.compress(text.encode()): "send it with Content-Encoding: zstd",
        text.encode() + b"\0": "JSON",
        b"": "JSON",
    }

    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            for path in ("/v1/encode", "/tokenize"):
                for body, message in bodies.items():
                    answer = await client.post(path, content=body, headers=JSON)
                    assert answer.status_code == 400
                    assert message in answer.text

    run(scenario)


def test_an_id_beyond_64_bits_is_refused_as_one():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            for tokens in ("[18446744073709551616]", "[1, 99999999999999999999999]"):
                for path in ("/detokenize", "/v1/detokenize"):
                    body = f'{{"model": "gpt2", "tokens": {tokens}}}'
                    answer = await client.post(path, content=body, headers=JSON)
                    assert answer.status_code == 400
                    assert "larger than the ids of any" in answer.json()["error"]["message"]

    run(scenario)
