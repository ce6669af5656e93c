"""Converts messages of OpenAI's and Anthropic's clients to the form that chat templates read.

    {"role": "user", "content": [{"type": "text", "text": text}, …]}
    {"role": "assistant", "content": text, "tool_calls": [{"function": {"name", "arguments": {…}}}]}
    {"role": "tool", "tool_call_id": id, "content": text}

OpenAI's clients send arguments as a string that contains JSON, Anthropic's clients send calls and
results as blocks of a message's content, and OpenAI's Responses contain each as a separate item.
The conversion is the same as in vLLM, so that the ids are the same. A content with several parts
keeps its parts; they are joined later if the template requires it.
"""

from __future__ import annotations

import json
from typing import Any

from service.apis.dialects.templates.content_format import join_parts
from service.core.errors import InvalidRequest

Message = dict[str, Any]
TEXTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""The types of text parts, and the field of each type that contains the text."""
# The fields for an assistant's reasoning, in the order of vLLM and in that of transformers; only
# gpt-oss' template reads `thinking`.
REASONING = ("reasoning", "reasoning_content", "thinking")
REASONING_OF_TRANSFORMERS = ("reasoning_content", "thinking", "reasoning")
# The fields that templates receive besides role and content: those of some roles, and of all.
FIELDS_OF_ROLES = {
    "assistant": ("tool_calls", *REASONING),
    "tool": ("tool_call_id",),
    "developer": ("tools",),
}
TEXT_FIELDS = ("name", "task")
# The beginning of a line that Claude Code writes before the system prompt.
BILLING = "x-anthropic-billing-header"
HIDDEN = ("redacted_thinking",)  # Blocks that the model does not receive.
DEFERRED = "defer_loading"  # A tool may contain this field, or its function.


class NotFinite(float):
    """NaN or an infinity in arguments, which only Python's json writes; orjson refuses this class.

    orjson would write a float of this value as null.
    """


def convert_messages(messages: list[Message], as_vllm: bool = True) -> list[Message]:
    """Convert the contents of messages to text or text parts, and the arguments of calls to values.

    Args:
        messages: the messages.
        as_vllm: do what vLLM does before it calls transformers: refuse a message without a role,
            remove fields that it does not know and Claude Code's billing header, replace arguments
            that are not an object by {}, and store reasoning under all names.

    Raises:
        InvalidRequest: a message has no role, a content other than text, or calls that cannot be
            parsed.
    """
    converted = []
    for number, message in enumerate(messages):
        where = f"/messages/{number}"
        if as_vllm:
            check_role(message, where)
        read = _text if message.get("role") == "tool" else _content
        content = read(message.get("content"), f"{where}/content")
        if as_vllm:
            fields = _keep_fields(message, content)
        else:
            fields = {name: value for name, value in message.items() if value is not None}
            fields["content"] = content
        if calls := fields.get("tool_calls"):
            fields["tool_calls"] = _calls(calls, f"{where}/tool_calls", as_vllm)
        else:
            fields.pop("tool_calls", None)
        converted.append(_name_reasoning(fields, as_vllm))
    return converted


def _keep_fields(message: Message, content: Any) -> Message:
    """Return the fields of a message that vLLM gives to transformers, in its order."""
    role = message["role"]
    kept = {"role": role, "content": _remove_billing(content) if role == "system" else content}
    for name in FIELDS_OF_ROLES.get(role, ()):
        if (value := message.get(name)) is not None:
            kept[name] = value
    for name in TEXT_FIELDS:
        if isinstance(message.get(name), str):
            kept[name] = message[name]
    return kept


def check_role(message: Message, where: str) -> None:
    """Check that a message has a role.

    Raises:
        InvalidRequest: the role is missing, or is not a string.
    """
    if not isinstance(message.get("role"), str):
        fault = "must be a text" if "role" in message else "is required"
        raise InvalidRequest(fault, f"{where}/role")


def _name_reasoning(message: Message, as_vllm: bool) -> Message:
    """Store an assistant's reasoning under the names that templates read."""
    for name in REASONING if as_vllm else REASONING_OF_TRANSFORMERS:
        if name in message:
            reasoning = message[name]
            own = {"reasoning": reasoning} if as_vllm else {}
            return {"thinking": reasoning, **message, "reasoning_content": reasoning, **own}
    return message


