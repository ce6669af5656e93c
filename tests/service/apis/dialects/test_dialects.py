"""The routes of other systems: their bodies, answers, defaults and refusals; chats in a sandbox."""

from __future__ import annotations

import asyncio
import json

import pytest

from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import application_of, serving
from tests.support.waiting import run
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

ENGINE = CpuEngine()
HELLO = [15496, 11, 995]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPTIONS = (
    "{{ reasoning_effort | default('unset') }} {{ enable_thinking | default('unset') }} "
    "{{ documents }} {{ add_generation_prompt }}"
)
CHAT = [{"role": "user", "content": "Hello, world"}]
CHAT_TEXT = "<|im_start|>user\nHello, world<|im_end|>\n<|im_start|>assistant\n"


async def post(client, path, **body):
    return await client.post(path, json=body)


async def ids_of(client, text, name="gpt2", **options):
    body = {"vocabulary": name, "text": text} | options
    return (await client.post("/v1/encode", json=body)).json()["ids"]


async def upload(client, template=TEMPLATE, **config):
    """GPT-2 once more, under the name chat, with a template."""
    (document,) = write_vocabulary(load("gpt2"), "tokenizer.json").values()
    values = {"chat_template": template, "eos_token": "<|endoftext|>"} | config
    files = {
        "tokenizer": ("tokenizer.json", document),
        "config": ("tokenizer_config.json", json.dumps(values).encode()),
    }
    answer = await client.put("/v1/vocabularies/chat?replace=true", files=files)
    assert answer.status_code in (200, 201), answer.text


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


def test_a_chat_is_written_by_the_template_that_came_with_the_vocabulary():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, model_max_length=4096)
            expected = await ids_of(client, CHAT_TEXT)
            answer = (await post(client, "/tokenize", model="chat", messages=CHAT)).json()
            assert answer["tokens"] == expected
            assert answer["max_model_len"] == 4096
            parts = [{"role": "user", "content": [{"type": "text", "text": "Hello, world"}]}]
            answer = (await post(client, "/tokenize", model="chat", messages=parts)).json()
            assert answer["tokens"] == expected
            both = {"add_generation_prompt": True, "continue_final_message": True}
            answer = await post(client, "/tokenize", model="chat", messages=CHAT, **both)
            assert "Cannot set both" in answer.json()["error"]["message"]
            final = {"add_generation_prompt": False, "continue_final_message": True}
            answer = await post(client, "/tokenize", model="chat", messages=CHAT, **final)
            assert answer.json()["tokens"] == await ids_of(client, CHAT_TEXT.split("<|im_end|>")[0])

    run(scenario)


def test_requests_for_generation_become_what_engines_take():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            chat = await post(
                client,
                "/v1/chat/completions/render",
                model="chat",
                messages=CHAT,
                temperature=0.5,
                return_token_offsets=True,
            )
            document = chat.json()
            assert document["token_ids"] == document["input_ids"]
            assert document["token_ids"] == await ids_of(client, CHAT_TEXT)
            assert document["request_id"].startswith("chatcmpl-")
            assert document["token_offsets"][-1][1] == len(CHAT_TEXT)
            assert document["features"] is None
            one = (await post(client, "/v1/completions/render", prompt="Hello, world")).json()
            assert [each["token_ids"] for each in one] == [HELLO]
            assert one[0]["request_id"].startswith("cmpl-")
            many = {"prompt": ["Hello", "Hello, world"], "max_tokens": 5}
            many |= {"truncate_prompt_tokens": -1}
            answer = (await post(client, "/v1/completions/render", **many)).json()
            assert [each["token_ids"] for each in answer] == [[15496], HELLO]
            ready = (await post(client, "/v1/completions/render", prompt=[1, 2])).json()
            assert [each["token_ids"] for each in ready] == [[1, 2]]

    run(scenario)


def test_counts():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            answer = await post(
                client, "/v1/messages/count_tokens", model="chat", messages=CHAT, system="Be kind."
            )
            text = "<|im_start|>system\nBe kind.<|im_end|>\n" + CHAT_TEXT
            assert answer.json() == {"input_tokens": len(await ids_of(client, text))}
            answer = await post(client, "/v1/responses/input_tokens", input="Hello, world")
            assert answer.json() == {"object": "response.input_tokens", "input_tokens": 3}
            answer = await post(
                client,
                "/v1/responses/input_tokens",
                model="chat",
                input=CHAT[0]["content"],
                instructions="Be kind.",
            )
            assert answer.json()["input_tokens"] == len(await ids_of(client, text))

    run(scenario)


QWEN = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}" + TEMPLATE


