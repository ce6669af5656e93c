"""The normalizers of tokenizer.json files, with the source of each character.

Each function returns the new text and, for each of its characters, the range (begin, end) of the
input characters that it was made from, as `tokenizers` reports it. This module does not depend on
pretokens, ids or bytes.

NFC and Lowercase follow the library, whose Unicode tables are older (NFC: 9.0) or newer than
Python's. `unicode_classes` contains the characters that the library changes, as measured. The
decompositions and combining classes of these characters come from Python's `unicodedata`, because
Unicode guarantees that they never change for an existing character.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np

from vocabularies.preprocessing.class_patterns import (
    ClassPatterns,
    check_length,
    compile_patterns,
    to_code_points,
)
from vocabularies.preprocessing.unicode_classes import (
    NUM_CODE_POINTS,
    Mask,
    lowercase_mapping,
    normalizer_code_points,
)

MAX_OPTIONAL = 8
Alignment = list[tuple[int, int]]
Aligned = tuple[str, Alignment]


class _Change(NamedTuple):
    """A character of the new text, and how it changes the number of characters.

    Attributes:
        growth: 1 if the character was inserted, 0 if it replaces one character, -n if it was
            composed of n + 1 characters.
    """

    character: str
    growth: int


@dataclass(frozen=True, slots=True)
class Normalizer:
    """One step that rewrites the text before it is pretokenized.

    Attributes:
        pattern: for replace and replace_regex: the text or regular expression that is replaced.
        content: for replace and replace_regex: the text that replaces it.
        left, right: for strip: the sides that are stripped.
    """

    kind: Literal["nfc", "lowercase", "strip", "replace", "replace_regex"]
    pattern: str = ""
    content: str = ""
    left: bool = True
    right: bool = True


def normalize(text: str, normalizers: Iterable[Normalizer]) -> Aligned:
    """Apply normalizers one after the other; the ranges refer to the original text.

    Raises:
        ValueError: the pattern of a replace_regex is not supported.
    """
    alignment = _identity(len(text))
    for step in normalizers:
        text, latest = _apply(text, step)
        alignment = [(alignment[a][0], alignment[b - 1][1]) for a, b in latest]
    return text, alignment


def _apply(text: str, step: Normalizer) -> Aligned:
    match step.kind:
        case "nfc":
            return nfc(text)
        case "lowercase":
            return lowercase(text)
        case "strip":
            return strip(text, step.left, step.right)
        case "replace":
            return replace(text, step.pattern, step.content)
        case "replace_regex":
            return replace_regex(text, step.pattern, step.content)


def _identity(length: int, first: int = 0) -> Alignment:
    return [(i, i + 1) for i in range(first, first + length)]


def lowercase(text: str) -> Aligned:
    """Convert each character to lower case by itself; a final sigma is not an exception."""
    mapping = lowercase_mapping()
    lowered = text.translate(mapping)
    if len(lowered) == len(text):
        return lowered, _identity(len(text))
    lengths = [len(mapping.get(ord(character), character)) for character in text]
    return lowered, [(i, i + 1) for i, length in enumerate(lengths) for _ in range(length)]


def strip(text: str, left: bool = True, right: bool = True) -> Aligned:
    """Remove white space at the left end, the right end, or both."""
    white_space = "".join(normalizer_code_points("strip"))
    shorter = text.lstrip(white_space) if left else text
    removed = len(text) - len(shorter)
    shorter = shorter.rstrip(white_space) if right else shorter
    return shorter, _identity(len(shorter), removed)


def replace(text: str, pattern: str, content: str) -> Aligned:
    """Replace each occurrence of `pattern`, from left to right, by `content`.

    The source of each character of the content is the last character of the replaced text.

    Raises:
        ValueError: the pattern is empty.
    """
    if not pattern:
        raise ValueError("an empty pattern would match everywhere")
    found = re.finditer(re.escape(pattern), text)
    return _replace(text, (match.span() for match in found), content)


def replace_regex(text: str, pattern: str, content: str) -> Aligned:
    """Replace each match of a regular expression, from left to right, by the literal `content`.

    Raises:
        ValueError: as `compile_replacement`.
    """
    compiled = compile_replacement(pattern)
    found = compiled.patterns[0].finditer(compiled.to_cells(text))
    return _replace(text, (match.span() for match in found), content)


@functools.lru_cache(maxsize=32)
def compile_replacement(pattern: str) -> ClassPatterns:
    """Compile the pattern of a replacement.

    Raises:
        ValueError: the pattern has unsupported syntax, or it matches the empty string.
    """
    check_length(pattern)
    if "$" in pattern or "(?i:" in pattern or "(?!" in pattern:
        raise ValueError(f"{pattern!r}: only characters, sets, groups and quantifiers are possible")
    _refuse_unbounded(pattern)
    compiled = compile_patterns((pattern,), "onig")
    if compiled.patterns[0].fullmatch(b""):
        raise ValueError(
            f"{pattern!r}: a pattern that matches the empty text would match everywhere"
        )
    return compiled


def _refuse_unbounded(pattern: str) -> None:
    """Refuse patterns with which Python's matcher could backtrack excessively on a short text.

    These are patterns with nested or neighbouring repetitions, alternatives in a repetition, or
    more than MAX_OPTIONAL optional parts.
    """
    bare = re.sub(r"\\p\{\^?\w+\}|\\.|\[(?:\\.|[^\]])*\]", "x", pattern)
    bare = re.sub(r"([*+}])\+", r"\1", bare)  # A possessive repetition never backtracks.
    repeated = re.findall(r"(.)(?:[*+]|\{\d)", bare)
    if len(repeated) > 1 or (")" in repeated and "|" in bare) or bare.count("?") > MAX_OPTIONAL:
        raise ValueError(f"{pattern!r}: only one repetition is possible, of no alternatives")


def _replace(text: str, spans: Iterable[tuple[int, int]], content: str) -> Aligned:
    parts: list[str] = []
    alignment: Alignment = []
    last = 0
    for begin, end in spans:
        parts += text[last:begin], content
        alignment += _identity(begin - last, last)
        alignment += [(end - 1, end)] * len(content)
        last = end
    alignment += _identity(len(text) - last, last)
    return "".join((*parts, text[last:])), alignment


def nfc(text: str) -> Aligned:
    """Normalize a text to NFC with the Unicode tables and character sources of tokenizers' NFC.

    The source of a composed character is the first character that it was composed of. The source of
    an inserted character is the input character before the source of the next one.
    """
    parts: list[str] = []
    alignment: Alignment = []
    last = 0
    affected = _affected()[to_code_points(text)].tobytes()
    for match in re.finditer(rb"\x00?\x01+", affected):
        begin, end = match.span()
        parts.append(text[last:begin])
        alignment += _identity(begin - last, last)
        changes = list(_compose(_decompose(text[begin:end])))
        parts.append("".join(change.character for change in changes))
        alignment += _aligned(changes, begin)
        last = end
    alignment += _identity(len(text) - last, last)
    return "".join((*parts, text[last:])), alignment


def _aligned(changes: list[_Change], begin: int) -> Iterator[tuple[int, int]]:
    positions = accumulate((max(1 - change.growth, 0) for change in changes), initial=begin)
    for position, change in zip(positions, changes, strict=False):
        source = position - 1 if change.growth > 0 else position
        yield source, source + 1


@functools.cache
def _affected() -> Mask:
    """Mark the characters that NFC may change or combine with the preceding one.

    Any other character stays as it is, and composition never crosses it.
    """
    joining = normalizer_code_points("combining") | {second for _, second in _compositions()}
    mask = np.zeros(NUM_CODE_POINTS, np.bool_)
    mask[[*map(ord, joining)]] = True
    for character in normalizer_code_points("decomposing"):
        mask[ord(character)] |= unicodedata.normalize("NFC", character) != character
    return mask


@functools.cache
def _compositions() -> dict[tuple[str, str], str]:
    """Return {(first, second): their composed character}."""
    pairs = {}
    for character in normalizer_code_points("decomposing"):
        if unicodedata.normalize("NFC", character) == character:
            parts = unicodedata.normalize("NFD", character)
            pairs[unicodedata.normalize("NFC", parts[:-1]), parts[-1]] = character
    return pairs


def _combining_class(character: str) -> int:
    known = character in normalizer_code_points("combining")
    return unicodedata.combining(character) if known else 0


def _decompose(text: str) -> list[_Change]:
    """Decompose a text canonically, and put combining characters into canonical order."""
    decomposing = normalizer_code_points("decomposing")
    ordered: list[_Change] = []
    pending: list[_Change] = []
    for character in text:
        known = character in decomposing
        parts = unicodedata.normalize("NFD", character) if known else character
        for i, part in enumerate(parts):
            if _combining_class(part) == 0:
                ordered += sorted(pending, key=_class_of_change)
                pending = []
            pending.append(_Change(part, min(i, 1)))
    return ordered + sorted(pending, key=_class_of_change)


def _class_of_change(change: _Change) -> int:
    return _combining_class(change.character)


def _compose(changes: list[_Change]) -> Iterator[_Change]:
    """Compose canonically: a character joins the last starter unless one between blocks it."""
    starter: _Change | None = None
    waiting: list[_Change] = []
    last_class = -1
    for change in changes:
        combining_class = _class_of_change(change)
        blocked = starter is None or last_class >= combining_class
        if starter is not None and not blocked:
            composed = _compositions().get((starter.character, change.character))
            if composed is not None:
                starter = _Change(composed, starter.growth + change.growth - 1)
                continue
        if combining_class == 0:
            yield from [starter] if starter is not None else []
            yield from waiting
            starter, waiting, last_class = change, [], -1
        elif starter is None:
            yield change
        else:
            waiting.append(change)
            last_class = combining_class
    yield from [starter] if starter is not None else []
    yield from waiting
