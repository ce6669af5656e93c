"""The routes of other systems: their bodies, answers, defaults and refusals."""

from __future__ import annotations

import asyncio

import pytest

from tests.service.apis.dialects.calls import (
    CHAT,
    ENGINE,
    HELLO,
    TEMPLATE,
    post,
    upload,
)
from tests.support.app_client import serving
from tests.support.waiting import run


def test_vllms_tokenize():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = (await post(client, "/tokenize", model="gpt2", prompt="Hello, world")).json()
            assert answer["tokens"] == HELLO
            assert (answer["count"], answer["token_strs"]) == (3, None)
            assert answer["max_model_len"] > 0
            with_strings = await post(
                client, "/tokenize", prompt="Hello, world", return_token_strs=True, n=3
            )
            assert with_strings.json()["token_strs"] == ["Hello", ",", "Ġworld"]
            empty = await post(client, "/tokenize", prompt="", add_special_tokens=False)
            assert (empty.status_code, empty.json()["tokens"]) == (200, [])

    run(scenario)


def test_sglangs_tokenize_and_detokenize():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = (await post(client, "/v1/tokenize", prompt=["Hello", "Hello, world"])).json()
            assert answer["tokens"] == [[15496], HELLO]
            assert answer["count"] == [1, 3]
            ids = [50256, *HELLO]
            skipped = (await post(client, "/v1/detokenize", tokens=ids)).json()
            assert skipped["text"] == "Hello, world"
            many = (await post(client, "/v1/detokenize", tokens=[ids, [15496]])).json()
            assert many["text"] == ["Hello, world", "Hello"]
            assert (await post(client, "/v1/detokenize", tokens=[])).json()["text"] == ""

    run(scenario)


def test_vllms_detokenize_keeps_special_tokens_and_answers_in_all_words():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = (await post(client, "/detokenize", tokens=[50256, *HELLO])).json()
            text = "<|endoftext|>Hello, world"
            assert answer == {"prompt": text, "text": text, "content": text}

    run(scenario)


def test_llama_cpps_tokenize():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            assert (await post(client, "/tokenize", content="Hello, world")).json() == {
                "tokens": HELLO
            }
            answer = await post(client, "/tokenize", content="北", with_pieces=True)
            assert answer.json()["tokens"] == [
                {"id": 44293, "piece": [0xE5, 0x8C]},
                {"id": 245, "piece": [0x97]},
            ]
            body = {"model": "dnabert2", "content": "ACGT"}
            plain = (await post(client, "/tokenize", **body)).json()["tokens"]
            framed = (await post(client, "/tokenize", **body, add_special=True)).json()["tokens"]
            assert framed == [1, *plain, 2]
            body = {"content": "<|endoftext|>"}
            for parses, ids in (
                ({}, [50256]),
                ({"parse_special": True}, [50256]),
                ({"parse_special": None, "add_special": None, "with_pieces": None}, [50256]),
                ({"parse_special": False}, [27, 91, 437, 1659, 5239, 91, 29]),
            ):
                assert (await post(client, "/tokenize", **body, **parses)).json()["tokens"] == ids

    run(scenario)


def test_teis_tokenize_and_decode():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = (await post(client, "/tokenize", model="dnabert2", inputs="ACGT")).json()
            first, *_, last = answer[0]
            assert first == {"id": 1, "text": "[CLS]", "special": True, "start": None, "stop": None}
            assert last["text"] == "[SEP]"
            assert "".join(each["text"] for each in answer[0] if not each["special"]) == "ACGT"
            many = (await post(client, "/tokenize", inputs=["Hello", "é"])).json()
            assert many[0] == [
                {"id": 15496, "text": "Hello", "special": False, "start": 0, "stop": 5}
            ]
            assert [(each["start"], each["stop"]) for each in many[1]] == [(0, 2)]
            assert (await post(client, "/decode", ids=[50256, *HELLO])).json() == ["Hello, world"]
            assert (await post(client, "/decode", ids=[[15496], HELLO])).json() == [
                "Hello",
                "Hello, world",
            ]

    run(scenario)


