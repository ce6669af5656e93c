"""Which chat templates are given a content in parts, and which one text."""

from __future__ import annotations

import pytest

from service.apis.dialects.templates.content_format import join_parts, takes_parts
from service.apis.dialects.templates.worker import Templates, render
from tests.service.apis.dialects.calls import ENGINE, ids_of, post, upload
from tests.support.app_client import serving
from tests.support.waiting import run

PARTS = [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]


def loop(content: str, part: str = "part['text'] | trim") -> str:
    return f"{{% for part in {content} %}}{{{{ {part} }}}}{{% endfor %}}"


MACRO = "{% macro shown(content) %}" + loop("content") + "{% endmacro %}"


@pytest.mark.parametrize(
    "body",
    [
        loop("message['content']"),
        loop("message.content"),
        loop("message.get('content')"),
        loop("message.content | selectattr('type', 'equalto', 'text')"),
        loop("message.content or []"),
        loop("message.content[0:]", "part.text | trim if part.type == 'text'"),
        "{% set c = message.content %}{% set d = c if c else [] %}" + loop("d"),
        MACRO + "{{ shown(message.content) }}",
        MACRO + "{{ shown(content=message.content) }}",
        MACRO + "{% macro outer(m) %}{{ shown(m.content) }}{% endmacro %}{{ outer(message) }}",
        "{% if message.content is string %}{{ message.content }}{% else %}"
        + loop("message.content")
        + "{% endif %}",
    ],
)
def test_a_loop_over_a_content_that_asks_for_parts_is_given_them(body):
    template = "{% for message in messages %}" + body + "{% endfor %}"
    templates = Templates()
    assert takes_parts(templates.jinja.parse(template))
    assert (
        render(templates, template, {"messages": [{"role": "user", "content": PARTS}]}, 100)
        == b"ab"
    )


@pytest.mark.parametrize(
    "body",
    [
        "{{ message['content'] }}",
        "{% set content = '' + message['content'] %}{{ content }}",
        "{% for word in message.content %}{{ word }}{% endfor %}",  # Its letters.
        "{{ message.content }}{% set calls = message.content %}"  # As Mistral's.
        "{% for call in calls %}{{ call.function }}{% endfor %}",
        "{{ message.content }}{% for tool in tools %}{{ tool.type }}{% endfor %}",
        "{{ message.content }}{% for line in message.content.split('x') %}"
        "{{ line.type }}{% endfor %}",
    ],
)
def test_every_other_template_is_given_one_text(body):
    template = "{% for message in messages %}" + body + "{% endfor %}"
    templates = Templates()
    assert not takes_parts(templates.jinja.parse(template))
    messages = [{"role": "user", "content": PARTS}]
    assert render(templates, template, {"messages": messages, "tools": []}, 100) == b" a \nb"


def test_a_text_stays_one_text():
    messages = [{"role": "user", "content": "ab"}, {"role": "tool"}]
    assert join_parts(messages) == messages


def test_parts_of_a_chat_reach_a_template_that_goes_over_them():
    """Each part has its own blanks cut off, as Gemma 3's template does it; no line break is put."""
    template = "{% for m in messages %}" + loop("m.content") + "<|endoftext|>{% endfor %}"
    chat = {"model": "chat", "messages": [{"role": "user", "content": PARTS}]}
    final = {"add_generation_prompt": False, "continue_final_message": True}

    async def scenario():
        async with serving(ENGINE) as (client, _):
            await upload(client, template)
            answer = await post(client, "/tokenize", **chat)
            assert answer.json()["tokens"] == await ids_of(client, "ab<|endoftext|>")
            answer = await post(client, "/tokenize", **chat, **final)
            assert answer.json()["tokens"] == await ids_of(client, "ab")
            image = [{"role": "user", "content": [*PARTS, {"type": "image_url"}]}]
            answer = await post(client, "/tokenize", model="chat", messages=image)
            assert answer.status_code == 400

    run(scenario)
