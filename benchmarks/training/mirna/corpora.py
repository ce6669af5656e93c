"""Corpora of all matures and of the distinct ones, and the tokens of such a corpus.

Related species have many sequences in common. In the corpus of all matures such a sequence counts
once for each species, in that of the distinct ones only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.mirna.tokenizers import SEED_REGION, SIZE, Encoder, vocabulary_encoder
from vocabularies.motifs.bank import Spans, seed_spans
from vocabularies.motifs.metrics import MotifMetrics, measure_motifs
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

ALL, DISTINCT, TRANSFERRED = "all", "distinct", "all, measured on distinct"
SHORTEST_MATURE = 18  # Of the paper: 18 to 25 letters.

Ints = NDArray[np.int64]


def distinct(corpus: Corpus) -> Corpus:
    """Make a corpus of the different sequences, each once, in the order of the first ones."""
    return Corpus.of(dict.fromkeys(sequences(corpus)))


def sequences(corpus: Corpus) -> list[str]:
    """List the sequences of a corpus as strings."""
    text = corpus.data.tobytes().decode()
    return [text[begin:end] for begin, end in pairwise(corpus.offsets.tolist())]


def seeds(corpus: Corpus) -> list[str]:
    """List the seed of each sequence, by place."""
    return [sequence[SEED_REGION[0] - 1 : SEED_REGION[1]] for sequence in sequences(corpus)]


@dataclass(frozen=True, slots=True)
class Tokens:
    """A corpus in tokens: the places of each, int64[T], and where each sequence's begin."""

    corpus: Corpus
    offsets: Ints
    begins: Ints
    ends: Ints

    @classmethod
    def of(cls, corpus: Corpus, encode: Encoder) -> Tokens:
        """Encode a corpus.

        Raises:
            ValueError: a letter is in no token, or in several.
        """
        _, offsets, begins, ends = encode(corpus)
        if int((ends - begins).sum()) != len(corpus.data):
            raise ValueError("the tokens do not cover every letter once")
        return cls(corpus, offsets, begins, ends)

    def measure(self, spans: Spans | None = None) -> MotifMetrics:
        """Measure spans; None: the seed of each sequence, by place."""
        if spans is None:
            spans = seed_spans(self.corpus.offsets, *SEED_REGION)
        return measure_motifs(self.corpus, spans, self.begins, self.ends)


def facts(corpus: Corpus) -> dict[str, Any]:
    """Count the sequences, letters and different seeds of a corpus."""
    return {
        "sequences": len(corpus),
        "letters": corpus.num_bases,
        "seeds": len({*seeds(corpus)}),
    }


def whole_matures(corpus: Corpus) -> dict[str, Any]:
    """Learn BPE; count the tokens that are as long as a mature, and those that are one."""
    vocabulary = train(corpus, TrainingOptions(SIZE)).vocabulary
    learnt = [token.decode() for token in vocabulary.tokens if token is not None]
    matures = {*sequences(corpus)}
    offsets = Tokens.of(corpus, vocabulary_encoder(vocabulary)).offsets
    return {
        "long_tokens": sum(len(token) >= SHORTEST_MATURE for token in learnt),
        "whole_matures": sum(token in matures for token in learnt),
        "one_token": float((np.diff(offsets) == 1).mean()),
    }
