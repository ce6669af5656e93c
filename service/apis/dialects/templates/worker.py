"""Renders chat templates in a separate process, as templates are untrusted programs.

`python -m service.apis.dialects.templates.worker NUMBER KEPT_BYTES` reads requests from the memory
file with the descriptor NUMBER, and writes answers to it. It reads the sizes of each request's
parts from stdin, and writes the size and the kind of each answer to stdout. jinja2's sandbox limits
a template to the given variables. The process has a memory limit, and `pool` kills it when a chat
takes longer than `timeout_s`; the kernel kills it a little later, in case the service has ended.

Messages arrive as the client's JSON. Most messages of a long chat occurred in its previous request;
they are kept in parsed form, up to KEPT_BYTES of JSON. No template can change them.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from array import array
from collections import OrderedDict
from typing import Any, NamedTuple

import orjson
from jinja2 import Template, TemplateError
from jinja2.utils import LRUCache

from service.apis.dialects.templates.chat_messages import Message, convert_messages
from service.apis.dialects.templates.content_format import (
    ContentFormat,
    detect_format,
    give_contents,
)
from service.apis.dialects.templates.environment import make_environment
from service.apis.dialects.templates.memory import (
    ANSWER,
    ERROR,
    READY,
    REQUEST,
    TEXT,
    UNREADABLE,
    Answer,
    ChatMemory,
)
from service.core.exact_json import load_json
from service.runtime.malloc import keep_large_blocks

MEMORY_BYTES = 1 << 30
KERNEL_S = 2  # The kernel kills the process this much later than the service does.
MAX_COMPILED = 64  # The maximum number of templates that stay compiled.
COMPILED_CHARS = 1 << 16  # A longer template does not stay compiled.
END_BYTES = 64  # How much of the end of a message's JSON is its key.
MESSAGE_BYTES = 400  # Of a kept message, besides its JSON and its value.


class CompiledTemplate(NamedTuple):
    """A compiled template, and the form in which it is given contents."""

    template: Template
    format: ContentFormat


class Templates:
    """Compiles templates, and detects in which form each is given contents.

    Recently used templates stay compiled, as compiling takes far longer than rendering. Variables
    that a template sets are lost at the end of the chat.
    """

    def __init__(self) -> None:
        self.jinja = make_environment()
        self.compiled = LRUCache(MAX_COMPILED)

    def get(self, source: str) -> CompiledTemplate:
        """Return a compiled template; compile it unless it is in the cache.

        Raises:
            TemplateError: the template is invalid.
        """
        compiled: CompiledTemplate | None = self.compiled.get(source)
        if compiled is None:
            tree = self.jinja.parse(source)
            compiled = CompiledTemplate(self.jinja.from_string(tree), detect_format(tree))
            if len(source) <= COMPILED_CHARS:
                self.compiled[source] = compiled
        return compiled


def render(templates: Templates, template: str, variables: dict[str, Any], max_chars: int) -> bytes:
    """Render a chat in UTF-8, with contents in the form that the template reads.

    A lone surrogate in the output of the template becomes a question mark.

    Raises:
        TemplateError: the template is invalid, refuses the messages, or writes too much.
    """
    compiled = templates.get(template)
    if "messages" in variables:
        messages = give_contents(variables["messages"], compiled.format)
        variables = variables | {"messages": messages}
    pieces: list[bytes] = []
    size = 0
    for piece in compiled.template.generate(**variables):
        size += len(piece)
        if size > max_chars:
            raise TemplateError(f"the template wrote more than {max_chars} characters")
        # One by one, as most pieces are ASCII and need no conversion.
        pieces.append(piece.encode(errors="replace"))
    return b"".join(pieces)


def make_answer(
    templates: Templates, request: dict[str, Any], kept: KeptMessages | None = None
) -> Answer:
    """Render a chat; if memory is short, drop cached templates and messages and retry."""
    try:
        try:
            return Answer(render(templates, **request), TEXT)
        except MemoryError:
            templates.compiled.clear()
            if kept is not None:
                kept.forget()
            return Answer(render(templates, **request), TEXT)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"[:500]
        return Answer(message.encode(errors="replace"), ERROR)


class KeptMessage(NamedTuple):
    """A parsed message, and its JSON."""

    json: bytes
    message: Message


class MessageKey(NamedTuple):
    """The key of a kept message: its end, as hashing it takes longer than comparing it."""

    scope: str
    size: int
    end: bytes


class KeptMessages:
    """Parses messages, and keeps the most recently used ones.

    Args:
        max_bytes: the maximum size of their JSON.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._kept: OrderedDict[MessageKey, KeptMessage] = OrderedDict()

    def read(self, scope: str, json: bytes) -> Message:
        """Parse and convert a message; return a kept one of the same scope if its JSON is equal.

        Raises:
            JSONDecodeError, InvalidRequest: the message is invalid.
        """
        key = MessageKey(scope, len(json), json[-END_BYTES:])
        kept = self._kept.get(key)
        if kept is not None and kept.json == json:
            self._kept.move_to_end(key)
            return kept.message
        [message] = convert_messages([load_json(json)])
        self._kept[key] = KeptMessage(json, message)
        if kept is None:  # Else it replaced another message of its size.
            self.num_bytes += key.size + MESSAGE_BYTES
        while self.num_bytes > self.max_bytes:
            oldest, _ = self._kept.popitem(last=False)
            self.num_bytes -= oldest.size + MESSAGE_BYTES
        return message

    def forget(self) -> None:
        """Drop all messages, whose values may need many times the memory of their JSON."""
        self._kept.clear()
        self.num_bytes = 0


def read_request(body: bytes) -> dict[str, Any]:
    """Parse the JSON of a request."""
    request: dict[str, Any]
    try:
        request = load_json(body)
    except orjson.JSONDecodeError:  # It contains what only Python's json supports.
        request = json.loads(body)
    return request


def limit_processor_time(seconds: float) -> None:
    """Let the kernel kill this process after `seconds` more seconds of processor time."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), most))


def answer_request(
    memory: ChatMemory,
    templates: Templates,
    kept: KeptMessages,
    json_size: int,
    messages_size: int,
    places_size: int,
) -> Answer:
    """Answer the request in the memory, whose parts have the given sizes."""
    request = read_request(memory.read(json_size))
    limit_processor_time(request.pop("timeout_s") + KERNEL_S)
    scope = request.pop("scope")
    if messages_size:
        places = array("I", memory.read(places_size, json_size + messages_size))
        spans = zip(places[::2], places[1::2], strict=True)
        try:
            request["variables"]["messages"] = [
                kept.read(scope, memory.read(end - begin, json_size + begin))
                for begin, end in spans
            ]
        except MemoryError:  # The service sends them again, in the request.
            kept.forget()
            return Answer(b"", UNREADABLE)
        except Exception:  # The service reads the messages itself, and refuses them by name.
            return Answer(b"", UNREADABLE)
    return make_answer(templates, request, kept)


def main() -> None:
    """Answer the requests of the service until stdin is closed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY_BYTES, MEMORY_BYTES))  # For the memory file.
    keep_large_blocks()
    templates = Templates()
    memory, kept = ChatMemory(int(sys.argv[1])), KeptMessages(int(sys.argv[2]))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(READY)
    sink.flush()
    while len(head := source.read(REQUEST.size)) == REQUEST.size:
        answer = answer_request(memory, templates, kept, *REQUEST.unpack(head))
        memory.write(answer.data)
        sink.write(ANSWER.pack(len(answer.data), answer.kind))
        sink.flush()


if __name__ == "__main__":
    main()
