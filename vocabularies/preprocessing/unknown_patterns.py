r"""Finds the regular expressions of a vocabulary whose running time nobody knows.

A pattern is known if it is a published one, or if its form shows that it takes a bounded time for
each character. A known form is an alternation of parts with one repetition at most, at the end:
nothing stands behind a repetition that could fail and make the matcher try a shorter one.

Example: ``\d{1,3}|\s+`` is known; ``\s+$`` is not: for n spaces before a letter it takes n * n / 2
steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from vocabularies.preprocessing.class_patterns import MAX_PATTERN
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.preprocessing.pretokenizers import is_published_pattern

MAX_REPEATED = 32  # The most characters that one repetition has to match at least.
MAX_LITERAL = 4_000  # Characters; the library may compare all of them at each place of a text.
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_CHARACTER = re.compile(r"\\[pPxu]\{[^}]*\}|\\[^gk0-9]", re.DOTALL)
_SET = re.compile(r"\[(?:\[[^\[\]]+\]|[^\[\]])+\]")
_KNOWN_PART = re.compile(
    r"[^*+?{}()\[\]\\|]\?{0,1}"  # One optional character may stand in front.
    r"[^*+?{}()\[\]\\|]*"
    r"(?:(?:[*+?]|\{(?P<least>\d*)(?:,\d*)?\})[+?]?)?"
)


@dataclass(frozen=True, slots=True)
class UnknownPattern:
    """A regular expression whose running time is not known.

    Attributes:
        where: its place in the file.
        pattern: the regular expression, in Oniguruma's syntax.
    """

    where: str
    pattern: str


def is_known(pattern: str) -> bool:
    """Whether a pattern is published, or certainly takes a bounded time for each character."""
    return _has_known_form(pattern) or is_published_pattern(pattern)


def _has_known_form(pattern: str) -> bool:
    if len(pattern) > MAX_PATTERN:
        return False
    # Escapes and sets become one letter, which has no meaning of its own.
    bare = _SET.sub("x", _CHARACTER.sub("x", pattern))
    for part in bare.split("|"):
        known = _KNOWN_PART.fullmatch(part)
        if known is None or int(known["least"] or 0) > MAX_REPEATED:
            return False
    return True


def find_in_document(tokenizer_json: str) -> Iterator[UnknownPattern]:
    """Find the unknown patterns of a tokenizer.json, in the order of the file's steps."""
    document = json.loads(tokenizer_json)
    for name in _STEPS:
        yield from _find_in_value(document.get(name), name)


def _find_in_value(value: Any, where: str) -> Iterator[UnknownPattern]:
    match value:
        case dict():
            for name, part in value.items():
                place = f"{where}.{name}"
                if name == "Regex" and isinstance(part, str):
                    if not is_known(part):
                        yield UnknownPattern(place, part)
                elif name == "String" and isinstance(part, str):
                    yield from _find_long_literal(part, place)
                else:
                    yield from _find_in_value(part, place)
        case list():
            for i, part in enumerate(value):
                yield from _find_in_value(part, f"{where}[{i}]")


def _find_long_literal(literal: str, where: str) -> Iterator[UnknownPattern]:
    if len(literal) > MAX_LITERAL:
        yield UnknownPattern(where, re.escape(literal))


def find_in_normalizers(normalizers: Iterable[Normalizer]) -> Iterator[UnknownPattern]:
    """Find the unknown patterns of a vocabulary's normalizers."""
    for i, step in enumerate(normalizers):
        where = f"normalizers[{i}]"
        if step.kind == "replace_regex" and not is_known(step.pattern):
            yield UnknownPattern(where, step.pattern)
        elif step.kind == "replace":
            yield from _find_long_literal(step.pattern, where)