REFUSALS = [
    ("/tokenize", {"model": "nothing", "prompt": "x"}, 404, "openai"),
    ("/tokenize", {"prompt": 5}, 400, "openai"),
    ("/tokenize", {}, 400, "openai"),
    ("/detokenize", {"tokens": [10**6]}, 400, "openai"),
    ("/detokenize", {"tokens": ["a"]}, 400, "openai"),
    ("/detokenize", {"tokens": [True]}, 400, "openai"),
    ("/detokenize", {"tokens": [[1.0]]}, 400, "openai"),
    ("/v1/detokenize", {"tokens": ["5"]}, 400, "openai"),
    ("/decode", {"ids": [1, True]}, 422, "tei"),
    ("/v1/completions/render", {"prompt": [5, True]}, 400, "openai"),
    ("/tokenize", {"content": 5}, 400, "llama_cpp"),
    ("/tokenize", {"inputs": []}, 422, "tei"),
    ("/decode", {"ids": [10**6]}, 422, "tei"),
    ("/v1/messages/count_tokens", {"messages": []}, 400, "anthropic"),
    ("/v1/messages/count_tokens", {"model": "no", "messages": CHAT}, 404, "anthropic"),
    ("/v1/responses/input_tokens", {"input": 5}, 400, "openai"),
    ("/v1/chat/completions/render", {"messages": CHAT}, 400, "openai"),
    ("/v1/completions/render", {"prompt": {}}, 400, "openai"),
    ("/v1/completions/render", {"prompt": [["9" * 38, 256], [37]]}, 400, "openai"),
    ("/v1/completions/render", {"prompt": [2**31]}, 400, "openai"),
    ("/v1/completions/render", {"prompt": "a b", "truncate_prompt_tokens": -2}, 400, "openai"),
    ("/v1/completions/render", {"prompt": "a b", "truncate_prompt_tokens": True}, 400, "openai"),
    ("/v1/completions/render", {"prompt": "a b", "truncation_side": "middle"}, 400, "openai"),
    ("/v1/completions/render", {"prompt": "a b", "suffix": "c"}, 400, "openai"),
    ("/v1/completions/render", {"prompt": "a b", "prompt_embeds": "AAAA"}, 400, "openai"),
    ("/tokenize", {"content": "a", "parse_special": "perhaps"}, 400, "llama_cpp"),
    ("/tokenize", {"inputs": "a", "prompt_name": "query"}, 422, "tei"),
]


@pytest.mark.parametrize("path", ["/tokenize", "/tokenize/count"])
def test_a_null_beside_the_texts_is_of_no_system(path):
    """Clients that write all fields send null for those of other systems."""
    inputs = {"inputs": "Hello", "content": "Hello", "messages": CHAT, "prompt": "Hello"}

    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            for name, value in inputs.items():
                body = {"model": "chat", name: value}
                alone = await post(client, path, **body)
                others = {other: None for other in (*inputs, "input") if other != name}
                beside = await post(client, path, **others | body)
                assert (beside.status_code, beside.json()) == (200, alone.json()), name

    run(scenario)


def test_fields_that_are_empty_are_as_if_absent():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, "/tokenize", inputs="Hello", prompt_name=None)
            assert [each["id"] for each in answer.json()[0]] == [15496]
            empty = {"suffix": None, "prompt_embeds": None, "truncation_side": None}
            answer = await post(client, "/v1/completions/render", prompt="Hello", **empty)
            assert answer.json()[0]["token_ids"] == [15496]
            answer = await post(client, "/tokenize", prompt="Hello", return_token_strs=None)
            assert answer.json() == {
                "count": 1,
                "max_model_len": 2**31 - 1,
                "tokens": [15496],
                "token_strs": None,
            }

    run(scenario)


@pytest.mark.parametrize(("path", "body", "status", "shape"), REFUSALS)
def test_a_refusal_has_the_shape_of_its_system(path, body, status, shape):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.post(path, json=body)
            assert answer.status_code == status
            document = answer.json()
            if shape == "openai":
                assert {*document["error"]} == {"message", "type", "param", "code"}
                assert document["error"]["code"] == status
            elif shape == "llama_cpp":
                assert {*document["error"]} == {"message", "type", "code"}
            elif shape == "tei":
                assert isinstance(document["error"], str)
                assert document["error_type"] == "validation"
            else:
                assert document["type"] == "error"
                assert {*document["error"]} == {"type", "message"}

    run(scenario)


NULL = "must not be null"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/tokenize", {"prompt": None}, f"/prompt: {NULL}"),
        ("/tokenize", {"inputs": None}, f"/inputs: {NULL}"),
        ("/tokenize", {"content": None}, f"/content: {NULL}"),
        ("/tokenize", {"messages": None}, f"/messages: {NULL}"),
        ("/tokenize", {"inputs": ["a", None]}, f"/inputs/1: {NULL}"),
        ("/tokenize", {"prompt": 5}, "/prompt: Input should be a valid string or a valid list"),
        ("/detokenize", {"tokens": None}, f"/tokens: {NULL}"),
        ("/v1/completions/render", {"prompt": None}, f"/prompt: {NULL}"),
        ("/v1/completions/render", {"prompt": ""}, "/prompt: has no ids; an engine needs "),
        ("/v1/completions/render", {"prompt": []}, "/prompt: has no ids; an engine needs "),
        ("/v1/completions/render", {"prompt": ["a", ""]}, "/prompt/1: has no ids; an engine "),
        ("/v1/completions/render", {"prompt": [[]]}, "/prompt/0: has no ids; an engine needs "),
        ("/v1/chat/completions/render", {"messages": None}, f"/messages: {NULL}"),
    ],
)
def test_a_field_that_is_null_or_of_no_type_is_named_once(path, body, message):
    """A union had a message for each of its types, of which only the first one was shown."""

    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, path, **body)
            assert answer.status_code in (400, 422)
            error = answer.json()["error"]
            text = error if isinstance(error, str) else error["message"]
            assert text.startswith(message)
            assert "more)" not in text

    run(scenario)


