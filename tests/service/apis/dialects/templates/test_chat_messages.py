"""Messages of OpenAI's and Anthropic's clients as chat templates are given them."""

from __future__ import annotations

import json

import pytest

from service.apis.dialects.templates.chat_messages import (
    convert_anthropic,
    convert_messages,
    convert_responses,
    convert_tools,
    describe_tools,
)
from service.core.errors import InvalidRequest

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": [1, "é"]}}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "3"}
SCHEMA = {"type": "object", "properties": {}}
USER = {"role": "user", "content": "1 + 2?"}


def calls(arguments: object) -> list[dict]:
    function = {"name": "add", "arguments": arguments}
    return [{"id": "c1", "type": "function", "function": function}]


def text(content: str) -> dict:
    return {"type": "text", "text": content}


def test_a_content_is_a_text_or_parts_of_text_alone():
    parts = ["a", {"type": "text", "text": "b"}, {"type": "input_text", "text": "c"}]
    messages = [
        {"role": "user", "content": parts, "name": "n"},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
    ]
    assert convert_messages(messages) == [
        {"role": "user", "content": [text("a"), text("b"), text("c")], "name": "n"},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": []},
    ]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('{"a": [1, "é"]}', {"a": [1, "é"]}),
        ({"a": [1, "é"]}, {"a": [1, "é"]}),
        ("", {}),
        (None, {}),
        ("[2]", {}),
        ([2], {}),
        ('{"a": 12345678901234567890123}', {"a": 12345678901234567890123}),
        ("12345678901234567890123", {}),
        ('"{}"', {}),  # Encoded twice.
        ('{"a": ', {}),  # A model was interrupted.
        (" ", {}),
        ("null", {}),
        (7, {}),
    ],
)
def test_arguments_of_calls_are_values_and_not_json_in_a_string(arguments, wanted):
    message = {"role": "assistant", "content": None, "tool_calls": calls(arguments)}
    (made,) = convert_messages([message])
    assert made == {"role": "assistant", "content": [], "tool_calls": calls(wanted)}
    assert message["tool_calls"] == calls(arguments)  # The request's body stays.


@pytest.mark.parametrize("none", [None, []])
def test_no_calls_are_no_calls(none):
    message = {"role": "assistant", "content": "x", "tool_calls": none}
    assert convert_messages([message]) == [{"role": "assistant", "content": "x"}]


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ({"content": [{"type": "image_url"}]}, "/messages/1/content"),
        ({"content": [7]}, "/messages/1/content"),
        ({"content": 7}, "/messages/1/content"),
        ({"content": {"text": "x"}}, "/messages/1/content"),
        ({"tool_calls": "x"}, "/messages/1/tool_calls/0"),
        ({"tool_calls": [{"id": "c1"}]}, "/messages/1/tool_calls/0"),
        ({"tool_calls": calls("[" * 9999)}, "/messages/1/tool_calls/0/function/arguments"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(message, where):
    with pytest.raises(InvalidRequest) as refused:
        convert_messages([USER, {"role": "assistant", **message}])
    assert refused.value.where == where


def test_training_needs_no_role_and_keeps_arguments_that_are_a_list():
    assert convert_messages([{"from": "human"}], as_vllm=False)[0]["from"] == "human"
    message = {"role": "assistant", "content": "", "tool_calls": calls("[2]")}
    (made,) = convert_messages([message], as_vllm=False)
    assert made["tool_calls"] == calls([2])
    with pytest.raises(InvalidRequest) as refused:
        convert_messages([USER, {"from": "human"}])
    assert refused.value.where == "/messages/1/role"


def test_templates_receive_the_fields_of_messages_that_vllm_knows():
    fields = {"content": "x", "prefix": True, "tool_call_id": "c1", "tools": [1], "name": "n"}
    fields |= {"tool_calls": [CALL], "reasoning": "r", "task": 5, "weight": 0}
    thought = dict.fromkeys(("thinking", "reasoning", "reasoning_content"), "r")
    kept = {
        "system": {},
        "user": {},
        "assistant": {"tool_calls": [CALL], **thought},
        "tool": {"tool_call_id": "c1"},
        "developer": {"tools": [1]},
    }
    for role, own in kept.items():
        message = {"role": role, **fields}
        expected = {"role": role, "content": "x", "name": "n", **own}
        assert convert_messages([message]) == [expected], role
        (made,) = convert_messages([message], as_vllm=False)
        assert made == {**message, **{name: made[name] for name in thought}}, role


NAMES = ("reasoning", "reasoning_content", "thinking")


@pytest.mark.parametrize("name", NAMES)
def test_reasoning_has_all_names_that_templates_read(name):
    message = {"role": "assistant", "content": "3", name: "so"}
    (made,) = convert_messages([message])
    assert [made[each] for each in NAMES] == ["so"] * 3
    (made,) = convert_messages([message], as_vllm=False)  # transformers keeps other names out.
    assert (made["reasoning_content"], made["thinking"]) == ("so", "so")
    assert ("reasoning" in made) == (name == "reasoning")


def test_the_first_name_of_vllm_or_of_transformers_has_the_reasoning():
    message = {"role": "assistant", "content": "3", "reasoning_content": "b", "reasoning": "a"}
    (made,) = convert_messages([message])
    assert [made[each] for each in NAMES] == ["a"] * 3
    (made,) = convert_messages([message], as_vllm=False)
    assert [made[each] for each in NAMES] == ["a", "b", "b"]


def test_claude_codes_billing_header_is_removed_from_a_system_message():
    header = "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"
    parts = [text(header), text(f"{header}\nBe kind."), text(""), text("x")]
    for role in ("system", "user"):
        messages = [
            {"role": role, "content": content}
            for content in (header, f"{header}\nBe\nkind.", f"a {header}", parts)
        ]
        made = [message["content"] for message in convert_messages(messages)]
        if role == "system":
            shortened = [text("Be kind."), text(""), text("x")]
            assert made == [[], "Be\nkind.", f"a {header}", shortened]
        else:
            assert made == [message["content"] for message in messages]
    kept = convert_messages([{"role": "system", "content": header}], as_vllm=False)
    assert kept == [{"role": "system", "content": header}]


def test_fields_that_are_null_are_absent():
    message = {"role": "assistant", "content": "3", "reasoning_content": None, "refusal": None}
    assert convert_messages([message]) == [{"role": "assistant", "content": "3"}]


def test_a_result_in_parts_becomes_one_text_for_every_template():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert convert_messages([{"role": "tool", "content": parts}])[0]["content"] == "a\nb"


def test_refusals_and_thoughts_are_parts_of_text():
    parts = [
        {"type": "refusal", "refusal": "No."},
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": None},
    ]
    (made,) = convert_messages([{"role": "assistant", "content": parts}])
    texts = [{"type": "text", "text": "No."}, {"type": "text", "text": "Hm."}]
    assert made["content"] == texts
    (empty,) = convert_messages([{"role": "user", "content": parts[-1:]}])
    assert empty["content"] == []


def test_anthropics_calls_and_results():
    messages = [
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I add.", "signature": "s"},
                {"type": "redacted_thinking", "data": "s"},
                {"type": "text", "text": "So:"},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": [1, "é"]}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
                {"type": "text", "text": "Thanks."},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "3"}],
                }
            ],
        },
        {"role": "user", "content": []},
    ]
    thought = dict.fromkeys(("reasoning", "reasoning_content", "thinking"), "I add.")
    assert convert_messages(
        convert_anthropic(messages, [{"type": "text", "text": "Be kind."}])
    ) == [
        {"role": "system", "content": [text("Be kind.")]},
        USER,
        {"role": "assistant", "content": [text("So:")], "tool_calls": [CALL], **thought},
        RESULT,
        {"role": "user", "content": [text("Thanks.")]},
        RESULT,
        {"role": "user", "content": []},
    ]


