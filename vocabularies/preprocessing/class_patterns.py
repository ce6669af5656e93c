r"""Matches published patterns by Python's `re`, with the character classes of other regex engines.

Each character of a text is replaced by the number of its *cell*: two characters are in the same
cell if every class and literal of the pattern contains both or neither. The pattern is rewritten in
terms of cells, and `re` matches it on one byte for each character, so Python's own classes are not
used. Only the syntax that pretokenizers use is supported; other patterns are refused.

Example: ``\s+(?!\S)`` knows two cells, not white space (0) and white space (1), and becomes
``[\x01]+(?![\x00])``; the text "a  b" becomes 0 1 1 0.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vocabularies.preprocessing.unicode_classes import (
    CLASSES,
    NUM_CODE_POINTS,
    Engine,
    class_mask,
    folded,
)

PackedMask = NDArray[np.uint8]
"""A mask with one bit for each code point, the first one in the highest bit of the first byte."""
MAX_CELLS, MAX_SETS = 256, 63
MAX_DEPTH = 32  # Groups inside one another; Python's re fails at about a hundred.
MAX_PATTERN = 1_000  # Characters; 274 in all files we know. Each may take a mask of 140 kB.
CONTROL_ESCAPES = {"r": "\r", "n": "\n", "t": "\t"}
# `\\.` matches any escape; a letter that is neither a class nor a control character is refused
# later.
_SYMBOL = re.compile(
    r"""
    (?P<open> \( (?: \?: | \?i: | \?! )? )
  | (?P<close> \) )
  | (?P<either> \| )
  | (?P<end> \$ )
  | (?P<quantifier> (?: [*+?] | \{ \d+ (?: , \d* )? \} ) \+? )
  | \[ (?P<negated> \^? ) (?P<members> (?: \\p\{\w+\} | \\. | [^\[\]\\] )+ ) (?P<set> \] )
  | (?P<one> \\p\{\w+\} | \\. | [^\\\[\](){}*+?|.^$] )
    """,
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(r"(\\p\{\w+\}|\\.|[^\\])(?:-(\\[^\w]|[^\\]))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ClassPatterns:
    """Compiled patterns that share one set of cells.

    Attributes:
        cells: uint8[NUM_CODE_POINTS], the cell of each code point.
        patterns: the patterns in terms of cells; they match bytes.
    """

    cells: NDArray[np.uint8]
    patterns: tuple[re.Pattern[bytes], ...]

    def to_cells(self, text: str) -> bytes:
        """Replace each character of the text by the number of its cell, one byte."""
        return self.cells[to_code_points(text)].tobytes()


def to_code_points(text: str) -> NDArray[np.uint32]:
    """Convert a text to uint32[number of characters]."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def compile_patterns(patterns: tuple[str, ...], engine: Engine) -> ClassPatterns:
    """Compile patterns with the classes and the syntax of an engine.

    Raises:
        ValueError: a pattern has syntax that might have another meaning in Python's `re`.
    """
    symbols = [list(_symbols(pattern, engine)) for pattern in patterns]
    masks = [symbol for pattern in symbols for symbol in pattern if not isinstance(symbol, str)]
    cells, members = _partition(masks)
    sources = []
    for pattern in symbols:
        parts = [s if isinstance(s, str) else _cell_set(members[id(s)]) for s in pattern]
        sources.append("".join(parts).encode("ascii"))
    try:
        return ClassPatterns(cells, tuple(map(re.compile, sources)))
    except (re.error, OverflowError) as error:
        raise ValueError(f"{patterns}: Python's re cannot compile it: {error}") from error


def check_length(pattern: str) -> None:
    """Refuse patterns whose compilation would take too much time and memory.

    Raises:
        ValueError: a pattern has more than MAX_PATTERN characters.
    """
    if len(pattern) > MAX_PATTERN:
        message = f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN} are possible"
        raise ValueError(message)


@functools.lru_cache(maxsize=256)
def fingerprint(pattern: str, engine: Engine) -> str:
    """Return a string that is equal for patterns with the same parts in different spellings.

    Raises:
        ValueError: as `compile_patterns`.
    """
    return " ".join(s if isinstance(s, str) else _digest(s) for s in _symbols(pattern, engine))


def _digest(mask: PackedMask) -> str:
    return hashlib.blake2b(mask.tobytes(), digest_size=16).hexdigest()


def _symbols(pattern: str, engine: Engine) -> Iterator[str | PackedMask]:
    """Yield the pattern's parts: syntax in the notation of `re`, or the mask of a character set."""
    check_length(pattern)
    position, ignore_case, last = 0, [False], ""
    while position < len(pattern):
        symbol = _SYMBOL.match(pattern, position)
        if symbol is None:
            raise ValueError(
                f"{pattern!r}: not supported from character {position} on: {pattern[position:]!r}"
            )
        kind, text = symbol.lastgroup or "", symbol[0]
        position = symbol.end()
        match kind:
            case "open":
                ignore_case.append(text == "(?i:" or ignore_case[-1])
                if len(ignore_case) > MAX_DEPTH:
                    raise ValueError(f"more than {MAX_DEPTH - 1} nested groups")
                yield "(?!" if text == "(?!" else "(?:"
            case "close":
                ignore_case.pop()
                yield text
            case "either":
                yield text
            case "end" if _is_text_end(pattern[: symbol.start()], engine):
                yield r"\Z"
            case "quantifier" if _is_certain(text, last, engine):
                yield text
            case "one":
                yield _member_mask(text, None, ignore_case[-1], engine)
            case "set":
                yield _set_mask(symbol["members"], bool(symbol["negated"]), ignore_case[-1], engine)
            case _:
                raise ValueError(f"{pattern!r}: regex engines may disagree about {text!r}")
        if not ignore_case:
            raise ValueError(f"{pattern!r}: ')' without '('")
        last = kind
    if len(ignore_case) != 1:
        raise ValueError(f"{pattern!r}: '(' without ')'")