def _remove_billing(content: Any) -> Any:
    """Remove Claude Code's line from a system message: it is another one in each request."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kept = []
    for part in parts:
        if part["text"].startswith(BILLING):
            rest = part["text"].partition("\n")[2]
            kept += [{**part, "text": rest}] if rest else []
        else:
            kept.append(part)
    return kept[0]["text"] if kept and isinstance(content, str) else kept


def _content(content: Any, where: str) -> Any:
    """Convert a content to a text or to OpenAI's text parts; a missing one has no parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest("must be a text or a list of parts", where)
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
        elif isinstance(part, dict) and (field := TEXTS.get(str(part.get("type")))):
            if (text := part.get(field, "")) is not None:
                parts.append({"type": "text", "text": str(text)})
        else:
            raise InvalidRequest("must be of type text; other content has no ids", where)
    return parts


def _text(content: Any, where: str) -> Any:
    """Convert a content to one text."""
    return join_parts([{"content": _content(content, where)}])[0]["content"]


def _calls(calls: Any, where: str, as_vllm: bool) -> list[Message]:
    converted = []
    for number, call in enumerate(calls if isinstance(calls, list) else [calls]):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise InvalidRequest("must have a function", f"{where}/{number}")
        arguments = _arguments(function.get("arguments"), f"{where}/{number}/function/arguments")
        if as_vllm and not isinstance(arguments, dict):
            arguments = {}
        converted.append({**call, "function": {**function, "arguments": arguments}})
    return converted


def _arguments(arguments: Any, where: str) -> Any:
    """Parse the arguments of a call; a model's text that is not JSON becomes {}."""
    if isinstance(arguments, str):
        try:
            # As vLLM does, and with integers of any size.
            arguments = json.loads(arguments, parse_constant=NotFinite)
        except RecursionError as error:
            raise InvalidRequest("are nested too deeply", where) from error
        except ValueError:
            return {}
        return {} if arguments is None else arguments
    return arguments if isinstance(arguments, dict | list) else {}


def convert_anthropic(messages: list[Message], system: Any = None) -> list[Message]:
    """Convert Anthropic's messages and system prompt to OpenAI's messages.

    Raises:
        InvalidRequest: a message has no role, or a block is not text, thinking, a call or a result.
    """
    converted: list[Message] = []
    if system:
        converted.append({"role": "system", "content": _content(system, "/system")})
    for number, message in enumerate(messages):
        check_role(message, f"/messages/{number}")
        content, where = message.get("content"), f"/messages/{number}/content"
        if isinstance(content, list):
            converted += _convert_blocks(message, content, where)
        else:
            converted.append({**message, "content": _content(content, where)})
    return converted


def _convert_blocks(message: Message, blocks: list[Any], where: str) -> list[Message]:
    """Convert a message's blocks to one message for each result, and one for all others."""
    results: list[Message] = []
    texts: list[Any] = []
    calls: list[Message] = []
    thoughts: list[str] = []
    for block in blocks:
        match block.get("type") if isinstance(block, dict) else None:
            case "tool_use":
                calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
            case "tool_result":
                text = _text(block.get("content"), where)
                results.append(_result(block.get("tool_use_id"), text))
            case "thinking":
                thoughts.append(str(block.get("thinking", "")))
            case kind if kind not in HIDDEN:
                texts.append(block)
    own = {**message, "content": _content(texts, where)}
    if calls:
        own["tool_calls"] = calls
    if thoughts:
        own["reasoning"] = "".join(thoughts)
    is_empty = results and not (texts or calls or thoughts)
    return results if is_empty else [*results, own]


