"""Detects whether a chat template reads a message's content as parts or as one text.

A template that loops over a content and reads the type or text of its items, as Gemma 3's does,
reads parts, as in transformers and vLLM. Every other template reads one text.

    {% for part in message['content'] %}{{ part['text'] }}{% endfor %}
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes

CONTENT = "content"
PART_KEYS = ("type", "text")  # Other items of a content, such as Mistral's calls, have neither.


def join_parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the parts of each message's content by line breaks, as vLLM does."""
    joined = []
    for message in messages:
        content = message.get(CONTENT)
        if isinstance(content, list):
            message = {**message, CONTENT: "\n".join(part["text"] for part in content)}
        joined.append(message)
    return joined


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
