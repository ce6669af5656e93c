"""Splits long sequences so that the parts have the same ids as the whole.

Parts may share letters, unlike the chunks of `text_chunks`: a part contains each k-mer that begins
in it completely, and the next part begins with the next k-mer. Sequences contain no white space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.apis.bulk.text_chunks import Cutter
from service.engines.encoder import holds_any
from vocabularies.batch.batch import EncodeOptions
from vocabularies.model.tables import BASE, OTHER, SPACE, KmerTable, kmer_table
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary

NEAR_BYTES = 1 << 12  # A search from the end reads this many bytes first.


class Split(NamedTuple):
    """Where a sequence is split: the end of the first part, and the start of the next part."""

    part_end: int
    rest_begin: int


class Splitter(Protocol):
    """Splits the sequences of one vocabulary."""

    def split(self, data: NDArray[np.uint8]) -> Split | None:
        """Return the last place at which a sequence can be split; None if there is none."""


def find_splitter(vocabulary: Vocabulary, options: EncodeOptions) -> Splitter | None:
    """Create the splitter; return None if ids may depend on the whole sequence."""
    cutter = Cutter.make(vocabulary, options)
    if cutter is not None:
        return _Characters(cutter)
    model = vocabulary.model
    if not isinstance(model, Kmers) or model.stride > model.k or vocabulary.normalizers:
        return None
    if model.stride < model.k and model.remainder == "letters":
        return None  # The remaining letters of a part would include shared letters.
    if options.max_length is not None or options.reverse_complement or options.add_special_tokens:
        return None
    circular = model.circular if options.circular is None else options.circular
    special = [token for token in vocabulary.special_tokens if token.matched]
    if circular or any(token.lstrip or token.rstrip or token.single_word for token in special):
        return None
    return _Kmers(model, kmer_table(vocabulary))


@dataclass(frozen=True, slots=True)
class _Characters:
    """Splits a sequence into parts that share no letters."""

    cutter: Cutter

    def split(self, data: NDArray[np.uint8]) -> Split | None:
        return _split_at(self.cutter.cut(data))


@dataclass(frozen=True, slots=True, eq=False)
class _Kmers:
    """Splits a sequence into parts that begin with a k-mer, or with another token.

    Example, k = 3: ACGTA is split into ACGTA and TA... at stride 1, and into ACG and TA... at
    stride 3.
    """

    model: Kmers
    table: KmerTable

    def split(self, data: NDArray[np.uint8]) -> Split | None:
        if holds_any(self.table.needs_reference, data):
            return None
        if self.model.frame == "run":
            return _split_at(self._last_place_in_run(data))
        return self._split_in_sequence(data)

    def _split_in_sequence(self, data: NDArray[np.uint8]) -> Split | None:
        """Split after the last whole k-mer; k-mers begin after the last white space."""
        k, stride = self.model.k, self.model.stride
        begin = self._behind_last(data, self.table.classes == SPACE)
        num_kmers = (len(data) - begin - k) // stride + 1
        if num_kmers < 1:
            return _split_at(begin)
        rest = begin + stride * num_kmers
        return Split(rest - stride + k, rest)

    def _last_place_in_run(self, data: NDArray[np.uint8]) -> int:
        """Return the last place to split if k-mers restart in each run of letters; 0 if none.

        A run of bytes that are not letters is one id, so it is never split.
        """
        classes = self.table.classes
        begin = self._behind_last(data, classes != BASE)
        if begin == len(data) and classes[data[-1]] == OTHER:
            begin = self._behind_last(data, classes != OTHER)
        elif begin < len(data):
            begin += (len(data) - begin) // self.model.k * self.model.k
        return begin

    @staticmethod
    def _behind_last(data: NDArray[np.uint8], flags: NDArray[np.bool_]) -> int:
        """Return the place after the last byte whose flag in bool[256] is set, or 0."""
        for begin in (max(0, len(data) - NEAR_BYTES), 0):
            if len(places := np.flatnonzero(flags[data[begin:]])):
                return begin + int(places[-1]) + 1
        return 0


def _split_at(place: int) -> Split | None:
    """Split at a place without shared letters; return None at the start of the sequence."""
    return Split(place, place) if place else None
