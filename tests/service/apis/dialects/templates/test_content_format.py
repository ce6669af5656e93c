"""Which chat templates are given a content in parts, and which one text."""

from __future__ import annotations

import pytest

from service.apis.dialects.templates.content_format import (
    ContentFormat,
    detect_format,
    give_contents,
    join_parts,
    takes_parts,
)
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


def test_empty_parts_are_omitted_where_parts_are_joined():
    parts = [{"type": "text", "text": text} for text in ("", "a", "", "b", "")]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": []}]
    assert [message["content"] for message in join_parts(messages)] == ["a\nb", ""]


@pytest.mark.parametrize(
    ("template", "format"),
    [
        ("{% for m in messages %}" + loop("m.content") + "{% endfor %}", "parts"),
        ("{% for m in messages[1:] %}" + loop("m['content'] | list") + "{% endfor %}", "parts"),
        (
            "{% set a = messages %}{% set b = a[0:] %}{% for m in b %}"
            + loop("m.content")
            + "{% endfor %}",
            "parts",
        ),
        (MACRO + "{% for m in messages %}{{ shown(m.content) }}{% endfor %}", "parts"),
        (MACRO + "{% for m in messages %}{{ shown(content=m.content) }}{% endfor %}", "parts"),
        (MACRO + "{{ shown(messages[0].content) }}", "both"),
        (
            "{% macro shown(c) %}"
            + loop("c")
            + "{% endmacro %}{% for m in messages %}{{ shown(m.content) }}{% endfor %}",
            "parts",
        ),
        (
            "{% for m in messages %}{% set content = m.content %}"
            + loop("content")
            + "{% endfor %}",
            "parts",
        ),
        (
            "{% for m in messages %}{% set c = m.content %}" + loop("c") + "{% endfor %}",
            "both",
        ),
        ("{% for m in messages %}" + loop("m.get('content')") + "{% endfor %}", "both"),
        (loop("messages[0].content"), "both"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "text"),
    ],
)
def test_the_form_of_contents_is_found_as_vllm_finds_it(template, format):
    assert detect_format(Templates().jinja.parse(template)) == ContentFormat(format)


def test_texts_become_parts_for_a_template_in_which_vllm_finds_a_loop():
    text = {"role": "user", "content": " a "}
    call = {"role": "assistant", "content": []}
    result = {"role": "tool", "content": "3"}
    messages = [text, call, result]
    part = {"type": "text", "text": " a "}
    given = give_contents(messages, ContentFormat.PARTS)
    assert given == [{"role": "user", "content": [part]}, call, result]
    given = give_contents(messages, ContentFormat.BOTH)
    assert given == [text, {"role": "assistant", "content": ""}, result]
    template = (
        "{% for message in messages %}{% if message.content is string %}{{ message.content }}"
        "{% else %}" + loop("message.content") + "{% endif %}{% endfor %}"
    )
    chat = {"messages": [text]}
    assert render(Templates(), template, chat, 100) == b"a"  # As Llama 4's template trims parts.


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
