"""Chats of all forms that clients send, by name: the messages, tools and options of a request."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]
Chat = dict[str, Any]

WEATHER: Message = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather <now> & "later" – für Städte',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Stadt, 都市"},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "days": {"type": "integer", "minimum": 0, "maximum": 1e22, "default": 3},
            },
            "required": ["city"],
        },
    },
}
ADD: Message = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "number"},
                "list": {"type": "array", "items": {"type": ["string", "null"]}},
                "most": {"type": "integer", "maximum": 2**64},
            },
        },
    },
}
MARKS = "<|im_start|>system\n<|im_end|> <|eot_id|> <s> </s> [INST] x [/INST] <think> <bos>"
FINAL = {"add_generation_prompt": False, "continue_final_message": True}


def user(content: Any, **fields: Any) -> Message:
    """Make a message of a user."""
    return {"role": "user", "content": content, **fields}


def assistant(content: Any, **fields: Any) -> Message:
    """Make a message of the assistant."""
    return {"role": "assistant", "content": content, **fields}


def call(name: str, arguments: Any, call_id: str = "call00001") -> Message:
    """Make a call of a tool."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def result(content: Any, call_id: str = "call00001") -> Message:
    """Make the result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def system(content: Any) -> Message:
    """Make a system message."""
    return {"role": "system", "content": content}


def parts(*texts: str) -> list[Message]:
    """Make a content in parts."""
    return [{"type": "text", "text": text} for text in texts]


NUMBERS = '{"n": 1.50, "most": 12345678901234567890123, "e": 1e5, "x": null, "y": [true, 1e-7]}'
CHATS: dict[str, Chat] = {
    "one message": {"messages": [user("Hello, world!")]},
    "system": {"messages": [system("You are terse."), user("Hi")]},
    "turns": {"messages": [user("Hi"), assistant("Hello."), user("Why?"), assistant("So.")]},
    "many turns": {
        "messages": [
            system("s " * 300),
            *(
                message
                for i in range(8)
                for message in (user(f"question {i} " * 40), assistant(f"answer {i} " * 40))
            ),
            user("end"),
        ]
    },
    "no generation prompt": {
        "messages": [user("Hi"), assistant("Hello.")],
        "add_generation_prompt": False,
    },
    "tools": {"messages": [user("Weather in Paris?")], "tools": [WEATHER, ADD]},
    "no tools": {"messages": [user("Weather in Paris?")], "tools": []},
    "arguments as an object": {
        "messages": [
            user("Weather?"),
            assistant("", tool_calls=[call("get_weather", {"city": "Paris", "z": {"é": "<b>"}})]),
            result('{"temp": 20}'),
            assistant("20 degrees."),
            user("Thanks"),
        ],
        "tools": [WEATHER],
    },
    "arguments as a string": {
        "messages": [
            user("Weather?"),
            assistant(None, tool_calls=[call("get_weather", NUMBERS)]),
            result("warm, 20°"),
        ],
        "tools": [WEATHER],
    },
    "integers of any size": {
        "messages": [user("Add"), assistant("", tool_calls=[call("add", {"a": 10**20})])],
        "add_generation_prompt": False,
        "tools": [ADD],
    },
    "two calls": {
        "messages": [
            user("Weather?"),
            assistant(
                "Let me see.",
                tool_calls=[call("get_weather", {"city": "A"}), call("add", "{}", "call00002")],
            ),
            result("warm"),
            result("3", "call00002"),
        ],
        "tools": [WEATHER, ADD],
    },
    "result in parts": {
        "messages": [
            user("Weather?"),
            assistant(None, tool_calls=[call("get_weather", {})]),
            result(parts("warm", "wet")),
        ],
    },
    "reasoning_content": {
        "messages": [
            user("2+2?"),
            assistant("4", reasoning_content="Two and two."),
            user("3+3?"),
            assistant("6", reasoning_content="Three and three."),
        ],
        "add_generation_prompt": False,
    },
    "reasoning": {"messages": [user("2+2?"), assistant("4", reasoning="Two."), user("3+3?")]},
    "reasoning in the text": {
        "messages": [user("2+2?"), assistant("<think>\nTwo.\n</think>\n\n4"), user("3+3?")]
    },
    "parts": {
        "messages": [
            user(parts("One", "Two")),
            assistant("x"),
            user(parts(" Three ")),
        ]
    },
    "empty contents": {"messages": [user(""), assistant(""), user("  \n ")]},
    "continued": {"messages": [user("Say hi"), assistant("Well, hi ")], **FINAL},
    "continued with a text that is elsewhere, too": {
        "messages": [user("Say a b"), assistant("hi"), user("a"), assistant("a")],
        **FINAL,
    },
    "continued in parts": {"messages": [user("Hi"), assistant(parts("One", "Two"))], **FINAL},
    "characters": {
        "messages": [
            system("Antworte 日本語で 🙂"),
            user("Ça va? \u0301e e\u0301 ﷺ \u200b 𝔘𝔫𝔦 \r\n tab\t\u2028"),
            assistant("はい。"),
            user("한국어 ไทย עברית العربية"),
        ]
    },
    "special tokens in texts": {
        "messages": [user(MARKS), assistant("<|im_end|>"), user("<|endoftext|>")]
    },
    "documents": {
        "messages": [user("What?")],
        "documents": [{"title": "Doc é", "text": "Text <1>", "doc_id": "1"}, {"text": "2"}],
    },
    "variables": {
        "messages": [system("x"), user("Hi")],
        "chat_template_kwargs": {"enable_thinking": False, "date_string": "01 Jan 2025"},
    },
    "text like a template": {
        "messages": [user("a < b && c {{ x }} {% y %} {# z #}\n\n\n"), assistant("\n\nlead")]
    },
    "fields that are null": {
        "messages": [
            user("Hi", name="bob"),
            assistant("ho", refusal=None, reasoning_content=None, tool_calls=[], audio=None),
            user("x"),
        ]
    },
    "other roles": {
        "messages": [{"role": "developer", "content": "Dev"}, user("a"), user("b"), system("c")]
    },
}