@pytest.mark.parametrize("wrong", [True, 1.0, "5"])
def test_what_is_no_whole_number_is_refused_at_its_place(wrong):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, "/detokenize", tokens=[5, wrong])
            assert answer.json()["error"]["param"] == "/tokens/1"
            answer = await post(client, "/v1/completions/render", prompt=[5, wrong])
            assert answer.json()["error"]["param"] == "/prompt/1"

    run(scenario)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"prompt": "Hello, world!", "return_token_strs": True}, "/return_token_strs"),
        ({"prompt": ["Hello,", " world!"], "return_token_strs": True}, "/return_token_strs"),
        ({"content": "Hello, world!", "with_pieces": True}, "/with_pieces"),
        ({"inputs": ["Hello,", " world!"]}, "/inputs"),
    ],
)
@pytest.mark.slow
def test_ids_are_described_up_to_a_setting(body, where):
    async def scenario():
        for limit, status in ((4, 200), (3, 413)):
            async with serving(ENGINE, max_described_ids=limit) as (client, _):
                answer = await post(client, "/tokenize", **body)
                assert answer.status_code == status
        message = f"{where}: the answer would describe 4 ids; max_described_ids is 3"
        assert message in answer.text

    run(scenario)


def test_a_query_string_of_other_systems_clients_means_nothing():
    """Azure's clients send ?api-version= with every request."""

    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, "/tokenize?api-version=2024-10-21", prompt="Hello, world")
            assert answer.json()["tokens"] == HELLO

    run(scenario)


@pytest.mark.parametrize(
    ("ids", "where"),
    [
        ([[1, 2], 3], "/1"),
        ([1, [2]], "/1"),
        ([[1], [2.5]], "/1/0"),
        ([[1], None], "/1"),
        ([[1, "2"]], "/0/1"),
        (["1"], "/0"),
        ({}, ""),
    ],
)
def test_rows_of_ids_that_are_wrong_are_named_as_their_first_one_says(ids, where):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.post("/detokenize", json={"tokens": ids})
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "/tokens" + where

    run(scenario)


def test_a_body_that_is_no_json_object_is_refused():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            for content in (b"", b"[]", b"{"):
                answer = await client.post("/tokenize", content=content)
                assert answer.status_code == 400
                assert "message" in answer.json()["error"]

    run(scenario)


def test_a_begin_token_that_would_be_there_twice_is_reported():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = {"model": "dnabert2", "prompt": "[CLS]ACGT"}
            answer = await post(client, "/tokenize", **body)
            assert answer.headers["x-warptok-warning"] == "doubled-special-token"
            answer = await post(client, "/tokenize", **body, add_special_tokens=False)
            assert "x-warptok-warning" not in answer.headers
            answer = await post(client, "/tokenize", model="dnabert2", prompt="ACGT")
            assert "x-warptok-warning" not in answer.headers

    run(scenario)


def test_probes_and_lists():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            while (await client.get("/health")).status_code == 503:
                await asyncio.sleep(0.02)
            assert (await client.get("/ping")).content == b""
            assert "version" in (await client.get("/version")).json()
            listed = (await client.get("/v1/models")).json()["data"]
            described = {"object": "model", "created": 0, "owned_by": "warptok"}
            described |= {"root": "gpt2", "parent": None, "max_model_len": None}
            assert {"id": "gpt2", **described} in listed
            assert (await client.get("/v1/models/gpt2")).json()["id"] == "gpt2"
            assert (await client.get("/v1/models/nothing")).status_code == 404
            assert (await client.get("/info")).json()["model_id"] == "gpt2"
            info = (await client.get("/tokenizer_info?model=dnabert2")).json()
            assert (info["cls_token"], info["eos_token"]) == ("[CLS]", None)
            await upload(client, vocab_file="x")
            info = (await client.get("/tokenizer_info?model=chat")).json()
            assert info["chat_template"] == TEMPLATE
            assert info["eos_token"] == "<|endoftext|>"
            assert "vocab_file" not in info

    run(scenario)