@pytest.mark.parametrize("block", [{"type": "image"}, 7, {}])
def test_anthropics_blocks_that_are_no_text_are_refused(block):
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [block]}
    for blocks in ([block], [result]):
        with pytest.raises(InvalidRequest, match="other content has no ids"):
            convert_messages(convert_anthropic([{"role": "user", "content": blocks}]))


def test_items_of_responses():
    items = [
        USER,
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "so"}]},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "add",
            "arguments": '{"a": [1, "é"]}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "3."}],
        },
    ]
    assert convert_messages(convert_responses(items)) == [
        USER,
        {"role": "assistant", "content": []}
        | dict.fromkeys(("reasoning", "reasoning_content", "thinking"), "so"),
        {"role": "assistant", "content": [], "tool_calls": [CALL]},
        RESULT,
        {"role": "assistant", "content": [text("3.")]},
    ]
    with pytest.raises(InvalidRequest) as refused:
        convert_responses([USER, "x"])
    assert refused.value.where == "/input/1"


def test_tools_of_all_are_described_as_openais_chats_do():
    function = {"name": "add", "description": "adds", "parameters": SCHEMA}
    chat = {"type": "function", "function": function}
    anthropic = {"name": "add", "description": "adds", "input_schema": SCHEMA}
    assert convert_tools([chat, {"type": "function", **function}, anthropic]) == [chat] * 3
    assert convert_tools([{"type": "custom", **anthropic}], ("custom", "function")) == [chat]
    with pytest.raises(InvalidRequest) as refused:
        convert_tools([chat, {"type": "web_search", "name": "web"}])
    assert refused.value.where == "/tools/1/type"
    assert convert_tools(None) is None


def test_templates_receive_tools_with_vllms_fields_in_its_order():
    tools = [
        {
            "function": {
                "strict": True,
                "parameters": {"z": 1, "a": {"title": "T"}},
                "cache_control": {"type": "ephemeral"},
                "name": "add",
            },
            "cache_control": {"type": "ephemeral"},
            "type": "function",
        },
        {"function": {"name": "f", "description": "d", "strict": None}, "defer_loading": False},
        {"name": "own"},
    ]
    assert json.dumps(describe_tools(tools)) == (
        '[{"type": "function", "function": {"name": "add", "description": null, '
        '"parameters": {"z": 1, "a": {"title": "T"}}, "strict": true}}, '
        '{"type": "function", "function": {"name": "f", "description": "d", "parameters": null, '
        '"defer_loading": false}, "defer_loading": false}, {"name": "own"}]'
    )
    assert describe_tools(None) is None
    assert describe_tools([]) == []
    for function in ({}, {"name": 7}):
        with pytest.raises(InvalidRequest) as refused:
            describe_tools([tools[0], {"function": function}])
        assert refused.value.where == "/tools/1/function/name"
