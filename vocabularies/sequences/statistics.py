"""Counts which tokens of a vocabulary occur in sequences, and how often.

Ids come from any engine, one batch after the other, so memory does not grow with the sequences.

Source: mtdna-foundation-model, docs/02_tokenization.md, "Vocabulary Statistics".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.mtdna import KmerVocabulary, tokenize_sequence


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A token, how often it occurs, and its share of all tokens."""

    token: str
    id: int
    count: int
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class VocabularyStatistics:
    """The number of occurrences of a vocabulary's tokens in some sequences.

    Attributes:
        vocabulary: the vocabulary.
        counts: int64[V], how often each id occurs.
        lengths: {number of tokens: number of sequences with this many tokens}.
        is_word: bool[V], whether an id is a k-mer; for a vocabulary without k-mers, whether it is
            a token that is not special.
    """

    vocabulary: Vocabulary
    counts: NDArray[np.int64]
    lengths: Mapping[int, int]
    is_word: NDArray[np.bool_]

    @property
    def unit(self) -> str:
        """The name of the counted tokens: "k-mers", or "tokens" if the vocabulary has no k-mers."""
        return "k-mers" if isinstance(self.vocabulary.model, Kmers) else "tokens"

    @property
    def num_sequences(self) -> int:
        """The number of sequences."""
        return sum(self.lengths.values())

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all sequences."""
        return int(self.counts.sum())

    @property
    def num_possible(self) -> int:
        """The number of k-mers in the vocabulary."""
        return int(self.is_word.sum())

    @property
    def num_seen(self) -> int:
        """The number of k-mers that occur."""
        return int(np.count_nonzero(self.counts[self.is_word]))

    @property
    def share_seen(self) -> float:
        """The share of the vocabulary's k-mers that occur at least once, 0 to 1."""
        return self.num_seen / max(1, self.num_possible)

    @property
    def num_unknown(self) -> int:
        """The number of [UNK] tokens; 0 if the vocabulary has no such token."""
        unknown_id = self.vocabulary.roles.get("unk")
        return 0 if unknown_id is None else int(self.counts[unknown_id])

    @property
    def unknown_share(self) -> float:
        """The share of all tokens that are [UNK], 0 to 1."""
        return self.num_unknown / max(1, self.num_tokens)

    @property
    def mean_tokens(self) -> float:
        """The mean number of tokens of a sequence."""
        return self.num_tokens / max(1, self.num_sequences)

    def most_frequent(self, number: int = 10) -> list[TokenCount]:
        """Return the most frequent k-mers; equally frequent ones are sorted by id."""
        order = np.argsort(-self.counts, kind="stable")
        seen = order[self.is_word[order] & (self.counts[order] > 0)][:number]
        total = max(1, self.num_tokens)
        return [
            TokenCount(self.vocabulary.token_string(i), i, n, n / total)
            for i, n in zip(seen.tolist(), self.counts[seen].tolist(), strict=True)
        ]

    def never_seen(self) -> list[str]:
        """Return the k-mers that do not occur, sorted by id."""
        absent = np.flatnonzero(self.is_word & (self.counts == 0))
        return [self.vocabulary.token_string(i) for i in absent.tolist()]

    def as_dict(self, number: int = 10) -> dict[str, Any]:
        """Return the statistics as JSON values, with the `number` most frequent k-mers."""
        return {
            "digest": self.vocabulary.digest,
            "num_sequences": self.num_sequences,
            "num_tokens": self.num_tokens,
            "num_possible": self.num_possible,
            "num_seen": self.num_seen,
            "share_seen": self.share_seen,
            "num_unknown": self.num_unknown,
            "unknown_share": self.unknown_share,
            "tokens_per_sequence": {
                "mean": self.mean_tokens,
                "min": min(self.lengths, default=0),
                "max": max(self.lengths, default=0),
            },
            "most_frequent": [asdict(count) for count in self.most_frequent(number)],
            "never_seen": self.never_seen(),
        }


class TokenCounter:
    """Counts the tokens of sequences that are encoded batch after batch."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._counts = np.zeros(len(vocabulary), np.int64)
        self._lengths: Counter[int] = Counter()

    def add(self, ids: NDArray[np.integer[Any]], lengths: NDArray[np.int64]) -> None:
        """Count the ids of some sequences, without begin and end tokens.

        Args:
            ids: [T], the ids of all sequences.
            lengths: int64[B], the number of ids of each sequence.
        """
        self._counts += np.bincount(ids, minlength=len(self._counts))
        self._lengths.update(lengths.tolist())

    def statistics(self) -> VocabularyStatistics:
        """Return the statistics of the tokens counted so far."""
        is_word = _find_words(self._vocabulary)
        return VocabularyStatistics(
            self._vocabulary, self._counts.copy(), dict(self._lengths), is_word
        )


def _find_words(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    is_word = np.zeros(len(vocabulary), np.bool_)
    model = vocabulary.model
    if isinstance(model, Kmers):
        is_word[model.first_id : model.first_id + len(model.letters) ** model.k] = True
        return is_word
    is_word[:] = [token is not None for token in vocabulary.tokens]
    is_word[[token.id for token in vocabulary.special_tokens]] = False
    return is_word


def vocabulary_statistics(
    sequences: Iterable[str], vocabulary: KmerVocabulary, *, circular: bool = False
) -> VocabularyStatistics:
    """Count the k-mers of sequences.

    Args:
        sequences: bases, as for `tokenize_sequence`.
        vocabulary: gives the ids of k-mers.
        circular: whether k-mers over the junction are counted. The model's documentation does not
            count them: 16,569 bases have 16,564 tokens.

    Raises:
        TypeError, ValueError: as `tokenize_sequence`.
    """
    counter = TokenCounter(vocabulary.vocabulary)
    for sequence in sequences:
        tokens = tokenize_sequence(sequence, vocabulary, max_seq_len=None, circular=circular)
        ids = tokens["input_ids"]
        counter.add(ids, np.array([len(ids)]))
    return counter.statistics()
