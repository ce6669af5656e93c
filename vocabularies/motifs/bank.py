"""Banks of motifs, and the spans of a corpus where motifs occur: all spans, or some of them.

Positions are bases of the joined corpus, `data` uint8[N] with `offsets` int64[B + 1]. No span
extends over two sequences. `motifs.files` reads banks from files. This module does not depend on
tokens or scores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from ahocorasick_rs import BytesAhoCorasick
from numpy.typing import NDArray

from vocabularies.errors import Finding, VocabularyError

FULL_WEIGHT = 1000
MAX_WEIGHT = 1_000_000
MIN_LENGTH, MAX_LENGTH = 2, 256
LETTERS = frozenset("ACGT")
# The bytes of the corpus that are searched at once, to bound the memory for matches, which are
# Python tuples.
CHUNK_BYTES = 1 << 22
_U_AS_T = bytes.maketrans(b"Uu", b"Tt")


@dataclass(frozen=True, slots=True)
class Motif:
    """A sequence that tokens should not split.

    Attributes:
        sequence: letters A, C, G and T; T matches both T and U.
        name: a name for people; may be empty.
        weight: its weight in scores, in thousandths; an integer, so that scores are the same on
            every machine.
        where: the place in a file that it was read from, such as ``seeds.tsv: line 3``.
    """

    sequence: str
    name: str = ""
    weight: int = FULL_WEIGHT
    where: str = ""


@dataclass(frozen=True)
class MotifBank:
    """A set of motifs with different sequences, sorted by sequence.

    If several motifs have the same sequence, the bank keeps the first name and the highest weight.

    Raises:
        VocabularyError: some motifs are invalid; the error lists every fault and its place.
    """

    motifs: tuple[Motif, ...]

    def __post_init__(self) -> None:
        if findings := tuple(_faults(self.motifs)):
            raise VocabularyError(findings)
        by_sequence: dict[str, Motif] = {}
        for motif in self.motifs:
            other = by_sequence.setdefault(motif.sequence, motif)
            if motif.weight > other.weight:
                by_sequence[motif.sequence] = Motif(
                    other.sequence, other.name, motif.weight, other.where
                )
        in_order = tuple(by_sequence[sequence] for sequence in sorted(by_sequence))
        object.__setattr__(self, "motifs", in_order)

    @classmethod
    def of(cls, sequences: Iterable[str]) -> MotifBank:
        """Make a bank of motifs with weight 1 from sequences, in upper or lower case, with T or U.

        Raises:
            VocabularyError: some sequences are invalid; the error lists every fault and its place.
        """
        return cls(
            tuple(
                Motif(spell_with_t(sequence), where=f"motifs[{i}]")
                for i, sequence in enumerate(sequences)
            )
        )

    def __len__(self) -> int:
        return len(self.motifs)

    @property
    def sequences(self) -> tuple[str, ...]:
        """The sequence of each motif, sorted."""
        return tuple(motif.sequence for motif in self.motifs)

    @cached_property
    def weights(self) -> NDArray[np.int64]:
        """The motifs' weights in thousandths, int64[K]."""
        return np.array([motif.weight for motif in self.motifs], np.int64)

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and a hash of the sequences and weights, on which the spans depend."""
        lines = "".join(f"{motif.sequence} {motif.weight}\n" for motif in self.motifs)
        return "sha256:" + hashlib.sha256(lines.encode()).hexdigest()

    @cached_property
    def _automaton(self) -> BytesAhoCorasick:
        return BytesAhoCorasick([sequence.encode() for sequence in self.sequences])

    def matches(self, data: bytes) -> list[tuple[int, int, int]]:
        """Find (motif, begin, end) of every occurrence, sorted by end; U matches T."""
        return self._automaton.find_matches_as_indexes(data.translate(_U_AS_T), overlapping=True)


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Parts of a corpus that tokens should not split, sorted by begin, then the longest first.

    Attributes:
        begins, ends: int64[S], the begin and the end of each span, in bases of the joined corpus.
        motifs: int32[S], the number of the motif in the bank; -1: the span is a region by position.
        weights: int64[S], in thousandths, greater than 0.
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    motifs: NDArray[np.int32]
    weights: NDArray[np.int64]

    @classmethod
    def in_order(
        cls,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        motifs: NDArray[np.int32],
        weights: NDArray[np.int64],
    ) -> Spans:
        """Make spans from arrays [S], one entry a span, whose entries are in any order."""
        order = np.lexsort((-ends, begins))
        return cls(begins[order], ends[order], motifs[order], weights[order])

    @classmethod
    def none(cls) -> Spans:
        """Make an empty set of spans."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, np.zeros(0, np.int32), empty)

    def __len__(self) -> int:
        return len(self.begins)

    def take(self, index: NDArray[Any]) -> Spans:
        """Return the spans that an array of ascending indices or a mask selects."""
        return Spans(self.begins[index], self.ends[index], self.motifs[index], self.weights[index])

    def joined(self, other: Spans) -> Spans:
        """Return these spans and others, sorted; equal spans of both are kept twice."""
        return Spans.in_order(
            np.concatenate((self.begins, other.begins)),
            np.concatenate((self.ends, other.ends)),
            np.concatenate((self.motifs, other.motifs)),
            np.concatenate((self.weights, other.weights)),
        )

    def weighted(self, confidence: NDArray[np.int64]) -> Spans:
        """Multiply each weight by its span's mean confidence, rounded; drop spans of weight 0.

        Args:
            confidence: int64[N], thousandths for each base of the joined corpus.
        """
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(confidence)))
        lengths = (self.ends - self.begins) * FULL_WEIGHT
        parts = self.weights * (sums[self.ends] - sums[self.begins])
        weights = (2 * parts + lengths) // (2 * lengths)
        kept = weights > 0
        return Spans(self.begins[kept], self.ends[kept], self.motifs[kept], weights[kept])