def convert_responses(items: list[Any]) -> list[Message]:
    """Convert the items of an OpenAI Responses request to messages.

    Raises:
        InvalidRequest: an item is not an object, its text is not in the request, or a message has
            no role.
    """
    converted: list[Message] = []
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise InvalidRequest("must be an object", f"/input/{number}")
        match item.get("type"):
            case "function_call":
                call = _call(item.get("call_id"), item.get("name"), item.get("arguments"))
                converted.append({"role": "assistant", "tool_calls": [call]})
            case "function_call_output":
                output = _text(item.get("output"), f"/input/{number}/output")
                converted.append(_result(item.get("call_id"), output))
            case "reasoning":
                thoughts = item.get("content") or item.get("summary")
                thought = _text(thoughts, f"/input/{number}/content")
                converted.append({"role": "assistant", "reasoning": thought})
            case kind if kind == "message" or "role" in item:
                check_role(item, f"/input/{number}")
                content = _content(item.get("content"), f"/input/{number}/content")
                converted.append({**item, "content": content})
            case _:
                message = (
                    "must be a message, a function call, its output or reasoning; other items "
                    "have no ids"
                )
                raise InvalidRequest(message, f"/input/{number}")
    return converted


def _call(call_id: Any, function: Any, arguments: Any) -> Message:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": function, "arguments": arguments},
    }


def _result(call_id: Any, content: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def convert_tools(
    tools: list[Message] | None, kinds: tuple[str, ...] = ("function",)
) -> list[Message] | None:
    """Convert tools to the form of OpenAI's chats; those of Anthropic and Responses are flat.

    Args:
        tools: the tools of a request.
        kinds: the values of `type` for functions that have a description.

    Raises:
        InvalidRequest: a tool is not a function, so that the text it adds is unknown, or has no
            name.
    """
    if tools is None:
        return None
    for number, tool in enumerate(tools):
        if (tool.get("type") or kinds[0]) not in kinds:
            raise InvalidRequest(
                "must be function; other tools cannot be rendered", f"/tools/{number}/type"
            )
        if "function" not in tool and not isinstance(tool.get("name"), str):
            fault = "must be a text" if "name" in tool else "is required"
            raise InvalidRequest(fault, f"/tools/{number}/name")
    return [_function(tool) for tool in tools]


def _function(tool: Message) -> Message:
    is_flat = "name" in tool and "function" not in tool
    if not is_flat:
        return tool
    parts = {"parameters": tool["input_schema"]} if "input_schema" in tool else {}
    parts |= {part: tool[part] for part in ("parameters", "strict") if part in tool}
    described = {part: tool[part] for part in ("name", "description") if part in tool}
    return {"type": "function", "function": {**described, **parts}}


def describe_tools(tools: list[Message] | None) -> list[Message] | None:
    """Give the functions of a chat's tools the fields that templates receive in vLLM, in its order.

    Templates write a tool as JSON, so that the order and every field change the ids. A missing
    description is null, and other fields, such as `cache_control`, are removed.

    Raises:
        InvalidRequest: a function has no name.
    """
    if tools is None:
        return None
    return [_describe(tool, f"/tools/{number}") for number, tool in enumerate(tools)]


def _describe(tool: Message, where: str) -> Message:
    """Return the description of a function; another tool, as some templates have it, as it is."""
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    if not isinstance(function.get("name"), str):
        fault = "must be a text" if "name" in function else "is required"
        raise InvalidRequest(fault, f"{where}/function/name")
    deferred = tool.get(DEFERRED)
    described = {field: function.get(field) for field in ("name", "description", "parameters")}
    for field, value in (("strict", None), (DEFERRED, deferred)):
        value = value if function.get(field) is None else function[field]
        if value is not None:
            described[field] = value
    own = {} if deferred is None else {DEFERRED: deferred}
    return {"type": tool.get("type") or "function", "function": described, **own}
