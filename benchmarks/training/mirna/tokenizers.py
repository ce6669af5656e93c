"""Makes the tokenizers that the GeneticBPE paper compares from one corpus, and measures each on it.

Each gives ids and the place of every token; the measures are `vocabularies.motifs.metrics`. Motifs
are the seeds of the corpus itself, or those that MirMachine lists for its families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, trainers

from service.engines.cpu.engine import CpuEngine
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.model.types import Characters, Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.motifs.bank import MotifBank, Spans, choose_spans, find_spans, seed_spans
from vocabularies.motifs.metrics import MotifMetrics, measure_motifs
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

SIZE, LAMBDA, MU = 512, 2.5, 10.0
SEED_REGION = (2, 8)
MOTIF_TOKENS = 256
UNKNOWN = "[UNK]"
LETTERS = "ACGT"
OPTIONS = EncodeOptions(add_special_tokens=False, special="plain", spans=True)

Ints = NDArray[np.int64]
Encoder = Callable[[Corpus], tuple[Ints, Ints, Ints, Ints]]
Maker = Callable[[Corpus, MotifBank], tuple[int, Encoder]]


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A corpus in tokens.

    Attributes:
        ids: int64[T]; offsets: int64[B + 1], where each sequence's begin.
        num_ids: of the vocabulary.
        seconds: to make the tokenizer.
        by_place: the measures with the seed of each sequence, bases 2-8, as its one motif.
        anywhere: the same with all seeds of the bank, wherever they stand.
        cut_out: with the spans that "spans preserved" makes tokens, leftmost and longest.
    """

    ids: Ints
    offsets: Ints
    num_ids: int
    seconds: float
    by_place: MotifMetrics
    anywhere: MotifMetrics
    cut_out: MotifMetrics


def seed_bank(corpus: Corpus) -> MotifBank:
    """Make a bank of every seed in the corpus."""
    begin, end = SEED_REGION[0] - 1, SEED_REGION[1]
    rows = corpus.offsets[:-1][corpus.lengths >= end]
    return MotifBank.of(corpus.data[row + begin : row + end].tobytes().decode() for row in rows)


def vocabulary_encoder(vocabulary: Vocabulary) -> Encoder:
    """Return a function that encodes a corpus: ids, offsets of rows, begins and ends of tokens."""

    def encode(corpus: Corpus) -> tuple[Ints, Ints, Ints, Ints]:
        batch = Batch(data=corpus.data, offsets=corpus.offsets, options=OPTIONS)
        encoded = CpuEngine().encode(vocabulary, batch)
        if encoded.errors or encoded.spans is None:
            raise ValueError(f"refused: {encoded.errors}")
        offsets = encoded.offsets.astype(np.int64)
        spans = encoded.spans + np.repeat(corpus.offsets[:-1], np.diff(offsets))[:, None]
        return encoded.ids.astype(np.int64), offsets, spans[:, 0], spans[:, 1]

    return encode


def _of_vocabulary(vocabulary: Vocabulary) -> tuple[int, Encoder]:
    return len(vocabulary), vocabulary_encoder(vocabulary)


def _characters(_corpus: Corpus, _families: MotifBank) -> tuple[int, Encoder]:
    tokens = (UNKNOWN.encode(), *(letter.encode() for letter in LETTERS))
    letter_ids = tuple((letter, i + 1) for i, letter in enumerate(LETTERS))
    return _of_vocabulary(
        Vocabulary(tokens, Characters(letter_ids, 0), (SpecialToken(UNKNOWN, 0),))
    )


def _kmers(k: int) -> tuple[int, Encoder]:
    """Make adjacent k-mers; each letter after the last k-mer is a separate token."""
    words = ["".join(letters) for letters in product(LETTERS, repeat=k)]
    tokens = (UNKNOWN, *words, *LETTERS)
    letter_ids = tuple((letter, 1 + len(words) + i) for i, letter in enumerate(LETTERS))
    model = Kmers(
        k, 1, 0, LETTERS, stride=k, frame="run", letter_ids=letter_ids, remainder="letters"
    )
    encoded = tuple(token.encode() for token in tokens)
    return _of_vocabulary(Vocabulary(encoded, model, (SpecialToken(UNKNOWN, 0),)))


