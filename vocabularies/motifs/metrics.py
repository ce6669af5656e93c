"""Measures how many motifs a tokenization splits, by the GeneticBPE paper's measures and others.

Spans and tokens are arrays. This module does not depend on vocabularies or engines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vocabularies.motifs.bank import Spans
from vocabularies.sequences.corpus import Corpus

MAX_K = 4


@dataclass(frozen=True, slots=True)
class MotifMetrics:
    """The measures of one corpus; the mean of no values is NaN.

    An instance is one span. If tokens overlap (k-mers with stride 1), the token at a position is
    the last one that begins at or before it.

    Attributes:
        num_sequences, num_bases, num_tokens, num_instances: the numbers of these in the corpus.
        distortion: the paper's delta_T (Equation 3) for k = 1 to MAX_K tokens (Definition 3.1): the
            share of a sequence's instances that are not inside k consecutive tokens; the mean over
            the sequences that have instances.
        preserved: the share of all instances that are inside one token.
        split_rate: the share of all instances that a token splits. A token splits an instance if it
            contains a part of it, but not all of it, and also other letters. The rate is 0 if every
            letter is a token, as in the paper's tables; `distortion` is then 1 by its definition.
        boundary_violations: the number of borders of instances that are inside such a splitting
            token.
        compression: the letters of the whole corpus divided by its tokens, as in `Training`.
        mean_compression: the paper's C_T (Equation 4): the letters of a sequence divided by its
            tokens; the mean over the sequences.
        fertility: the mean number of tokens that cover an instance, over the instances that are
            covered.
        tokens_per_sequence: the mean number of tokens of a sequence.
    """

    num_sequences: int
    num_bases: int
    num_tokens: int
    num_instances: int
    distortion: tuple[float, ...]
    preserved: float
    split_rate: float
    boundary_violations: int
    compression: float
    mean_compression: float
    fertility: float
    tokens_per_sequence: float


def measure_motifs(
    corpus: Corpus,
    spans: Spans,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> MotifMetrics:
    """Measure one tokenization of a corpus; `counts` of the corpus are ignored.

    Args:
        corpus: the sequences.
        spans: the instances; their weights are ignored.
        begins: int64[T], where each token begins in the joined corpus, ascending.
        ends: int64[T], where each ends.
    """
    rows = np.searchsorted(corpus.offsets, spans.begins, side="right") - 1
    needed, violations, is_split = _instances(spans, begins, ends)
    tokens = np.diff(np.searchsorted(begins, corpus.offsets))
    with_tokens = tokens > 0
    inside = [(needed > 0) & (needed <= k) for k in range(1, MAX_K + 1)]
    return MotifMetrics(
        num_sequences=len(corpus),
        num_bases=len(corpus.data),
        num_tokens=len(begins),
        num_instances=len(spans),
        distortion=tuple(_mean_by_row(~whole, rows, len(corpus)) for whole in inside),
        preserved=_mean(inside[0]),
        split_rate=_mean(is_split),
        boundary_violations=int(violations.sum()),
        compression=len(corpus.data) / len(begins) if len(begins) else np.nan,
        mean_compression=_mean(corpus.lengths[with_tokens] / tokens[with_tokens]),
        fertility=_mean(needed[needed > 0]),
        tokens_per_sequence=len(begins) / len(corpus) if len(corpus) else np.nan,
    )


def _instances(
    spans: Spans, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Count the covering tokens and violated borders of each instance, and mark split instances.

    The number of tokens is 0 if a letter of the instance is in no token.

    Example, tokens [0, 3) [3, 5) [5, 9) and the instance [2, 5): two tokens cover it; its border 2
    is inside the first, which does not contain all of it.
    """
    if not len(begins):
        nothing = np.zeros(len(spans), np.int64)
        return nothing, nothing, nothing > 0
    first = np.searchsorted(begins, spans.begins, side="right") - 1
    # If tokens overlap, the token at the begin may end after the first token that reaches the end.
    last = np.clip(np.searchsorted(ends, spans.ends), first, len(ends) - 1)
    gaps = np.concatenate(([0], np.cumsum(begins[1:] > ends[:-1])))
    covered = (
        (first >= 0)
        & (ends[first] > spans.begins)
        & (begins[last] < spans.ends)
        & (ends[last] >= spans.ends)
        & (gaps[last] == gaps[first])
    )
    needed = np.where(covered, last - first + 1, 0)
    over_left = (begins[first] < spans.begins) & (ends[first] > spans.begins) & (first >= 0)
    over_right = (begins[last] < spans.ends) & (ends[last] > spans.ends)
    over_left &= ends[first] < spans.ends
    over_right &= begins[last] > spans.begins
    return needed, over_left.astype(np.int64) + over_right, over_left | over_right


def _mean(values: NDArray[np.generic]) -> float:
    return float(values.mean()) if len(values) else np.nan


def _mean_by_row(values: NDArray[np.bool_], rows: NDArray[np.int64], num_rows: int) -> float:
    """Return the mean of the means of rows; rows without values are ignored."""
    totals = np.bincount(rows, minlength=num_rows)
    sums = np.bincount(rows, weights=values, minlength=num_rows)
    has_any = totals > 0
    return _mean(sums[has_any] / totals[has_any])
