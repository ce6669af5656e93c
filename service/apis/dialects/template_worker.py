"""Chat templates are programs of whoever uploaded them: they run here, in a process of their own.

`python -m service.apis.dialects.template_worker` reads requests from stdin and writes answers to
stdout, each 4 bytes of length, little-endian, and JSON. jinja2's sandbox keeps a template from
everything but its values; the process has a limit on its memory, and `template_pool` ends it when
it takes too long.
"""

from __future__ import annotations

import datetime
import json
import resource
import struct
import sys
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import LRUCache

from service.apis.dialects.content_format import joined, takes_parts

MEMORY_BYTES = 1 << 30
READY = b"ready"  # What the process says first.
MAX_COMPILED, COMPILED_CHARS = 64, 1 << 16
"""Templates that stay compiled at most, and how long each of them may be."""


class Generation(Extension):
    """The block `generation`, which marks the assistant's words for training: its text as it is.

    It is called as a macro is, as transformers does: what it sets is gone behind it.
    """

    tags = {"generation"}  # noqa: RUF012  # jinja2 asks for a set.

    def parse(self, parser: Parser) -> nodes.Node:
        """What stands between the tags."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("text"), [], [], body).set_lineno(line)

    def text(self, caller: Macro) -> str:
        """What the body writes."""
        written: str = caller()
        return written


def environment() -> ImmutableSandboxedEnvironment:
    """jinja2 as chat templates expect it."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, "jinja2.ext.loopcontrols"],
    )
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON with letters as they are, and transformers' arguments; jinja2's filter escapes HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def raise_exception(message: str) -> NoReturn:
    """What templates call for messages that they do not take."""
    raise TemplateError(message)


def strftime_now(format: str) -> str:
    """Today, as templates write it into the system message."""
    return datetime.datetime.now().strftime(format)


class Templates:
    """Templates, and whether each takes contents in parts; the latest used ones stay compiled.

    Compiling takes a hundred times as long as writing a chat. What a template sets is the chat's:
    nothing of it stays.
    """

    def __init__(self) -> None:
        self.jinja = environment()
        self.compiled = LRUCache(MAX_COMPILED)

    def get(self, template: str) -> tuple[Template, bool]:
        """One of them; raises TemplateError."""
        found: tuple[Template, bool] | None = self.compiled.get(template)
        if found is None:
            tree = self.jinja.parse(template)
            found = self.jinja.from_string(tree), takes_parts(tree)
            if len(template) <= COMPILED_CHARS:
                self.compiled[template] = found
        return found


def render(templates: Templates, template: str, variables: dict[str, Any], max_chars: int) -> str:
    """The text of a chat; contents in parts become texts where the template takes no parts.

    Raises:
        TemplateError: the template is wrong, or refuses the messages, or writes too much.
    """
    compiled, is_for_parts = templates.get(template)
    if "messages" in variables and not is_for_parts:
        variables = variables | {"messages": joined(variables["messages"])}
    pieces, size = [], 0
    for piece in compiled.generate(**variables):
        size += len(piece)
        if size > max_chars:
            raise TemplateError(f"the template writes more than {max_chars} characters")
        pieces.append(piece)
    return "".join(pieces)


def answer_to(templates: Templates, request: dict[str, Any]) -> dict[str, str]:
    """The text of a chat, or the error; where memory is short, without the templates that stay."""
    try:
        try:
            return {"text": render(templates, **request)}
        except MemoryError:
            templates.compiled.clear()
        return {"text": render(templates, **request)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    """Answer requests until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    templates = Templates()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(READY)
    sink.flush()
    while len(prefix := source.read(4)) == 4:
        request = json.loads(source.read(*struct.unpack("<I", prefix)))
        answer = answer_to(templates, request)
        # Half a surrogate pair, which a template can write, becomes a question mark.
        body = json.dumps(answer, ensure_ascii=False).encode(errors="replace")
        sink.write(struct.pack("<I", len(body)) + body)
        sink.flush()


if __name__ == "__main__":
    main()