async def upload_with_chat_tokens(client, template=QWEN, **config):
    """cl100k_base with the two special tokens of Qwen's chats, under the name qwen."""
    (document,) = write_vocabulary(load("cl100k_base"), "tokenizer.json").values()
    tokenizer = json.loads(document)
    first_id = 1 + max(each["id"] for each in tokenizer["added_tokens"])
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    tokenizer["added_tokens"] += [
        {"id": first_id + i, "content": content, "special": True, **flags}
        for i, content in enumerate(("<|im_start|>", "<|im_end|>"))
    ]
    files = {
        "tokenizer": ("tokenizer.json", json.dumps(tokenizer).encode()),
        "config": ("tokenizer_config.json", json.dumps({"chat_template": template} | config)),
    }
    answer = await client.put("/v1/vocabularies/qwen?replace=true", files=files)
    assert answer.status_code in (200, 201), answer.text


def test_a_text_of_responses_is_the_message_of_a_user():
    async def count(client, **body):
        answer = await post(client, "/v1/responses/input_tokens", model="qwen", **body)
        assert answer.status_code == 200, answer.text
        return answer.json()["input_tokens"]

    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload_with_chat_tokens(client)
            assert await count(client, input="Hello") == 9  # 1 if it was not a message.
            assert await count(client, input=[{"role": "user", "content": "Hello"}]) == 9
            assert await count(client, input="Hello", instructions="Hello") == 15
            tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
            function = {"type": "function", "function": {**tool}}
            del function["function"]["type"]
            rendered = await ids_of(client, json.dumps([function]), "qwen")
            assert await count(client, input="Hello", tools=[tool]) == 14 + len(rendered)
            unset = {"conversation": None, "previous_response_id": None, "prompt": None}
            assert await count(client, input="Hello", **unset, tools=[], truncation="auto") == 9

    run(scenario)


def test_an_effort_of_reasoning_reaches_the_template_of_responses():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, OPTIONS)
            body = {"model": "chat", "input": "Hello", "reasoning": {"effort": "low", "x": 1}}
            answer = await post(client, "/v1/responses/input_tokens", **body)
            expected = len(await ids_of(client, "low True None True"))
            assert answer.json()["input_tokens"] == expected

    run(scenario)


KEPT_ELSEWHERE = [
    ("/v1/responses/input_tokens", "conversation", "conv_1"),
    ("/v1/responses/input_tokens", "conversation", {"id": "conv_1"}),
    ("/v1/responses/input_tokens", "previous_response_id", "resp_1"),
    ("/v1/responses/input_tokens", "prompt", {"id": "pmpt_1"}),
    ("/v1/responses/input_tokens", "truncation", "sometimes"),
    ("/v1/responses/input_tokens", "tools/0/type", [{"type": "web_search"}]),
    ("/v1/responses/input_tokens", "input/0", [{"type": "item_reference", "id": "msg_1"}]),
    ("/v1/messages/count_tokens", "mcp_servers", [{"url": "http://x", "name": "x"}]),
    ("/v1/messages/count_tokens", "container", "container_1"),
    ("/v1/messages/count_tokens", "context_management", {"edits": [{"type": "x"}]}),
    (
        "/v1/messages/count_tokens",
        "tools/0/type",
        [{"type": "web_search_20250305", "name": "web_search"}],
    ),
]
"""Paths of routes, and fields that name what the system behind them keeps."""


@pytest.mark.slow
def test_what_is_kept_elsewhere_is_refused_at_its_place():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            for path, field, value in KEPT_ELSEWHERE:
                body = {"model": "chat", "messages": CHAT, "input": "Hello"}
                answer = await post(client, path, **body | {field.partition("/")[0]: value})
                assert answer.status_code == 400, field
                assert f"/{field}: " in answer.json()["error"]["message"]

    run(scenario)


def test_an_input_that_is_longer_than_the_model_is_counted_but_not_truncated():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, model_max_length=8)
            body = {"model": "chat", "input": "Hello"}
            answer = await post(client, "/v1/responses/input_tokens", **body)
            assert answer.json()["input_tokens"] > 8
            answer = await post(client, "/v1/responses/input_tokens", **body, truncation="auto")
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "/truncation")

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


ATTACKS = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{% for i in range(10 ** 9) %}x{% endfor %}",
    "{{ 'x' * 10 ** 12 }}",
    "{% set a = messages.append(1) %}",
    "{% if %}",
    "{{ raise_exception('only one message, please') }}",
]


@pytest.mark.parametrize("template", ATTACKS)
@pytest.mark.slow
def test_a_template_that_does_what_it_must_not_is_refused(template):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, template)
            answer = await post(client, "/tokenize", model="chat", messages=CHAT)
            assert answer.status_code == 400
            assert "template" in answer.json()["error"]["message"]

    run(scenario)


