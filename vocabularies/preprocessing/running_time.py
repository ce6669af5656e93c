r"""Finds the parts of a vocabulary, such as regular expressions, that may take unbounded time.

A pattern is known if it is published, or if its form guarantees a bounded time for each character.
This form is an alternation whose parts have at most one repetition, at their end. Nothing follows
the repetition that could fail and make the matcher try a shorter one.

Example: ``\d{1,3}|\s+`` is known; ``\s+$`` is not: for n spaces before a letter it takes n * n / 2
steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from vocabularies.preprocessing.class_patterns import MAX_PATTERN
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.preprocessing.pretokenizers import is_published_pattern

MAX_REPEATED = 32  # The largest lower bound of a repetition, such as 3 in ``a{3,}``.
MAX_LITERAL = 4_000  # Characters; the library may compare all of them at each place of a text.
MAX_STEPS = 32  # Of a normalizer or pre_tokenizer; each runs over the whole text.
MAX_WORD = 256  # Letters of a WordPiece's longest word, or of a Unigram's longest token.
# Patterns of SentencePiece models (formats/sentencepiece). Each may match only behind another
# character, so that a run of these characters is looked at once.
TRAILING_SPACE_SYMBOLS = r"(?<!▁)▁++\z"
BYTE_NAME = r"(?<=<)(?=0x[0-9A-F]{2}>)"
WHOLE_BYTE_NAME = r"(?<=\A<)(?=0x[0-9A-F]{2}>\z)"
_BOUNDED = frozenset((TRAILING_SPACE_SYMBOLS, BYTE_NAME, WHOLE_BYTE_NAME))
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_CHARACTER = re.compile(r"\\[pPxu]\{[^}]*\}|\\[^gk0-9]", re.DOTALL)
_SET = re.compile(r"\[(?:\[[^\[\]]+\]|[^\[\]])+\]")
_KNOWN_PART = re.compile(
    r"[^*+?{}()\[\]\\|]\?{0,1}"  # One optional character may come first.
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
    """Return whether a pattern is published, or takes a bounded time for each character."""
    return _has_known_form(pattern) or pattern in _BOUNDED or is_published_pattern(pattern)


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


@dataclass(frozen=True, slots=True)
class Costs:
    """The parts of a vocabulary that may take unbounded time for a text.

    Attributes:
        patterns: the regular expressions whose running time is not known.
        others: descriptions of other parts that take much more time for each byte than in published
            files.
    """

    patterns: tuple[UnknownPattern, ...] = ()
    others: tuple[str, ...] = ()


def find_document_costs(tokenizer_json: str) -> Costs:
    """Find the parts of a tokenizer.json for which the library may need unbounded time."""
    document = json.loads(tokenizer_json)
    patterns = chain.from_iterable(_find_in_value(document.get(n), n) for n in _STEPS)
    others = [f"{n}: many steps" for n in _STEPS if _count_steps(document.get(n)) > MAX_STEPS]
    model = document["model"]
    most = model.get("max_input_chars_per_word")
    if isinstance(most, int) and most > MAX_WORD:
        others.append("model.max_input_chars_per_word: long words")
    # For each letter, Unigram's search takes as many steps as the longest token has letters.
    vocab = model["vocab"]
    if isinstance(vocab, list) and max(len(entry[0]) for entry in vocab) > MAX_WORD:
        others.append("model.vocab: long tokens")
    return Costs(tuple(patterns), tuple(others))


def _count_steps(step: Any) -> int:
    """Count the steps of a normalizer or pre_tokenizer, including those in nested sequences."""
    if isinstance(step, dict):
        return 1 + sum(_count_steps(part) for part in step.values() if isinstance(part, list))
    return sum(map(_count_steps, step)) if isinstance(step, list) else 0


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


def find_normalizer_costs(normalizers: Sequence[Normalizer]) -> Costs:
    """Find the normalizers of a vocabulary that may take unbounded time."""
    others = ("normalizers: many steps",) if len(normalizers) > MAX_STEPS else ()
    return Costs(tuple(_find_in_normalizers(normalizers)), others)


def _find_in_normalizers(normalizers: Iterable[Normalizer]) -> Iterator[UnknownPattern]:
    for i, step in enumerate(normalizers):
        where = f"normalizers[{i}]"
        if step.kind == "replace_regex" and not is_known(step.pattern):
            yield UnknownPattern(where, step.pattern)
        elif step.kind == "replace":
            yield from _find_long_literal(step.pattern, where)