def _is_text_end(before: str, engine: Engine) -> bool:
    r"""Return whether ``$`` matches only at the text's end; in Onig, only after ``\s++``."""
    return engine == "rust" or before.endswith(r"\s++")


def _is_certain(quantifier: str, last: str, engine: Engine) -> bool:
    """Return whether `re` reads a quantifier like the engine; Onig's ``{1,3}+`` is a repetition."""
    possessive = quantifier.endswith("}+")
    return last in ("one", "set", "close") and not (engine == "onig" and possessive)


@functools.lru_cache(maxsize=32)  # Bounded, because uploaded patterns may have many different sets.
def _set_mask(members: str, negated: bool, ignore_case: bool, engine: Engine) -> PackedMask:
    if re.search(r"&&|\[:|^-|-$|--", members):
        raise ValueError(f"[{members}]: only plain sets of characters are supported")
    found = _MEMBER.findall(members)
    masks = (_member_mask(first, last or None, ignore_case, engine) for first, last in found)
    mask: PackedMask = functools.reduce(np.bitwise_or, masks)
    return ~mask if negated else mask


@functools.lru_cache(maxsize=32)
def _member_mask(first: str, last: str | None, ignore_case: bool, engine: Engine) -> PackedMask:
    name = first[3:-1] if first.startswith(r"\p") else first[1:].lower()
    if first.startswith(r"\p") or first in (r"\s", r"\S", r"\w", r"\W"):
        if name not in CLASSES or last:
            raise ValueError(f"{first!r}: the class is not supported")
        packed = np.packbits(class_mask(name, engine))
        return ~packed if first in (r"\S", r"\W") else packed
    mask = np.zeros(NUM_CODE_POINTS, np.bool_)
    first, last = _character(first), _character(last) if last else None
    if last and last < first:
        raise ValueError(f"{first}-{last}: the range ends before it begins")
    if ignore_case and first.isalpha():
        mask[[ord(letter) for letter in _folded(first, last, engine)]] = True
    else:
        mask[ord(first) : ord(last or first) + 1] = True
    return np.packbits(mask)


def _folded(first: str, last: str | None, engine: Engine) -> frozenset[str]:
    try:
        if last is None:
            return folded(first, engine)
    except KeyError:
        pass
    raise ValueError(f"{first!r}: ignoring case is supported only for the letters of contractions")


def _character(text: str) -> str:
    """Return the character that a literal or an escape represents."""
    if not text.startswith("\\"):
        return text
    if text[1] in CONTROL_ESCAPES:
        return CONTROL_ESCAPES[text[1]]
    if text[1].isalnum() or not text[1].isascii():
        raise ValueError(f"{text!r}: regex engines may disagree about this escape")
    return text[1]


def _partition(masks: list[PackedMask]) -> tuple[NDArray[np.uint8], dict[int, list[int]]]:
    """Divide code points into cells; return the cell of each, and the cells of each mask by id().

    Raises:
        ValueError: there are too many masks, or too many cells for a byte.
    """
    distinct = {id(mask): mask for mask in masks}
    if len(distinct) > MAX_SETS:
        raise ValueError(
            f"{len(distinct)} different character sets; at most {MAX_SETS} are possible"
        )
    # Neighbours that are in the same masks form a range: some thousands instead of a million.
    differs = np.zeros(NUM_CODE_POINTS, np.bool_)
    differs[0] = True
    for packed in distinct.values():
        mask = np.unpackbits(packed)
        differs[1:] |= mask[1:] != mask[:-1]
    begins = np.flatnonzero(differs)
    signature = np.zeros(len(begins), np.int64)
    for bit, packed in enumerate(distinct.values()):
        signature |= np.unpackbits(packed)[begins].astype(np.int64) << bit
    kinds, cells = np.unique(signature, return_inverse=True)
    if len(kinds) > MAX_CELLS:
        raise ValueError(f"more than {MAX_CELLS} cells; they would not fit in a byte")
    members = {key: np.flatnonzero(kinds >> bit & 1).tolist() for bit, key in enumerate(distinct)}
    lengths = np.diff(np.append(begins, NUM_CODE_POINTS))
    return np.repeat(cells.astype(np.uint8), lengths), members


def _cell_set(cells: list[int]) -> str:
    return "[" + "".join(f"\\x{cell:02x}" for cell in cells) + "]" if cells else "(?!)"
