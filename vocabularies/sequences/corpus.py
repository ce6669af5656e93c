"""A corpus: the sequences for learning a vocabulary and for measuring motifs.

This module does not depend on files or tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch
from vocabularies.errors import VocabularyError

COUNTED_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sequences of ASCII letters; no merge crosses the border of a sequence.

    Attributes:
        data: uint8[N], the sequences joined.
        offsets: int64[B + 1], where each begins; the last entry is N.
        counts: int64[B], the weight of each sequence in training, as a number of copies; None: 1
            each.

    Raises:
        VocabularyError: a byte is not ASCII, or the arrays do not fit together.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if len(self.data) and self.data.max() > 127:
            place = int(np.argmax(self.data > 127))
            row = int(np.searchsorted(self.offsets, place, side="right")) - 1
            where = f"sequence {row + 1}, letter {place - self.offsets[row] + 1}"
            raise VocabularyError.at(where, f"byte {self.data[place]:#x} is not ASCII")
        if self.counts is not None:
            if len(self.counts) != len(self):
                message = f"there are {len(self.counts)} counts for {len(self)} sequences"
                raise VocabularyError.at("counts", message)
            if len(self) and self.counts.min() < 1:
                raise VocabularyError.at("counts", "each count must be at least 1")

    @classmethod
    def of(cls, sequences: Iterable[str]) -> Corpus:
        """Make a corpus from strings."""
        batch = Batch([*sequences])
        return cls(batch.data, batch.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of letters of each sequence, int64[B]."""
        return np.diff(self.offsets)

    @cached_property
    def num_bases(self) -> int:
        """The number of letters of all sequences, weighted by `counts`."""
        counts = 1 if self.counts is None else self.counts
        return int((self.lengths * counts).sum())

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and a hash of letters, offsets and counts."""
        digest = hashlib.sha256(np.ascontiguousarray(self.offsets, "<i8").tobytes())
        if self.counts is not None:
            digest.update(np.ascontiguousarray(self.counts, "<i8").tobytes())
        digest.update(np.ascontiguousarray(self.data).data)
        return "sha256:" + digest.hexdigest()

    @cached_property
    def letters(self) -> str:
        """The letters that occur in the corpus, sorted by their codes."""
        counts = np.zeros(128, np.int64)
        # Counted in blocks: bincount converts its input to eight bytes a letter.
        for begin in range(0, len(self.data), COUNTED_AT_ONCE):
            counts += np.bincount(self.data[begin : begin + COUNTED_AT_ONCE], minlength=128)
        return bytes(np.flatnonzero(counts).tolist()).decode()

    def upper(self) -> Corpus:
        """Return the corpus in upper case; genomes often have repeats in lower case."""
        lower = (self.data >= ord("a")) & (self.data <= ord("z"))
        return replace(self, data=np.where(lower, self.data - 32, self.data).astype(np.uint8))

    def spelled(self, letter: Literal["T", "U"]) -> Corpus:
        """Return the corpus with every U replaced by T, or every T by U, keeping the case."""
        other = b"Uu" if letter == "T" else b"Tt"
        table = np.arange(256, dtype=np.uint8)
        table[[*other]] = [ord(letter), ord(letter.lower())]
        return replace(self, data=table[self.data])
