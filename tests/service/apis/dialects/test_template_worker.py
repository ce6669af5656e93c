"""Chat templates as jinja2 runs them here, beside what transformers makes of the same."""

from __future__ import annotations

import pytest

from service.apis.dialects import template_worker
from service.apis.dialects.template_worker import (
    COMPILED_CHARS,
    MAX_COMPILED,
    Templates,
    make_answer,
    render,
)

VALUE = {"b": 1, "a": ["é", "<'&"]}


def rendered(template: str, **variables: object) -> str:
    return render(Templates(), template, variables, 1000)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("", """{"b": 1, "a": ["é", "<'&"]}"""),
        ("separators=(',', ':')", """{"b":1,"a":["é","<'&"]}"""),
        ("sort_keys=true", """{"a": ["é", "<'&"], "b": 1}"""),
        ("ensure_ascii=true", """{"b": 1, "a": ["\\u00e9", "<'&"]}"""),
        ("true", """{"b": 1, "a": ["\\u00e9", "<'&"]}"""),  # Without a name, ensure_ascii.
        ("indent=1", """{\n "b": 1,\n "a": [\n  "é",\n  "<'&"\n ]\n}"""),
    ],
)
def test_json_is_written_as_the_filters_arguments_say(arguments, wanted):
    assert rendered(f"{{{{ value | tojson({arguments}) }}}}", value=VALUE) == wanted


def test_what_the_block_generation_sets_is_gone_behind_it():
    block = "{% generation %}{% set x = 'b' %}{{ m }}{{ x }}{% endgeneration %}"
    template = "{% set x = 'a' %}{% for m in 'mn' %}" + block + "{{ x }}{% endfor %}"
    assert rendered(template) == "mbanba"


def test_a_template_is_compiled_once_and_keeps_nothing_of_a_chat():
    templates = Templates()
    template = "{% if not x %}{% set x = 'set' %}{% endif %}{{ x }}{{ y }}"
    compiled = templates.get(template)
    assert render(templates, template, {"x": "given", "y": 1}, 100) == "given1"
    assert render(templates, template, {}, 100) == "set"
    assert templates.get(template) is compiled


def test_the_number_and_length_of_compiled_templates_have_limits():
    templates = Templates()
    for number in range(MAX_COMPILED + 1):
        assert render(templates, f"{{{{ {number} }}}}", {}, 100) == str(number)
    assert len(templates.compiled) == MAX_COMPILED
    for text in ("x" * COMPILED_CHARS, "y" * (COMPILED_CHARS + 1)):
        assert render(templates, text, {}, 1 << 20) == text
    assert "x" * COMPILED_CHARS in templates.compiled
    assert "y" * (COMPILED_CHARS + 1) not in templates.compiled


@pytest.mark.parametrize("failures", [1, 2])
def test_where_memory_is_short_no_template_stays(monkeypatch, failures):
    templates, times = Templates(), []

    def short_of_memory(*_: object, **__: object) -> str:
        times.append(len(templates.compiled))
        if len(times) <= failures:
            raise MemoryError
        return "text"

    render(templates, "{{ 1 }}", {}, 100)
    monkeypatch.setattr(template_worker, "render", short_of_memory)
    answer = make_answer(templates, {})
    assert times == [1, 0]
    assert answer == ({"text": "text"} if failures == 1 else {"error": "MemoryError: "})