def _unigram(corpus: Corpus, _families: MotifBank) -> tuple[int, Encoder]:
    tokenizer = Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=SIZE, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    tokenizer.train_from_iterator(_texts(corpus), trainer)

    def encode(corpus: Corpus) -> tuple[Ints, Ints, Ints, Ints]:
        rows = tokenizer.encode_batch(_texts(corpus), add_special_tokens=False)
        offsets = np.concatenate(([0], np.cumsum([len(row.ids) for row in rows])))
        ids = np.concatenate([row.ids for row in rows]).astype(np.int64)
        spans = np.concatenate([np.array(row.offsets).reshape(-1, 2) for row in rows])
        spans = spans + np.repeat(corpus.offsets[:-1], np.diff(offsets))[:, None]
        return ids, offsets.astype(np.int64), spans[:, 0], spans[:, 1]

    return tokenizer.get_vocab_size(), encode


def _texts(corpus: Corpus) -> list[str]:
    return [*Batch(data=corpus.data, offsets=corpus.offsets).texts()[0]]


# Figure 3c: the most frequent seeds are tokens, cut out wherever they stand.
_PRESERVING = TrainingOptions(SIZE, merge_rule="span_preserving", motif_tokens=MOTIF_TOKENS)
_WEIGHTED = TrainingOptions(SIZE, motif_weight=LAMBDA, penalty_weight=MU)


def _bpe(size: int = SIZE) -> Maker:
    options = TrainingOptions(size)
    return lambda corpus, _families: _of_vocabulary(train(corpus, options).vocabulary)


def _genetic(motif_weight: float = LAMBDA, penalty_weight: float = MU, size: int = SIZE) -> Maker:
    """Train by Equation 9, with the seed of each sequence as its motif."""
    options = TrainingOptions(
        size,
        motif_weight=motif_weight,
        penalty_weight=penalty_weight,
        seed_region=SEED_REGION,
    )
    return lambda corpus, _families: _of_vocabulary(train(corpus, options).vocabulary)


def _of_families(options: TrainingOptions) -> Maker:
    """Train with the seeds of MirMachine's families as motifs, at any place."""
    return lambda corpus, families: _of_vocabulary(
        train(corpus, options, motifs=families).vocabulary
    )


def _preserving(size: int = SIZE) -> Maker:
    options = replace(_PRESERVING, vocabulary_size=size)
    return lambda corpus, _families: _of_vocabulary(
        train(corpus, options, motifs=seed_bank(corpus)).vocabulary
    )


VARIANTS: dict[str, Maker] = {
    "Char-Level": _characters,
    "k-mer (3)": lambda _corpus, _families: _kmers(3),
    "k-mer (4)": lambda _corpus, _families: _kmers(4),
    "UnigramLM": _unigram,
    "BPE": _bpe(),
    "GeneticBPE": _genetic(),
    "GeneticBPE, spans preserved": _preserving(),
    "GeneticBPE, families' seeds": _of_families(_WEIGHTED),
    "GeneticBPE, families' seeds, spans preserved": _of_families(_PRESERVING),
    "GeneticBPE (λ = 1)": _genetic(1.0),
    "GeneticBPE (λ = 5)": _genetic(5.0),
    "GeneticBPE (μ = 2)": _genetic(penalty_weight=2.0),
    "GeneticBPE (μ = 20)": _genetic(penalty_weight=20.0),
    "GeneticBPE (1024)": _genetic(size=1024),
    "BPE (1024)": _bpe(1024),
    "GeneticBPE, spans preserved (1024)": _preserving(1024),
}


def cut_out(corpus: Corpus) -> Spans:
    """Find the spans that the rule `motifs` cuts out with the tokens of "spans preserved"."""
    learnt = train(corpus, _PRESERVING, motifs=seed_bank(corpus)).vocabulary
    bank = MotifBank.of(learnt.motifs)
    return choose_spans(find_spans(bank, corpus.data, corpus.offsets))


def tokenized(
    name: str, corpus: Corpus, families: MotifBank, anywhere: Spans, chosen: Spans
) -> Tokenized:
    """Make a tokenizer, encode the corpus that it was made from, and measure three sets of spans.

    Raises:
        ValueError: a tokenizer refuses a sequence, or does not give all of it.
    """
    begin = perf_counter()
    num_ids, encode = VARIANTS[name](corpus, families)
    seconds = perf_counter() - begin
    ids, offsets, begins, ends = encode(corpus)
    if int((ends - begins).sum()) != len(corpus.data):
        raise ValueError(f"{name} does not cover every letter once")
    seeds = seed_spans(corpus.offsets, *SEED_REGION)
    by_place, found, cut = (
        measure_motifs(corpus, spans, begins, ends) for spans in (seeds, anywhere, chosen)
    )
    return Tokenized(ids, offsets, num_ids, seconds, by_place, found, cut)
