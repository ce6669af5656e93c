"""The splitting rule `motifs`: every motif is a pretoken, and what lies between is one each.

In plain Python: where it cuts is the oracle of every engine. Knows no file and no engine; banks of
motifs with weights, and what is learnt from them, are not its business.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vocabularies.model.vocabulary import Normalizer, Vocabulary

__all__ = ["MAX_MOTIFS", "MAX_MOTIF_BYTES", "MOTIFS", "cut_motifs", "motif_faults"]

MOTIFS = "motifs"
MAX_MOTIFS = 100_000
MAX_MOTIF_BYTES = 256


def cut_motifs(text: str, motifs: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Leftmost, of several the longest, without overlaps: (begin, end) in characters, in order.

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
    """The motifs, and their lengths from the longest on."""
    return frozenset(motifs), tuple(sorted({*map(len, motifs)} - {0}, reverse=True))


def motif_faults(vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """Every fault of the motifs as (place, message); places count them as they were given."""
    motifs = vocabulary.motifs
    if vocabulary.pretokenizer != MOTIFS:
        if motifs:
            rule = f"the pretokenizer {vocabulary.pretokenizer}"
            yield "motifs", f"{rule} cuts no motifs; {MOTIFS!r} does"
        return
    if vocabulary.kind != "bpe":
        yield "pretokenizer", f"{vocabulary.kind} cut no motifs; only BPE does"
    elif not vocabulary.model.ignore_merges:  # type: ignore[union-attr]
        message = "must be true, so that a motif is its own token whatever the merges give"
        yield "model.ignore_merges", message
    if not motifs:
        yield "motifs", f"the pretokenizer {MOTIFS!r} needs at least one motif"
    if len(motifs) > MAX_MOTIFS:
        yield "motifs", f"{len(motifs)} motifs; {MAX_MOTIFS} are possible"
    yield from _each(vocabulary)


def _each(vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    special_ids = {token.id for token in vocabulary.special_tokens}
    contents = {token.content for token in vocabulary.special_tokens}
    ordinary = {t for i, t in enumerate(vocabulary.tokens) if t and i not in special_ids}
    seen: dict[str, int] = {}
    never = _never_left(vocabulary.normalizers)
    for i, motif in enumerate(vocabulary.motifs):
        where, encoded = f"motifs[{i}]", motif.encode()
        lost = sorted(never & {*motif})
        if not motif:
            yield where, "an empty motif would be found everywhere"
        elif motif in seen:
            yield where, f"{motif!r} stands at motifs[{seen[motif]}] too"
        elif len(encoded) > MAX_MOTIF_BYTES:
            yield where, f"{len(encoded)} bytes; a motif has at most {MAX_MOTIF_BYTES}"
        elif motif in contents:
            yield where, f"{motif!r} is a special token, which is found before any motif"
        elif encoded not in ordinary:
            yield where, f"{motif!r} is not a token"
        elif lost:
            letters = ", ".join(map(repr, lost))
            yield where, f"{motif!r} is never found: the normalizers leave no {letters}"
        seen.setdefault(motif, i)


def _never_left(steps: tuple[Normalizer, ...]) -> set[str]:
    """ASCII letters that no text has once it is normalized."""
    gone: set[str] = set()
    for step in steps:
        if step.kind == "lowercase":
            gone |= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        elif step.kind == "replace":
            if len(step.pattern) == 1 and step.pattern.isascii():
                gone.add(step.pattern)
            gone -= {*step.content}
        elif step.kind == "replace_regex":
            gone -= {*step.content}
        elif step.kind == "nfc":
            gone -= {*"K;`"}  # Some characters become ASCII ones in NFC.
    return gone
