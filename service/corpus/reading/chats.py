"""Renders chats by a chat template, and marks the text that a model learns: the assistant's.

The `{% generation %}` blocks of a template, as transformers has them, mark this text. For any other
template it is the text that the template adds for a message of the assistant, behind the generation
prompt:

    |--- messages before, generation prompt ---|--- what is learned ---|--- messages behind ---|
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
from jinja2 import TemplateError, nodes
from jinja2.runtime import Macro

from service.apis.dialects.templates.chat_messages import convert_messages
from service.apis.dialects.templates.content_format import ContentFormat, give_contents, takes_parts
from service.apis.dialects.templates.environment import Generation, make_environment
from service.core.errors import InvalidRequest
from service.corpus.documents import Documents, Reject
from service.corpus.reading.line_blocks import LineBlock
from vocabularies.batch.ragged import offsets_from_lengths

MARK = f"\0{secrets.token_hex(16)}\0"  # Stands around what a block has written, and in no text.
CLOCK = "strftime_now"


class NoChat(ValueError):
    """A record is not a chat, or the template refuses it; the arguments are those of its reject."""


class _Marking(Generation):
    """The Jinja block `generation`, which marks its text."""

    def text(self, caller: Macro) -> str:
        """Render the statements, with a mark before and after them."""
        return f"{MARK}{caller()}{MARK}"


class ChatRenderer:
    """Renders chats with a template; it is thread-safe.

    A template cannot read the time, so that the same chat always has the same text.

    Args:
        template: the source of the template.
        tokens: the named tokens that the template reads, such as {"bos_token": "<s>"}.
        is_masked: whether the learned text is marked.

    Raises:
        ValueError: the template is invalid.
    """

    def __init__(self, template: str, tokens: dict[str, str], is_masked: bool) -> None:
        environment = make_environment()
        environment.globals.pop(CLOCK, None)
        try:
            tree = environment.parse(template)
            # As transformers, which leaves texts and parts as they are.
            self._format = ContentFormat.BOTH if takes_parts(tree) else ContentFormat.TEXT
            environment.add_extension(_Marking)
            self._template = environment.from_string(template)
        except TemplateError as error:
            raise ValueError(f"the chat template: {error}") from error
        self._has_blocks = _has_generation_blocks(tree)
        self._tokens = tokens
        self._is_masked = is_masked

    def render(self, record: dict[str, Any], key: str) -> tuple[bytes, bytes]:
        """Return the text of a chat, and a mask with 1 for each byte that a model learns.

        Raises:
            NoChat: the record contains no chat, or the template refuses it.
        """
        messages = record.get(key)
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise NoChat("not_a_chat", f"{key!r} is not a list of messages")
        try:
            messages = convert_messages(messages, as_vllm=False)
        except InvalidRequest as error:
            where = f"/{key}{error.where.removeprefix('/messages')}"
            raise NoChat("not_a_chat", error.message, where) from error
        messages = give_contents(messages, self._format)
        tools = record.get("tools")
        if self._has_blocks or not self._is_masked:
            return _split_marks(self._render(messages, tools))
        return self._render_by_turns(messages, tools)

    def _render(self, messages: list[dict[str, Any]], tools: Any, prompts: bool = False) -> str:
        variables = {
            **self._tokens,
            "documents": None,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": prompts,
        }
        try:
            return self._template.render(variables)
        except Exception as error:  # A template is a program: it may fail in any way.
            raise NoChat("template_refuses", f"{type(error).__name__}: {error}"[:500]) from error

    def _render_by_turns(self, messages: list[dict[str, Any]], tools: Any) -> tuple[bytes, bytes]:
        whole = self._render(messages, tools)
        parts, done = [], 0
        for number, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            before = self._render(messages[:number], tools, prompts=True)
            through = self._render(messages[: number + 1], tools)
            is_apart = through.startswith(before) and whole.startswith(through)
            if not is_apart or len(before) < done:
                reason = f"the chat template does not show where message {number} begins and ends"
                raise NoChat("no_mask", f"{reason}; a template with generation blocks does")
            parts += [whole[done : len(before)], whole[len(before) : len(through)]]
            done = len(through)
        return _split_marks(MARK.join([*parts, whole[done:]]))


def _has_generation_blocks(tree: nodes.Template) -> bool:
    calls = tree.find_all(nodes.ExtensionAttribute)
    return any(call.identifier == Generation.identifier for call in calls)


def _split_marks(text: str) -> tuple[bytes, bytes]:
    """Remove the marks from a text; return it, and the mask of the bytes between two marks."""
    parts = [part.encode(errors="replace") for part in text.split(MARK)]
    mask = b"".join(bytes([number % 2]) * len(part) for number, part in enumerate(parts))
    return b"".join(parts), mask


def chat_documents(block: LineBlock, key: str, renderer: ChatRenderer) -> Documents:
    """Make documents from the chats in a block of JSON lines."""
    texts, masks, places = [], [], []
    rejects = list(block.rejects)
    for place, line in _find_lines(block):
        try:
            text, mask = renderer.render(_parse(line), key)
        except NoChat as error:
            rejects.append(Reject(place, *error.args))
            continue
        texts.append(text)
        masks.append(mask)
        places.append(place)
    return Documents(
        np.frombuffer(b"".join(texts), np.uint8),
        offsets_from_lengths(np.array([*map(len, texts)], np.int64)),
        np.array(places, np.int64),
        block.end,
        block.num_bytes,
        sorted(rejects),
        block.digests,
        np.frombuffer(b"".join(masks), np.uint8),
    )


def _find_lines(block: LineBlock) -> Iterator[tuple[int, bytes]]:
    place = block.begin
    for line in block.data.tobytes().split(b"\n"):
        if line.strip():
            yield place, line
        place += len(line) + 1


def _parse(line: bytes) -> dict[str, Any]:
    """Parse a record.

    Raises:
        NoChat: the record is not a JSON object.
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise NoChat("invalid_json", "the line is not JSON") from error
    if not isinstance(record, dict):
        raise NoChat("not_an_object", "the line is not a JSON object")
    return record
