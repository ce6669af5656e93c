"""The pretokenizer `motifs`: each motif and each stretch of text between motifs is a pretoken.

Part of the reference, in plain Python; every engine must split at the same places. This module does
not depend on files, engines or weights.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

MOTIFS = "motifs"
MAX_MOTIFS = 100_000
MAX_MOTIF_BYTES = 256


def split_at_motifs(text: str, motifs: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the leftmost-longest motifs and of the text between, in characters.

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
    """Return the set of motifs, and their lengths in descending order."""
    return frozenset(motifs), tuple(sorted({*map(len, motifs)} - {0}, reverse=True))
