"""What a DNA tokenizer does with letters, as flat tables: an id for each letter, or words of k.

Made from one of our vocabularies here and from any other tokenizer in `tokenizer_discovery`. Knows
neither devices nor torch: `torch_lookup` looks up in these tables on any device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vocabularies.model.tables import ASCII, BASE, character_table, kmer_table
from vocabularies.model.types import Characters, Kmers
from vocabularies.model.vocabulary import Vocabulary

__all__ = ["ELSEWHERE", "LetterRule", "letter_rule"]

ELSEWHERE = -1
"""In a table: only the upstream tokenizer knows what a row with this byte becomes."""


@dataclass(frozen=True, slots=True, eq=False)
class LetterRule:
    """Ids of rows by look-up: exact for every row that has no byte whose code is ELSEWHERE.

    Token t of a row stands for the k letters from t * stride on; what these leave over at the end
    (fewer than k) has an id for each letter, or none.

    Attributes:
        codes: int32[256]. For characters (k = 1 and no `word_ids`) a byte's id. For words its
            digit 0 .. base - 1; base**k for a letter that makes any word unknown.
        k, stride, base: letters of a word; from one word to the next; how many letters there are.
        word_ids: int32[base**k + 1], by the number that a word's digits spell; the last entry is
            the unknown word's. None for characters.
        letter_ids: int32[256], ids of letters that are left over; None: they are dropped.
    """

    codes: NDArray[np.int32]
    k: int = 1
    stride: int = 1
    base: int = 0
    word_ids: NDArray[np.int32] | None = None
    letter_ids: NDArray[np.int32] | None = None

    @property
    def is_total(self) -> bool:
        """Whether no row ever needs the upstream tokenizer."""
        return int(self.codes.min()) != ELSEWHERE

    @property
    def largest_id(self) -> int:
        """The largest id that any row can get."""
        tables = (self.word_ids, self.letter_ids) if self.word_ids is not None else (self.codes,)
        return max(int(table.max()) for table in tables if table is not None)

    def num_words(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[B]: whole words of rows of so many letters."""
        return np.maximum((lengths - self.k) // self.stride + 1, 0)

    def counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[B]: ids of rows of so many letters."""
        if self.word_ids is None:
            return lengths
        words = self.num_words(lengths)
        if self.letter_ids is None:
            return words
        return words + lengths - np.where(words > 0, (words - 1) * self.stride + self.k, 0)

    def ids(self, data: NDArray[np.uint8]) -> NDArray[np.int32] | None:
        """The ids of one row, or None where only the upstream tokenizer knows them.

        Example: words of 3 letters ACGT from id 6 on, letters left over from 70 on: ACGTA gives
        ACG T A, that is 12 73 70.
        """
        codes = self.codes[data]
        if (codes == ELSEWHERE).any():
            return None
        if self.word_ids is None:
            return codes
        num_words = int(self.num_words(np.array([len(data)]))[0])
        places = np.arange(num_words) * self.stride
        numbers = np.zeros(num_words, np.int64)
        for i in range(self.k):
            numbers = numbers * self.base + codes[places + i]
        words = self.word_ids[np.minimum(numbers, len(self.word_ids) - 1)]
        if self.letter_ids is None:
            return words
        covered = int(places[-1]) + self.k if num_words else 0
        return np.concatenate([words, self.letter_ids[data[covered:]]])


def letter_rule(vocabulary: Vocabulary) -> LetterRule | str:
    """The rule of one of our vocabularies, or why there is none.

    The ids are those without begin and end tokens, with special tokens looked for in the text.
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
        ids[ASCII:] = ELSEWHERE  # A byte of a character that takes several.
    ids[table.needs_reference] = ELSEWHERE
    # A character that gives no id (DROPPED is -1 too) shortens its row.
    return LetterRule(ids)


def _kmer_rule(vocabulary: Vocabulary, model: Kmers) -> LetterRule | str:
    if model.circular:
        return "a circular sequence wraps"
    if vocabulary.normalizers:
        return "its normalizers rewrite the letters"
    table = kmer_table(vocabulary)
    codes = table.codes.copy()
    codes[table.needs_reference] = ELSEWHERE
    if model.frame == "run":
        codes[table.classes != BASE] = ELSEWHERE
    elif model.whitespace != "letter":
        codes[table.is_space] = ELSEWHERE
    word_ids = np.arange(model.first_id, model.first_id + table.num_kmers + 1, dtype=np.int32)
    word_ids[-1] = model.unknown_id
    letter_ids = table.letter_ids if model.remainder == "letters" else None
    return LetterRule(codes, model.k, model.stride, len(model.letters), word_ids, letter_ids)
