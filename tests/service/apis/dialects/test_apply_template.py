"""A chat as text, in the form of llama.cpp's /apply-template."""

from __future__ import annotations

from service.engines.cpu.engine import CpuEngine
from tests.service.apis.dialects.calls import CHAT, CHAT_TEXT, post, upload
from tests.support.app_client import serving
from tests.support.waiting import run

PATH = "/apply-template"
SYSTEM = {"role": "system", "content": "Be brief."}
TOOL_TEMPLATE = "{{ tools[0].function.name }}: {{ messages[0].content }} {{ mood }}"


def test_the_answer_has_the_text_that_the_template_makes():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            await upload(client)
            answer = await post(client, PATH, model="chat", messages=CHAT)
            assert answer.json() == {"prompt": CHAT_TEXT}
            encoded = await post(client, "/tokenize", model="chat", content=CHAT_TEXT)
            chat = await post(client, "/tokenize", model="chat", messages=CHAT)
            assert encoded.json()["tokens"] == chat.json()["tokens"]
            answer = await post(
                client, PATH, model="chat", messages=CHAT, add_generation_prompt=False
            )
            assert answer.json()["prompt"] == CHAT_TEXT.removesuffix("<|im_start|>assistant\n")

    run(scenario)


def test_a_last_message_of_the_assistant_is_the_begin_of_the_answer():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            await upload(client)
            for content in ("Sure!", [{"type": "text", "text": "Sure!"}]):
                begun = [*CHAT, {"role": "assistant", "content": content}]
                answer = await post(client, PATH, model="chat", messages=begun)
                assert answer.json() == {"prompt": CHAT_TEXT + "Sure!"}
            answer = await post(
                client, PATH, model="chat", messages=[*begun, {"role": "assistant", "content": "?"}]
            )
            assert answer.status_code == 400
            assert "2 or more assistant messages" in answer.json()["error"]["message"]

    run(scenario)


def test_tools_and_variables_reach_the_template():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            await upload(client, TOOL_TEMPLATE)
            tool = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
            answer = await post(
                client,
                PATH,
                model="chat",
                messages=CHAT,
                tools=[tool],
                chat_template_kwargs={"mood": "calm"},
            )
            assert answer.json() == {"prompt": "look_up: Hello, world calm"}

    run(scenario)


def test_refusals_have_the_shape_of_llama_cpp():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            for body, status in (
                ({"messages": CHAT, "model": "gpt2"}, 400),
                ({"messages": [], "model": "gpt2"}, 400),
                ({"messages": CHAT, "model": "none"}, 404),
            ):
                answer = await post(client, PATH, **body)
                assert answer.status_code == status
                error = answer.json()["error"]
                assert error["code"] == status
                assert error["type"] == "invalid_request_error"

    run(scenario)
