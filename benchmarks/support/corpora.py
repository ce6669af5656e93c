"""Makes the timed texts from the data folder's files, the same bytes on every machine.

No random generator of a library is used, as its numbers may change with the version. This module
depends on neither a vocabulary nor an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.texts import Bytes, Text, character_begins, one_row

LINES_A_PARAGRAPH = 20
BLANK = 0x20
SIGNS = np.frombuffer(b"    \n.,;:()[]{}0123456789_-", np.uint8)
RUNS = (
    b"0123456789",
    b"9876543210",
    b" " * 10,
    b"\n" * 10,
    b"\t" * 10,
    b"?" * 10,
    b" \n \t\r     ",
    b"abcdefghij",
)
RUN_CHOICES, NEWLINE_SPACE = 10, 5

FILES: dict[str, tuple[str, ...]] = {
    "english": ("war_and_peace.txt", "pride_and_prejudice.txt", "wikitext2_test.raw.txt"),
    "code": ("code_python_stdlib.txt", "code_c_headers.txt", "code_js_lodash.txt"),
    "languages": (
        "debian_reference_ja.txt",
        "debian_reference_zh-cn.txt",
        "debian_faq_ko.txt",
        "debian_reference_de.txt",
        "udhr_17_languages.txt",
    ),
}
"""Real texts, each file's share as large as the file."""


def numbers(seed: int, count: int, begin: int = 0) -> NDArray[np.uint64]:
    """Return numbers `begin` to `begin + count` of splitmix64 (Steele, Lea, Flood, 2014)."""
    first = np.uint64((seed * 0x2545F4914F6CDD1D) % 2**64)
    z = (np.arange(begin + 1, begin + count + 1, dtype=np.uint64) + first) * np.uint64(
        0x9E3779B97F4A7C15
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))


def _below(seed: int, count: int, limit: int) -> Bytes:
    """Make random uint8[count] below `limit`."""
    drawn = numbers(seed, count // 8 + 1).view(np.uint8)[:count].astype(np.uint16)
    return (drawn * np.uint16(limit) >> 8).astype(np.uint8)


def paragraphs(content: bytes) -> list[bytes]:
    """Split a file into groups of lines."""
    lines = content.splitlines(keepends=True)
    starts = range(0, len(lines), LINES_A_PARAGRAPH)
    return [b"".join(lines[i : i + LINES_A_PARAGRAPH]) for i in starts]


def tiled(parts: Sequence[bytes], size: int, seed: int = 0) -> Bytes:
    """Join shuffled paragraphs, each time in another order, to `size` bytes of whole characters."""
    chosen: list[bytes] = []
    total = 0
    while total < size:
        for i in np.argsort(numbers(seed, len(parts)), kind="stable").tolist():
            chosen.append(parts[i])
            total += len(parts[i])
        seed += 1
    data = np.frombuffer(b"".join(chosen)[: size + 1], np.uint8)
    return data[: int(character_begins(data, np.array([size]))[0])]


def real_text(folder: Path, names: Sequence[str], size: int, seed: int = 0) -> Bytes:
    """Make a text of files in the data folder's `text`.

    Raises:
        FileNotFoundError: one is not there.
    """
    parts = [part for name in names for part in paragraphs((folder / "text" / name).read_bytes())]
    return tiled(parts, size, seed)


def hostile(size: int, long_every: int = 0, seed: int = 0) -> Bytes:
    """Make words of 2 to 14 random letters between signs: nothing repeats, nearly all is merged.

    If `long_every` is not 0, one word in `long_every` has 32 to 1,055 letters.
    """
    text = _below(seed + 1, size, 26) + np.uint8(ord("a"))
    count = size // 6 + 2
    lengths = 2 + (numbers(seed + 2, count) % np.uint64(13)).astype(np.int64)
    if long_every:
        extra = 32 + (numbers(seed + 3, count) % np.uint64(1024)).astype(np.int64)
        lengths = np.where(numbers(seed + 4, count) % np.uint64(long_every) == 0, extra, lengths)
    ends = np.cumsum(lengths)
    ends = ends[ends < size]
    text[ends] = SIGNS[(numbers(seed + 5, len(ends)) % np.uint64(len(SIGNS))).astype(np.intp)]
    return text


def runs(size: int, seed: int = 0) -> Bytes:
    """Make runs of digits, blanks, line breaks, tabs and mixtures, 1 to 128 long; short words."""
    count = size // 12 + 64
    drawn = numbers(seed + 6, count)
    spread = np.uint64(1) << (drawn % np.uint64(8))
    lengths = 1 + ((drawn >> np.uint64(16)) % spread).astype(np.int64)
    kinds = ((drawn >> np.uint64(8)) % np.uint64(len(RUNS))).astype(np.uint8)
    kind = np.resize(np.repeat(kinds * np.uint8(RUN_CHOICES), lengths), size)
    text = np.frombuffer(b"".join(RUNS), np.uint8)[kind + _below(seed + 7, size, RUN_CHOICES)]
    pairs = np.flatnonzero(kind == NEWLINE_SPACE * RUN_CHOICES)
    text[pairs] = np.where(pairs % 2 == 0, np.uint8(ord("\n")), np.uint8(BLANK))
    return text


CORPORA: dict[str, Callable[[Path, int], Bytes]] = {
    "english": lambda folder, size: real_text(folder, FILES["english"], size),
    "code": lambda folder, size: real_text(folder, FILES["code"], size),
    "languages": lambda folder, size: real_text(folder, FILES["languages"], size),
    "runs": lambda _, size: runs(size),
    "hostile": lambda _, size: hostile(size),
}


def make_corpus(name: str, folder: Path, size: int) -> Text:
    """Make a corpus of one row of about `size` bytes."""
    return one_row(name, CORPORA[name](folder, size))


def cliffs(size: int) -> dict[str, Bytes]:
    """Make texts of one pretoken or of white space alone, on which a slow path would show."""
    return {
        "letters": _below(9, size, 26) + np.uint8(ord("a")),
        "spaces": np.full(size, BLANK, np.uint8),
        "digits": _below(10, size, 10) + np.uint8(ord("0")),
        "newline_space": np.resize(np.frombuffer(b"\n ", np.uint8), size),
    }
