"""Chat templates as jinja2 runs them here, beside what transformers makes of the same."""

from __future__ import annotations

import pytest

from service.chat_worker import environment, render

VALUE = {"b": 1, "a": ["é", "<'&"]}


def rendered(template: str, **variables: object) -> str:
    return render(environment(), template, variables, 1000)


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
