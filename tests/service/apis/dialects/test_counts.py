"""Counts of Anthropic's messages and OpenAI's Responses: what is counted, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.service.apis.dialects.calls import (
    CHAT,
    CHAT_TEXT,
    ENGINE,
    OPTIONS,
    TEMPLATE,
    ids_of,
    post,
    upload,
)
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary


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
            described = {"name": "f", "description": None, "parameters": {"type": "object"}}
            function = {"type": "function", "function": described}
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


IMAGE = {"type": "input_image", "image_url": "x"}
FAULTS = [
    ("/v1/responses/input_tokens", {"input": []}, "/input"),
    ("/v1/responses/input_tokens", {"input": [{"role": "user", "content": [IMAGE]}]}, "0/content"),
    (
        "/v1/responses/input_tokens",
        {"input": [*CHAT, {"type": "function_call_output", "call_id": "c", "output": [IMAGE]}]},
        "/input/1/output",
    ),
    ("/v1/responses/input_tokens", {"model": "gpt2", "input": CHAT}, "/input"),
    ("/v1/messages/count_tokens", {"messages": CHAT, "system": 5}, "/system"),
    ("/v1/messages/count_tokens", {"messages": CHAT, "system": [IMAGE]}, "/system"),
    (
        "/v1/messages/count_tokens",
        {"system": "Hi", "messages": [*CHAT, {"role": "user", "content": [IMAGE]}]},
        "/messages/1/content",
    ),
    (
        "/v1/messages/count_tokens",
        {"system": "Hi", "messages": [{"role": "user", "content": 5}]},
        "/messages/0/content",
    ),
    ("/v1/messages/count_tokens", {"messages": CHAT, "tools": [{}]}, "/tools/0/name"),
    ("/v1/messages/count_tokens", {"messages": CHAT, "tools": [{"name": 5}]}, "/tools/0/name"),
]
"""Paths of routes, bodies, and the places of their faults."""


def test_a_fault_has_the_place_that_it_has_in_the_request():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            for path, body, where in FAULTS:
                instructions = {} if body.get("input") == [] else {"instructions": "Be kind."}
                answer = await post(client, path, **{"model": "chat"} | instructions | body)
                assert answer.status_code == 400, body
                assert f"{where}: " in answer.json()["error"]["message"], answer.text

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
