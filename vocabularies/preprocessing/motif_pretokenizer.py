"""The pretokenizer `motifs`: every motif is a pretoken, and so is each stretch between two.

Part of the reference: plain Python, and every engine must split where it splits. Knows no file, no
engine and no weights.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

MOTIFS = "motifs"
MAX_MOTIFS = 100_000
MAX_MOTIF_BYTES = 256


def split_at_motifs(text: str, motifs: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of motifs, leftmost and longest, and of the texts between, in characters.

    Example, motifs AC, ACG and GT: TACGTT is T | ACG | TT. ACG is longer than AC and takes the G
    of GT with it.
    """
    known, lengths = _by_length(motifs)
    last = begin = 0
    while begin < len(text):
        rest = len(text) - begin
        found = next((n for n in lengths if n <= rest and text[begin : begin + n] in known), 0)
        if not found:
            begin += 1
            continue
        if last < begin:
            yield last, begin
        yield begin, begin + found
        last = begin = begin + found
    if last < len(text):
        yield last, len(text)


@functools.lru_cache(maxsize=32)
def _by_length(motifs: tuple[str, ...]) -> tuple[frozenset[str], tuple[int, ...]]:
    """Return the motifs, and their lengths from the longest on."""
    return frozenset(motifs), tuple(sorted({*map(len, motifs)} - {0}, reverse=True))
