"""Describes a DNA tokenizer by flat tables: an id for each letter, or for each word of k letters.

`read_letter_rule` makes the tables from a Vocabulary; `tokenizer_discovery` makes them for any
other tokenizer. This module uses neither devices nor torch; the modules of `lookup/` look up ids in
the tables on a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vocabularies.model.tables import (
    ASCII,
    BASE,
    OTHER,
    SINGLE,
    SPACE,
    KmerTable,
    character_table,
    kmer_table,
)
from vocabularies.model.types import Characters, Kmers
from vocabularies.model.vocabulary import Vocabulary

NEEDS_UPSTREAM = -1
"""The code of a byte without an id of its own: the upstream tokenizer encodes rows that hold it."""


UNKNOWN_TO_RULES = 255
"""The class of a byte that only the upstream tokenizer encodes."""


@dataclass(frozen=True, slots=True, eq=False)
class RunRule:
    """The ids of letters other than bases; after such letters, a new sequence of words begins.

    In a run of bases, words begin at its first base. The bases after the last word have ids or
    none, as in a row that contains only bases.

    Attributes:
        classes: uint8[256]. BASE; SINGLE: the byte has an id of its own; SPACE: it has none; OTHER:
            a run of such bytes is one `unknown_id`; UNKNOWN_TO_RULES.
        single_ids: int32[256], by the bytes of class SINGLE.
        unknown_id: the id of a run of other bytes.
    """

    classes: NDArray[np.uint8]
    single_ids: NDArray[np.int32]
    unknown_id: int

    @property
    def largest_id(self) -> int:
        """The largest id of this rule."""
        singles = self.single_ids[self.classes == SINGLE]
        return max(self.unknown_id, int(singles.max(initial=0)))

    def knows(self, data: NDArray[np.uint8]) -> bool:
        """Return whether the rule gives the ids of these letters."""
        return bool((self.classes[data] != UNKNOWN_TO_RULES).all())


@dataclass(frozen=True, slots=True, eq=False)
class LetterRule:
    """The tables in which the ids of a row are looked up.

    The ids are exact for every row in which no byte has the code NEEDS_UPSTREAM, and, if there are
    `runs`, for every row without letters of the class UNKNOWN_TO_RULES. Token t of a row represents
    the k letters from t * stride on. Fewer than k letters may remain at the end of a row; each of
    them has an id, or none of them has.

    Attributes:
        codes: int32[256]. For characters (k = 1 and no `word_ids`) the id of each byte. For words
            the digit of each letter, 0 .. base - 1; base**k makes any word with it unknown.
        k: letters of a word.
        stride: letters from the begin of one word to the begin of the next.
        base: the number of different letters.
        word_ids: int32[base**k + 1], by the number that the digits of a word spell; the last entry
            is the id of unknown words. None for characters.
        letter_ids: int32[256], the ids of letters after the last word; None: they have no ids.
        runs: the ids of rows with other letters among the words; None: the tokenizer encodes them.
    """

    codes: NDArray[np.int32]
    k: int = 1
    stride: int = 1
    base: int = 0
    word_ids: NDArray[np.int32] | None = None
    letter_ids: NDArray[np.int32] | None = None
    runs: RunRule | None = None

    @property
    def covers(self) -> NDArray[np.bool_]:
        """The bytes of rows whose ids are in the tables, bool[256]."""
        covered: NDArray[np.bool_] = self.codes != NEEDS_UPSTREAM
        return covered if self.runs is None else covered | (self.runs.classes != UNKNOWN_TO_RULES)

    @property
    def is_total(self) -> bool:
        """Whether the tables give the ids of every row."""
        return int(self.codes.min()) != NEEDS_UPSTREAM

    @property
    def largest_id(self) -> int:
        """The largest id in the tables."""
        tables = (self.word_ids, self.letter_ids) if self.word_ids is not None else (self.codes,)
        largest = max(int(table.max()) for table in tables if table is not None)
        return largest if self.runs is None else max(largest, self.runs.largest_id)

    def count_words(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the whole words of rows, int64[B], from their lengths in letters, int64[B]."""
        return np.maximum((lengths - self.k) // self.stride + 1, 0)

    def count_ids(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the ids of rows, int64[B], from their lengths in letters, int64[B]."""
        if self.word_ids is None:
            return lengths
        words = self.count_words(lengths)
        if self.letter_ids is None:
            return words
        return words + lengths - np.where(words > 0, (words - 1) * self.stride + self.k, 0)

    def encode(self, data: NDArray[np.uint8]) -> NDArray[np.int32] | None:
        """Look up the ids of one row, int32[T]; None if the tokenizer has to encode it.

        Example: words of 3 letters ACGT have the ids from 6 on, letters after them those from 70
        on. ACGTA gives ACG T A, that is 12 73 70.
        """
        codes = self.codes[data]
        if (codes == NEEDS_UPSTREAM).any():
            if self.runs is None or not self.runs.knows(data):
                return None
            return self._encode_runs(self.runs, data)
        if self.word_ids is None:
            return codes
        num_words = int(self.count_words(np.array([len(data)]))[0])
        places = np.arange(num_words) * self.stride
        numbers = np.zeros(num_words, np.int64)
        for i in range(self.k):
            numbers = numbers * self.base + codes[places + i]
        words = self.word_ids[np.minimum(numbers, len(self.word_ids) - 1)]
        if self.letter_ids is None:
            return words
        covered = int(places[-1]) + self.k if num_words else 0
        return np.concatenate([words, self.letter_ids[data[covered:]]])

    def _encode_runs(self, runs: RunRule, data: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Look up the ids of one row, run of one class by run: the plain form of `run_lookup`."""
        classes = runs.classes[data]
        begins = [0, *(np.flatnonzero(np.diff(classes)) + 1).tolist(), len(data)]
        parts = [np.zeros(0, np.int32)]
        for begin, end in pairwise(begins):
            kind = classes[begin]
            if kind == BASE:
                words = self.encode(data[begin:end])
                assert words is not None, "every base has a code"
                parts.append(words)
            elif kind == SINGLE:
                parts.append(runs.single_ids[data[begin:end]])
            elif kind == OTHER:
                parts.append(np.array([runs.unknown_id], np.int32))
        return np.concatenate(parts)


def read_letter_rule(vocabulary: Vocabulary) -> LetterRule | str:
    """Read the rule of a Vocabulary; if it has none, return the reason in words.

    The ids have no begin and end tokens. A row that may hold a special token needs the upstream
    tokenizer.
    """
    model = vocabulary.model
    if isinstance(model, Kmers):
        return _kmer_rule(vocabulary, model)
    table = character_table(vocabulary)
    if table is None:
        if isinstance(model, Characters):
            return "its normalizers rewrite the letters"
        return f"a model of kind {vocabulary.kind} has no id for each letter"
    ids = table.ids[:256].copy()
    if not table.by_byte:
        ids[ASCII:] = NEEDS_UPSTREAM  # Bytes of characters of several bytes.
    ids[table.needs_reference] = NEEDS_UPSTREAM
    # DROPPED equals NEEDS_UPSTREAM: a character without an id shortens its row, so the tokenizer
    # encodes it.
    return LetterRule(ids)


def _kmer_rule(vocabulary: Vocabulary, model: Kmers) -> LetterRule | str:
    if model.circular:
        return "a circular sequence wraps"
    if vocabulary.normalizers:
        return "its normalizers rewrite the letters"
    table = kmer_table(vocabulary)
    codes = table.codes.copy()
    codes[table.needs_reference] = NEEDS_UPSTREAM
    if model.frame == "run":
        codes[table.classes != BASE] = NEEDS_UPSTREAM
    elif model.whitespace != "letter":
        codes[table.is_space] = NEEDS_UPSTREAM
    word_ids = np.arange(model.first_id, model.first_id + table.num_kmers + 1, dtype=np.int32)
    word_ids[-1] = model.unknown_id
    letter_ids = table.letter_ids if model.remainder == "letters" else None
    runs = _read_run_rule(model, table) if model.frame == "run" else None
    return LetterRule(codes, model.k, model.stride, len(model.letters), word_ids, letter_ids, runs)


def _read_run_rule(model: Kmers, table: KmerTable) -> RunRule:
    classes = table.classes.copy()
    assert set(classes.tolist()) <= {BASE, SINGLE, SPACE, OTHER}
    classes[table.needs_reference] = UNKNOWN_TO_RULES
    return RunRule(classes, table.letter_ids, model.unknown_id)
