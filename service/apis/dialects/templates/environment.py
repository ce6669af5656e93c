"""Sets up jinja2 as chat templates expect it, in a sandbox."""

from __future__ import annotations

import datetime
import json
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from typing_extensions import override

DICT_ATTRIBUTES = frozenset(dir(dict))
LOOP_ATTRIBUTES = frozenset(("first", "last", "index", "index0"))


class Environment(ImmutableSandboxedEnvironment):
    """jinja2's sandbox, with faster access to the most common attributes.

    The sandbox checks for each attribute whether it is safe, which takes most of the time of a
    chat. This class skips the check for attributes that are always allowed: keys of dictionaries,
    the attributes of a loop, and plain values of a namespace.
    """

    @override
    def getattr(self, obj: Any, attribute: str) -> Any:
        kind = type(obj)
        if kind is dict:
            if attribute not in DICT_ATTRIBUTES:
                if attribute in obj:
                    return obj[attribute]
                return self.undefined(obj=obj, name=attribute)
        elif kind is LoopContext:
            if attribute in LOOP_ATTRIBUTES:
                return getattr(obj, attribute)
        elif kind is Namespace and not attribute.startswith("_"):
            value = getattr(obj, attribute, None)
            if type(value) in (bool, int, str):
                return value
        return super().getattr(obj, attribute)


class Generation(Extension):
    """The block `generation`, which renders its content and marks it as the assistant's text.

    As in transformers, the block runs like a macro, so variables that it sets are local.
    """

    tags = {"generation"}  # noqa: RUF012  # jinja2 expects a set.

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the statements between the tags."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("text"), [], [], body).set_lineno(line)

    def text(self, caller: Macro) -> str:
        """Render the content of the block."""
        written: str = caller()
        return written


def make_environment() -> Environment:
    """Create a jinja2 environment with the functions that chat templates expect."""
    jinja = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, "jinja2.ext.loopcontrols"],
    )
    jinja.filters["tojson"] = to_json
    jinja.globals["raise_exception"] = raise_exception
    jinja.globals["strftime_now"] = strftime_now
    return jinja


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Convert a value to JSON as transformers does; jinja2's own filter escapes HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def raise_exception(message: str) -> NoReturn:
    """Raise TemplateError; templates call this to refuse messages."""
    raise TemplateError(message)


def strftime_now(format: str) -> str:
    """Format the current time; templates call this for the system message."""
    return datetime.datetime.now().strftime(format)
