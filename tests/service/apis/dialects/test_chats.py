"""Chats of other systems' clients: what their templates receive, and what they may not do."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from tests.service.apis.dialects.calls import (
    CHAT,
    CHAT_TEXT,
    ENGINE,
    HELLO,
    OPTIONS,
    ids_of,
    post,
    upload,
)
from tests.support.app_client import application_of, serving
from tests.support.waiting import run
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary
from vocabularies.model import canonical


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

    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, template)
            for arguments in ('{"a": 1}', '{"a": [NaN, -Infinity]}'):
                function = {"name": "add", "arguments": arguments}
                calls = [{"function": function}]
                message = {"role": "assistant", "content": None, "tool_calls": calls}
                for url in ("/tokenize", "/v1/chat/completions/render"):
                    answer = (await post(client, url, model="chat", messages=[message])).json()
                    ids = answer.get("tokens") or answer.get("token_ids")
                    text = f'[{{"function": {{"name": "add", "arguments": {arguments}}}}}]'
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
            given = {"chat_template": "{{ messages }}"}
            for path in ("/tokenize", "/v1/chat/completions/render", "/apply-template"):
                answer = await post(client, path, model="chat", messages=CHAT, **given)
                assert answer.status_code == 400
                assert "/chat_template: must be null" in answer.text
                body = {"model": "chat", "messages": CHAT, "chat_template_kwargs": given}
                answer = await post(client, path, **body)
                assert answer.status_code == 400
                assert "/chat_template_kwargs/chat_template: must be null" in answer.text

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


def test_a_chat_has_the_template_of_its_vocabulary_while_both_are_replaced(monkeypatch):
    begun, may_end = threading.Event(), threading.Event()
    (document,) = write_vocabulary(load("cl100k_base"), "tokenizer.json").values()
    values = {"chat_template": "other", "model_max_length": 22}
    files = {
        "a": ("tokenizer.json", document),
        "b": ("tokenizer_config.json", json.dumps(values).encode()),
    }

    def write(vocabulary):
        begun.set()
        assert may_end.wait(60)
        return b"{}"

    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, model_max_length=11)
            body = {"model": "chat", "messages": CHAT}
            before = (await post(client, "/tokenize", **body)).json()
            assert before["max_model_len"] == 11
            monkeypatch.setattr(canonical, "to_bytes", write)
            url = "/v1/vocabularies/chat?replace=true"
            put = asyncio.ensure_future(client.put(url, files=files))
            assert await asyncio.to_thread(begun.wait, 60)
            assert (await post(client, "/tokenize", **body)).json() == before
            may_end.set()
            assert (await put).status_code == 201
            after = (await post(client, "/tokenize", **body)).json()
            assert after["max_model_len"] == 22
            assert after["tokens"] == await ids_of(client, "other", "cl100k_base")

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
            kwargs = {"tools": tools}  # As they are, unless the request has the field, too.
            body = {"model": "chat", "messages": CHAT, "chat_template_kwargs": kwargs}
            assert (await post(client, "/tokenize", **body)).json()["tokens"] == expected
            answer = await post(client, "/tokenize", **body, tools=[{"name": "x"}])
            assert answer.json()["tokens"] == await ids_of(client, '[{"name": "x"}]')

    run(scenario)


def test_a_final_message_is_continued_without_a_generation_prompt():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            expected = await ids_of(client, CHAT_TEXT.split("<|im_end|>")[0])
            body = {"model": "chat", "messages": CHAT, "continue_final_message": True}
            assert (await post(client, "/tokenize", **body)).json()["tokens"] == expected
            answer = await post(client, "/tokenize", **body, add_generation_prompt=True)
            assert answer.status_code == 400

    run(scenario)


def test_ids_of_a_prompt_that_another_stage_has_rendered_are_repeated():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client)
            path = "/v1/chat/completions/render"
            expected = await ids_of(client, CHAT_TEXT)
            params = {"remote_host": "a", "prompt_token_ids": [7, 8]}
            body = {"model": "chat", "messages": CHAT, "kv_transfer_params": params}
            answer = (await post(client, path, **body)).json()
            assert answer["token_ids"] == answer["input_ids"] == [7, 8]
            kept = answer["sampling_params"]["extra_args"]["kv_transfer_params"]
            assert kept == {"remote_host": "a"}
            body["kv_transfer_params"] = {"prompt_token_ids": [7]}
            assert (await post(client, path, **body, echo=True)).json()["token_ids"] == expected
            body["kv_transfer_params"] = {"prompt_token_ids": None}
            assert (await post(client, path, **body)).json()["token_ids"] == expected
            for wrong, place in ([], ""), ([-1], "/0"), (["a"], "/0"), (7, ""):
                body["kv_transfer_params"] = {"prompt_token_ids": wrong}
                answer = await post(client, path, **body)
                assert answer.status_code == 400
                where = "/kv_transfer_params/prompt_token_ids"
                assert answer.json()["error"]["param"] == where + place

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