@pytest.mark.slow
def test_a_template_that_never_ends_is_ended_and_the_next_chat_is_answered():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            assert (await post(client, "/tokenize", model="chat", messages=CHAT)).status_code == 200
            loops = "{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3  # For years.
            await upload(client, loops)
            templates = application_of(client).templates
            templates.timeout_s, before = 0.3, templates.timeout_s
            answer = await post(client, "/tokenize", model="chat", messages=CHAT)
            assert answer.status_code == 400
            assert "too long" in answer.json()["error"]["message"]
            templates.timeout_s = before
            await upload(client)
            answer = await post(client, "/tokenize", model="chat", messages=CHAT)
            assert answer.status_code == 200

    run(scenario)


def test_chats_go_on_when_the_idle_process_of_their_templates_was_killed():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            for _ in range(3):
                answer = await post(client, "/tokenize", model="chat", messages=CHAT)
                assert answer.status_code == 200
                (idle,) = application_of(client).templates._idle
                idle._process.kill()
                await idle._process.wait()

    run(scenario)


def test_a_call_of_a_tool_is_given_to_the_template_as_values():
    template = "{% for m in messages %}{{ m.content }}{{ m.tool_calls | tojson }}{% endfor %}"
    function = {"name": "add", "arguments": '{"a": 1}'}
    message = {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}

    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, template)
            for url in ("/tokenize", "/v1/chat/completions/render"):
                answer = (await post(client, url, model="chat", messages=[message])).json()
                ids = answer.get("tokens") or answer.get("token_ids")
                text = '[{"function": {"name": "add", "arguments": {"a": 1}}}]'
                assert ids == await ids_of(client, text)

    run(scenario)


CHAT_ROUTES = [
    ("/tokenize", "messages"),
    ("/tokenize/count", "messages"),
    ("/v1/chat/completions/render", "messages"),
    ("/apply-template", "messages"),
    ("/v1/messages/count_tokens", "messages"),
    ("/v1/responses/input_tokens", "input"),
]
"""Paths of routes, and the field that has the messages."""


@pytest.mark.slow
def test_a_message_without_a_role_is_refused_with_its_place():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            for path, field in CHAT_ROUTES:
                for fields, fault in (({}, "is required"), ({"role": None}, "must be a text")):
                    message = {"type": "message", "content": "Hello", **fields}
                    body = {"model": "chat", "system": "Be kind.", field: [*CHAT[:1], message]}
                    answer = await post(client, path, **body)
                    assert answer.status_code == 400, path
                    assert f"/{field}/1/role: {fault}" in answer.json()["error"]["message"], path

    run(scenario)


def test_values_that_are_nested_too_deeply_are_refused():
    deep = "[" * 1010 + "]" * 1010
    chat = '"model": "chat", "messages": [{"role": "user"}]'
    values = f'{{{chat}, "chat_template_kwargs": {{"a": {deep}}}}}'

    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            answer = await client.post("/tokenize", content=values)
            assert (answer.status_code, "too deeply" in answer.text) == (400, True)

    run(scenario)


WRITTEN_BY_OPTIONS = [
    ({}, "unset unset None True"),
    ({"reasoning_effort": None}, "unset unset None True"),
    ({"reasoning_effort": "low"}, "low True None True"),
    ({"reasoning_effort": "none"}, "none False None True"),
    (
        {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
        "low False None True",
    ),
    (
        {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
        "low True None True",
    ),
    ({"chat_template_kwargs": {"reasoning_effort": "high"}}, "high unset None True"),
    ({"chat_template_kwargs": {"add_generation_prompt": False}}, "unset unset None True"),
    ({"chat_template_kwargs": {"documents": [1]}}, "unset unset [1] True"),
    ({"chat_template_kwargs": {"documents": [1]}, "documents": []}, "unset unset [] True"),
]
"""Fields of a request, and what the template OPTIONS writes for them."""


@pytest.mark.slow
def test_the_template_gets_the_options_that_vllm_gives_it():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, OPTIONS)
            for fields, text in WRITTEN_BY_OPTIONS:
                expected = await ids_of(client, text)
                body = {"model": "chat", "messages": CHAT} | fields
                answer = await post(client, "/tokenize", **body)
                assert answer.json()["tokens"] == expected, fields
                answer = await post(client, "/v1/chat/completions/render", **body)
                assert answer.json()["token_ids"] == expected, fields

    run(scenario)


def test_a_template_in_a_request_is_refused():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            answer = await post(
                client, "/tokenize", model="chat", messages=CHAT, chat_template="{{ messages }}"
            )
            assert answer.status_code == 400

    run(scenario)


def test_templates_are_kept_with_their_vocabulary(tmp_path):
    async def scenario():
        async with serving(ENGINE, store_dir=tmp_path) as (client, _):
            await upload(client)
        async with serving(ENGINE, store_dir=tmp_path) as (client, service):
            answer = await post(client, "/tokenize", model="chat", messages=CHAT)
            assert answer.status_code == 200
            await client.delete("/v1/vocabularies/chat")
            assert service.registry.configs.get("chat") is None
        assert [*tmp_path.iterdir()] == []

    run(scenario)


def test_the_template_for_tools_is_used_if_there_are_tools():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            named = [
                {"name": "default", "template": "plain"},
                {"name": "tool_use", "template": "{{ tools | tojson }}"},
            ]
            await upload(client, named)
            answer = await post(client, "/tokenize", model="chat", messages=CHAT)
            assert answer.json()["tokens"] == await ids_of(client, "plain")
            tools = [{"name": "é<b>"}]
            answer = await post(client, "/tokenize", model="chat", messages=CHAT, tools=tools)
            expected = await ids_of(client, json.dumps(tools, ensure_ascii=False))
            assert answer.json()["tokens"] == expected

    run(scenario)


def test_a_configuration_as_large_as_gemmas_is_accepted():
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    listed = {str(i): {"content": f"<unused{i}>", **flags} for i in range(10_000)}
    assert len(json.dumps(listed)) > 1_157_007  # Gemma 3's.

    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, note=listed)
            chat = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}
            assert (await post(client, "/tokenize", **chat)).status_code == 200

    run(scenario)