def spell_with_t(sequence: str) -> str:
    """Return a sequence in upper case with U replaced by T."""
    return sequence.upper().replace("U", "T")


def _faults(motifs: tuple[Motif, ...]) -> Iterator[Finding]:
    if not motifs:
        yield Finding("motifs", "a bank needs at least one motif")
    for i, motif in enumerate(motifs):
        where = motif.where or f"motifs[{i}]"
        if wrong := sorted({*motif.sequence} - LETTERS):
            letters = ", ".join(map(repr, wrong[:5]))
            yield Finding(where, f"has {letters}; a motif may have only A C G T or U")
        elif not MIN_LENGTH <= len(motif.sequence) <= MAX_LENGTH:
            length = len(motif.sequence)
            yield Finding(where, f"has {length} letters; it must have {MIN_LENGTH} to {MAX_LENGTH}")
        if not 0 < motif.weight <= MAX_WEIGHT:
            yield Finding(
                where,
                f"the weight is {motif.weight / FULL_WEIGHT}; it must be above 0 and at most 1000",
            )


def find_spans(bank: MotifBank, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Spans:
    """Find every occurrence of every motif, including overlapping and nested ones.

    Only upper-case letters match; U and T are the same letter. Each occurrence needs 32 bytes of
    memory.

    Args:
        bank: the motifs.
        data: uint8[N], the sequences, joined.
        offsets: int64[B + 1], where each sequence begins.

    Example, motifs ACG and CG in TACGA|CG: ACG at 1, CG at 2 and at 5. A|CG is not an occurrence of
    ACG, because it spans two sequences.
    """
    overlap = max(map(len, bank.sequences)) - 1
    found = [np.zeros((0, 3), np.int64)]
    for begin in range(0, len(data), CHUNK_BYTES):
        # Matches that end inside the overlap were found in the chunk before.
        first = max(0, begin - overlap)
        matches = bank.matches(data[first : begin + CHUNK_BYTES].tobytes())
        flat = np.fromiter(chain.from_iterable(matches), np.int64, 3 * len(matches))
        rows = flat.reshape(-1, 3) + np.array([0, first, first])
        found.append(rows[rows[:, 2] > begin])
    motifs, begins, ends = np.concatenate(found).T
    inside = _row_ends(begins, offsets) >= ends
    motifs = motifs[inside].astype(np.int32)
    return Spans.in_order(begins[inside], ends[inside], motifs, bank.weights[motifs])


def _row_ends(positions: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where the sequence that holds each position ends."""
    return offsets[np.searchsorted(offsets, positions, side="right")]


def seed_spans(
    offsets: NDArray[np.int64], first: int = 2, last: int = 8, weight: int = FULL_WEIGHT
) -> Spans:
    """Make a span of the same region in every sequence, by default a miRNA's seed (2 to 8).

    Args:
        offsets: int64[B + 1], where each sequence begins.
        first: the first base of the region, counted from 1.
        last: the last base of the region; a shorter sequence gets no span.
        weight: the weight of each span, in thousandths.

    Raises:
        ValueError: the region is empty or begins before base 1.
    """
    if not 1 <= first < last:
        raise ValueError(f"bases {first} to {last}: at least two are needed, counted from 1")
    long_enough = np.diff(offsets) >= last
    begins = offsets[:-1][long_enough] + (first - 1)
    motifs = np.full(len(begins), -1, np.int32)
    return Spans(begins, begins + (last - first + 1), motifs, np.full(len(begins), weight))


def choose_spans(spans: Spans) -> Spans:
    """Choose spans without overlaps as the pretokenizer `motifs` does: leftmost, then longest.

    Example, motifs AC, ACG and GT in TACGTT: ACG at 1 is chosen; AC is shorter, and GT overlaps it.
    """
    follower = np.searchsorted(spans.begins, spans.ends).tolist()
    chosen = []
    place = 0
    while place < len(follower):
        chosen.append(place)
        place = follower[place]
    return spans.take(np.array(chosen, np.int64))
