"""Learns from motif banks that lack motifs or hold false ones (GeneticBPE paper, section 6.4).

A bank is the seeds of the corpus. An incomplete one lacks a share of the different seeds; a noisy
one holds false ones as well, stretches of seven letters outside of bases 2-8 that are no seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.training.mirna.corpora import Tokens, seeds, sequences
from benchmarks.training.mirna.tokenizers import (
    LAMBDA,
    MOTIF_TOKENS,
    MU,
    SEED_REGION,
    SIZE,
    vocabulary_encoder,
)
from vocabularies.motifs.bank import FULL_WEIGHT, MotifBank, find_spans, seed_spans
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

RULES = ("Equation 9", "spans preserved")
SHARES = (0.25, 0.5, 0.75)
BY_PLACE = TrainingOptions(SIZE, motif_weight=LAMBDA, penalty_weight=MU, seed_region=SEED_REGION)
CUT_OUT = TrainingOptions(SIZE, merge_rule="span_preserving", motif_tokens=MOTIF_TOKENS)


def bank_rows(corpus: Corpus, num_draws: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each rule, kind of bank, share and draw."""
    bpe = _plain(corpus)
    for rule in RULES:
        complete = _learn(corpus, rule, seeds(corpus))
        yield {"rule": rule, "bank": "complete", "share": 0.0, "draw": 0, **_figures(complete)}
        for share in SHARES:
            for draw in range(num_draws):
                row = {"rule": rule, "share": share, "draw": draw}
                yield row | {"bank": "incomplete", **_incomplete(corpus, rule, share, draw, bpe)}
                yield row | {"bank": "noisy", **_noisy(corpus, rule, share, draw, complete)}


def _plain(corpus: Corpus) -> Tokens:
    vocabulary = train(corpus, TrainingOptions(SIZE)).vocabulary
    return Tokens.of(corpus, vocabulary_encoder(vocabulary))


def _learn(corpus: Corpus, rule: str, known: list[str], false: list[str] | None = None) -> Tokens:
    """Learn with these seeds and false motifs, and encode the corpus.

    By Equation 9 a seed counts where it stands at bases 2-8, and a false motif anywhere.
    """
    if rule == RULES[1]:
        bank = MotifBank.of([*known, *(false or ())])
        learnt = train(corpus, CUT_OUT, motifs=bank)
    else:
        learnt = train(
            corpus,
            BY_PLACE,
            motifs=MotifBank.of(false) if false else None,
            confidence=_confidence(corpus, {*known}),
        )
    return Tokens.of(corpus, vocabulary_encoder(learnt.vocabulary))


def _confidence(corpus: Corpus, known: set[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return int64[N]: 0 at unknown seeds, which then weigh nothing; 1000 at all other bases."""
    confidence = np.full(len(corpus.data), FULL_WEIGHT, np.int64)
    begin, end = SEED_REGION[0] - 1, SEED_REGION[1]
    for first, seed in zip(corpus.offsets.tolist(), seeds(corpus), strict=False):
        if seed not in known:
            confidence[first + begin : first + end] = 0
    return confidence


def _figures(tokens: Tokens) -> dict[str, Any]:
    found = tokens.measure()
    return {"distortion": found.distortion[0], "compression": found.mean_compression}


def _incomplete(corpus: Corpus, rule: str, share: float, draw: int, bpe: Tokens) -> dict[str, Any]:
    """Leave out a share of the different seeds; measure known and unknown ones apart."""
    own = seeds(corpus)
    drawn = sorted({*own})
    random.Random(draw).shuffle(drawn)
    unknown = {*drawn[: round(share * len(drawn))]}
    known = sorted({*own} - unknown)
    tokens = _learn(corpus, rule, known)
    spans = seed_spans(corpus.offsets, *SEED_REGION)
    is_known = np.array([seed not in unknown for seed in own])
    return _figures(tokens) | {
        "known": tokens.measure(spans.take(is_known)).distortion[0],
        "unknown": tokens.measure(spans.take(~is_known)).distortion[0],
        "unknown_bpe": bpe.measure(spans.take(~is_known)).distortion[0],
    }


def _noisy(corpus: Corpus, rule: str, share: float, draw: int, complete: Tokens) -> dict[str, Any]:
    """Add false motifs, a share of the number of different seeds; measure them, too."""
    own = seeds(corpus)
    length, first = SEED_REGION[1] - SEED_REGION[0] + 1, SEED_REGION[1]
    others = {
        sequence[place : place + length]
        for sequence in sequences(corpus)
        for place in range(first, len(sequence) - length + 1)
    } - {*own}
    false = random.Random(draw).sample(sorted(others), round(share * len({*own})))
    tokens = _learn(corpus, rule, own, false)
    spans = find_spans(MotifBank.of(false), corpus.data, corpus.offsets)
    return _figures(tokens) | {
        "false": tokens.measure(spans).distortion[0],
        "false_before": complete.measure(spans).distortion[0],
    }
