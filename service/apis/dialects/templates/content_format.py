"""Detects whether a chat template reads a message's content as parts or as one text.

A template that loops over a content and reads the type or text of its items, as Gemma 3's does,
reads parts, as in transformers and vLLM. Every other template reads one text.

    {% for part in message['content'] %}{{ part['text'] }}{% endfor %}

If vLLM finds such a loop, it gives the template no text at all: a text becomes one part, which
Llama 4's template trims, other than a text. vLLM only finds a loop over the content of an item of
`messages`, also as the argument of a macro, or over a variable with the name `content`; templates
with other loops are given both forms.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from jinja2 import nodes

CONTENT = "content"
PART_KEYS = ("type", "text")  # Other items of a content, such as Mistral's calls, have neither.


class ContentFormat(Enum):
    """The form in which a template is given the contents of messages."""

    TEXT = "text"
    BOTH = "both"
    PARTS = "parts"


def give_contents(messages: list[dict[str, Any]], format: ContentFormat) -> list[dict[str, Any]]:
    """Convert the contents of messages to the form that a template reads, as vLLM does.

    The result of a tool is one text in every form, and a missing content is no part.
    """
    give = {
        ContentFormat.TEXT: _give_text,
        ContentFormat.BOTH: _give_both,
        ContentFormat.PARTS: _give_parts,
    }[format]
    return [give(message) for message in messages]


def join_parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the parts of each message's content by line breaks; empty parts are omitted."""
    return [_give_text(message) for message in messages]


def _give_text(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get(CONTENT)
    if not isinstance(content, list):
        return message
    texts = [part["text"] for part in content]
    return {**message, CONTENT: "\n".join(filter(None, texts))}


def _give_both(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, CONTENT: ""} if message.get(CONTENT) == [] else message


def _give_parts(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get(CONTENT)
    if message.get("role") == "tool":
        return _give_text(message)
    if not isinstance(content, str):
        return message
    return {**message, CONTENT: [{"type": "text", "text": content}]}


def detect_format(template: nodes.Template) -> ContentFormat:
    """Return the form in which a template is given contents."""
    if not takes_parts(template):
        return ContentFormat.TEXT
    return ContentFormat.PARTS if _is_found_by_vllm(template) else ContentFormat.BOTH


def _is_found_by_vllm(template: nodes.Template) -> bool:
    """Return whether there is a loop over a content that vLLM finds."""
    lists = {"messages"}
    assigned = [
        (assign.target.name, assign.node)
        for assign in template.find_all(nodes.Assign)
        if isinstance(assign.target, nodes.Name)
    ]
    while found := {name for name, value in assigned if _find_name(value) in lists} - lists:
        lists |= found
    loops = list(template.find_all(nodes.For))
    items = {
        loop.target.name
        for loop in loops
        if isinstance(loop.target, nodes.Name) and _find_name(loop.iter) in lists
    }
    macros = list(template.find_all(nodes.Macro))
    inner = {id(loop) for macro in macros for loop in macro.find_all(nodes.For)}
    return (
        any(_find_name(loop.iter, CONTENT) in items for loop in loops)
        or any(_is_name(loop.iter, CONTENT) for loop in loops if id(loop) not in inner)
        or any(_loops_over_argument(template, macro, items) for macro in macros)
    )


def _loops_over_argument(template: nodes.Template, macro: nodes.Macro, items: set[str]) -> bool:
    """Return whether a macro loops over an argument that is the content of one of `items`."""
    names = [argument.name for argument in macro.args]
    given: set[str] = set()
    for call in template.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            arguments = [*zip(names, call.args, strict=False)]
            arguments += [(argument.key, argument.value) for argument in call.kwargs]
            given |= {name for name, value in arguments if _find_name(value, CONTENT) in items}
    return any(_is_name(loop.iter, *given) for loop in macro.find_all(nodes.For))


def _is_name(value: nodes.Node, *names: str) -> bool:
    return isinstance(value, nodes.Name) and value.name in names


def _find_name(value: nodes.Node | None, key: str | None = None) -> str | None:
    """Return the variable of which an expression is the value, or its key's; None: another one."""
    match value:
        case nodes.Filter() | nodes.Test() | nodes.Getitem(arg=nodes.Slice()):
            return _find_name(value.node, key)
        case (
            nodes.Getattr(node=inner, attr=name)
            | nodes.Getitem(node=inner, arg=nodes.Const(value=name))
        ) if key is not None and name == key:
            return _find_name(inner)
        case nodes.Name() if key is None:
            return value.name
    return None


def takes_parts(template: nodes.Template) -> bool:
    """Return whether a loop over a content reads the type or the text of its items."""
    names = _find_content_names(template)
    loops = template.find_all(nodes.For)
    return any(_is_content(loop.iter, names) and _reads_items(loop) for loop in loops)


def _find_content_names(template: nodes.Template) -> set[str]:
    """Return the variables and the macro arguments that contain a content."""
    given = [
        (assign.target.name, assign.node)
        for assign in template.find_all(nodes.Assign)
        if isinstance(assign.target, nodes.Name)
    ]
    macros = {macro.name: macro for macro in template.find_all(nodes.Macro)}
    for call in template.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name in macros:
            arguments = [argument.name for argument in macros[call.node.name].args]
            given += zip(arguments, call.args, strict=False)
            given += [(argument.key, argument.value) for argument in call.kwargs]
    names: set[str] = set()
    while found := {name for name, value in given if _is_content(value, names)} - names:
        names |= found
    return names


def _is_content(value: nodes.Node | None, names: set[str]) -> bool:
    """Return whether an expression is a content; `names` are variables that contain one."""
    match value:
        case nodes.Name():
            return value.name in names
        case nodes.Getattr():
            return value.attr == CONTENT
        case nodes.Getitem(arg=nodes.Slice()) | nodes.Filter():
            return _is_content(value.node, names)
        case nodes.Getitem(arg=nodes.Const(value=key)):
            return bool(key == CONTENT)
        case nodes.Call(node=nodes.Getattr(attr="get"), args=[nodes.Const(value=key), *_]):
            return bool(key == CONTENT)
        case nodes.CondExpr():
            return _is_content(value.expr1, names) or _is_content(value.expr2, names)
        case nodes.Or():
            return _is_content(value.left, names) or _is_content(value.right, names)
    return False


def _reads_items(loop: nodes.For) -> bool:
    """Return whether the loop reads the type or the text of its item."""
    if not isinstance(loop.target, nodes.Name):
        return False
    item = loop.target.name
    lookups = [(node.node, node.attr) for node in loop.find_all(nodes.Getattr)]
    lookups += [
        (node.node, node.arg.value)
        for node in loop.find_all(nodes.Getitem)
        if isinstance(node.arg, nodes.Const)
    ]
    return any(
        isinstance(owner, nodes.Name) and owner.name == item and key in PART_KEYS
        for owner, key in lookups
    )