@pytest.mark.slow
def test_a_template_in_a_file_of_its_own_counts_and_outlives_a_restart(tmp_path):
    (document,) = write_vocabulary(load("gpt2"), "tokenizer.json").values()
    config = {"eos_token": "<|endoftext|>", "chat_template": "old", "note": ["中" * 200, 1, 2]}
    content = json.dumps(config, ensure_ascii=False, separators=(",", ":")).encode()
    template = b"\xef\xbb\xbf{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    chat = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}
    settings = {"store_dir": tmp_path, "max_template_bytes": len(content)}

    async def scenario():
        async with serving(ENGINE, **settings) as (client, _):
            url, first = "/v1/vocabularies/chat", ("tokenizer.json", document)
            files = {"a": first, "b": ("chat_template.jinja", template)}
            assert (await client.put(url, files=files)).status_code == 201
            assert (await post(client, "/tokenize", **chat)).json()["tokens"] == [15496]
            files["c"] = ("tokenizer_config.json", content)
            assert (await client.put(url, files=files)).status_code == 200
            assert (await post(client, "/tokenize", **chat)).json()["tokens"] == [15496, 50256]
            files["b"] = ("chat_template.jinja", b"x" * (len(content) + 1))
            answer = (await client.put(url, files=files)).json()
            assert (answer["status"], answer["where"]) == (422, "chat_template.jinja")
        async with serving(ENGINE, **settings) as (client, _):
            assert (await post(client, "/tokenize", **chat)).json()["tokens"] == [15496, 50256]

    run(scenario)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"[" * 100_000, "tokenizer_config.json: line 1"),
        (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", "tokenizer_config.json: line 1"),
        (b"", "tokenizer_config.json: line 1 column 1"),
        (b"[]", "tokenizer_config.json"),
        (b'{"a": "\\ud800"}', "tokenizer_config.json: a"),
    ],
)
def test_a_configuration_that_is_no_object_is_refused_with_its_place(content, where):
    (document,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
    files = {"a": ("tokenizer.json", document), "b": ("tokenizer_config.json", content)}

    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = (await client.put("/v1/vocabularies/chat", files=files)).json()
            assert (answer["status"], answer["code"]) == (422, "vocabulary_invalid")
            assert answer["where"].startswith(where)

    run(scenario)


@pytest.mark.parametrize("name", [[], {"a": 1}, None, 7])
def test_a_template_whose_name_is_no_text_is_none_and_leaves_the_others(name):
    (document,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
    odd = {"name": name, "template": "x"}
    default = {"name": "default", "template": "{{ messages[0].content }}"}

    async def scenario():
        async with serving(ENGINE) as (client, _):
            for templates, status in (([odd, default], 200), ([odd], 400)):
                config = json.dumps({"chat_template": templates})
                files = {"a": ("tokenizer.json", document), "b": ("tokenizer_config.json", config)}
                await client.put("/v1/vocabularies/chat?replace=true", files=files)
                body = {"model": "chat", "messages": [{"role": "user", "content": "ACG"}]}
                assert (await client.post("/tokenize", json=body)).status_code == status

    run(scenario)
