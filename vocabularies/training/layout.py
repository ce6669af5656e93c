"""Converts a corpus to slots for training, with the spans of motifs and the ids of letters.

A slot holds one letter or a barrier, see `segmentation`. This module does not depend on pairs or
scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.errors import VocabularyError
from vocabularies.motifs.bank import MotifBank, Spans, choose_spans, find_spans, seed_spans
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.segmentation import BARRIER

LOOKED_UP_AT_ONCE = 1 << 20
LONG_ROW = 1000  # From this mean length of sequences on, each sequence is copied by itself.


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The slots, spans and ids at the start of a training.

    Attributes:
        letters: the letters that are tokens; the id of the first one is `num_special`.
        motifs: the motifs that are tokens, spelled as in the corpus; their ids follow those of the
            letters.
        num_special: the number of special tokens; they have the first ids.
        symbols: int16 or int32[slots], the id of each letter; BARRIER between sequences and for
            unknown letters.
        span_begins, span_ends: int64[S], the begin and the end of each span, in slots.
        span_weights: int64[S], the weight of each span, in thousandths.
        slot_counts: int64[slots], the number of copies that each slot counts as; None: 1 each.
        num_fixed_tokens: the number of tokens that no merge changes: motifs that are excluded from
            the slots, and unknown letters.
        num_bases: the number of letters of the whole corpus.
    """

    letters: str
    motifs: tuple[str, ...]
    num_special: int
    symbols: NDArray[np.signedinteger[Any]]
    span_begins: NDArray[np.int64]
    span_ends: NDArray[np.int64]
    span_weights: NDArray[np.int64]
    slot_counts: NDArray[np.int64] | None
    num_fixed_tokens: int
    num_bases: int

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """The letters and motifs, sorted by id."""
        return tuple(token.encode() for token in (*self.letters, *self.motifs))

    @property
    def num_ids(self) -> int:
        """The number of ids before the first merge."""
        return self.num_special + len(self.letters) + len(self.motifs)


def corpus_spans(
    corpus: Corpus,
    motifs: MotifBank | None,
    seed_region: tuple[int, int] | None = None,
    confidence: NDArray[np.int64] | None = None,
) -> Spans:
    """Find all spans of a corpus: the occurrences of motifs, and a region of each sequence.

    Args:
        corpus: the corpus to search.
        motifs: the motifs to find; None: no motifs.
        seed_region: the first and the last base of the region, counted from 1; None: no region.
        confidence: int64[N], the confidence of each base in thousandths, see `Spans.weighted`;
            None: 1000 each.
    """
    spans = Spans.none() if motifs is None else find_spans(motifs, corpus.data, corpus.offsets)
    if seed_region is not None:
        spans = spans.joined(seed_spans(corpus.offsets, *seed_region))
    return spans if confidence is None else spans.weighted(confidence)


def lay_out(
    corpus: Corpus,
    options: TrainingOptions,
    motifs: MotifBank | None = None,
    confidence: NDArray[np.int64] | None = None,
) -> Layout:
    """Convert a corpus to slots.

    Raises:
        VocabularyError: the corpus contains no letters, the motifs do not fit the options, or the
            letters and motifs are more tokens than `vocabulary_size`.
    """
    letters = "".join(sorted(options.alphabet)) if options.alphabet else corpus.letters
    if not letters:
        raise VocabularyError.at("corpus", "has no letter")
    num_bases, num_cut = corpus.num_bases, 0
    motif_tokens: tuple[str, ...] = ()
    if options.merge_rule == "span_preserving":
        motif_tokens, cut = _cut_out(corpus, options, motifs, confidence)
        num_cut, corpus, spans = _count(corpus, cut.begins), _between(corpus, cut), Spans.none()
    else:
        spans = corpus_spans(corpus, motifs, options.seed_region, confidence)
    _check_vocabulary_size(options, letters, motif_tokens)
    num_special = len(options.special_tokens)
    symbols = _symbols(corpus, letters, num_special)
    unknown = np.flatnonzero(symbols == BARRIER)
    rows = np.searchsorted(corpus.offsets, spans.begins, side="right")
    return Layout(
        letters=letters,
        motifs=motif_tokens,
        num_special=num_special,
        symbols=_with_barriers(corpus, symbols, BARRIER),
        span_begins=spans.begins + rows,
        span_ends=spans.ends + rows,
        span_weights=spans.weights,
        slot_counts=_slot_counts(corpus),
        num_fixed_tokens=num_cut + _count(corpus, unknown),
        num_bases=num_bases,
    )


def _check_vocabulary_size(options: TrainingOptions, letters: str, motifs: tuple[str, ...]) -> None:
    num_special = len(options.special_tokens)
    if num_special + len(letters) + len(motifs) > options.vocabulary_size:
        message = (
            f"{options.vocabulary_size} ids are too few for {num_special} special tokens, "
            f"{len(letters)} letters and {len(motifs)} motifs"
        )
        raise VocabularyError.at("vocabulary_size", message)


def _symbols(corpus: Corpus, letters: str, num_special: int) -> NDArray[np.signedinteger[Any]]:
    """Return the id of each letter, or BARRIER."""
    is_short = num_special + len(letters) <= np.iinfo(np.int16).max
    dtype: type[np.signedinteger[Any]] = np.int16 if is_short else np.int32
    ids = np.full(256, BARRIER, dtype)
    ids[[*letters.encode()]] = num_special + np.arange(len(letters))
    symbols = np.empty(len(corpus.data), dtype)
    # In blocks, because np.take converts its index to eight bytes for each letter.
    for begin in range(0, len(symbols), LOOKED_UP_AT_ONCE):
        part = slice(begin, begin + LOOKED_UP_AT_ONCE)
        np.take(ids, corpus.data[part], out=symbols[part], mode="clip")
    return symbols


def _with_barriers(
    corpus: Corpus, values: NDArray[np.signedinteger[Any]], barrier: int
) -> NDArray[np.signedinteger[Any]]:
    """Put a barrier before and after every sequence of values."""
    slots = np.full(len(corpus.data) + len(corpus) + 1, barrier, values.dtype)
    if len(values) >= LONG_ROW * len(corpus):
        for row, (begin, end) in enumerate(pairwise(corpus.offsets.tolist())):
            slots[begin + row + 1 : end + row + 1] = values[begin:end]
        return slots
    is_letter = np.ones(len(slots), bool)
    is_letter[corpus.offsets + np.arange(len(corpus) + 1)] = False
    slots[is_letter] = values
    return slots


def _slot_counts(corpus: Corpus) -> NDArray[np.int64] | None:
    if corpus.counts is None:
        return None
    return _with_barriers(corpus, np.repeat(corpus.counts, corpus.lengths), 0).astype(np.int64)


def _count(corpus: Corpus, positions: NDArray[np.int64]) -> int:
    """Count positions, weighted by the counts of their sequences."""
    if corpus.counts is None:
        return len(positions)
    rows = np.searchsorted(corpus.offsets, positions, side="right") - 1
    return int(corpus.counts[rows].sum())


def _cut_out(
    corpus: Corpus,
    options: TrainingOptions,
    bank: MotifBank | None,
    confidence: NDArray[np.int64] | None,
) -> tuple[tuple[str, ...], Spans]:
    """Return the motifs that become tokens, spelled as in the corpus, and their spans."""
    if bank is None:
        raise VocabularyError.at("motifs", "'span_preserving' needs motifs")
    if confidence is not None:
        message = (
            "must not be given: 'span_preserving' finds motifs only by their letters, as "
            "encoding does"
        )
        raise VocabularyError.at("confidence", message)
    has_u, has_t = "U" in corpus.letters, "T" in corpus.letters
    if has_u and has_t:
        message = "has both U and T as letters; 'span_preserving' needs one spelling of each motif"
        raise VocabularyError.at("corpus", message)
    spans = choose_spans(find_spans(bank, corpus.data, corpus.offsets))
    if options.motif_tokens is not None and options.motif_tokens < len(bank):
        bank = _most_frequent(bank, spans, options.motif_tokens)
        spans = choose_spans(find_spans(bank, corpus.data, corpus.offsets))
    sequences = bank.sequences
    if has_u:
        sequences = tuple(sequence.replace("T", "U") for sequence in sequences)
    return sequences, spans


def _most_frequent(bank: MotifBank, spans: Spans, number: int) -> MotifBank:
    """Keep the motifs with the highest total weight in these spans; of equal weights, the first."""
    totals = np.bincount(spans.motifs, minlength=len(bank)) * bank.weights
    kept = np.sort(np.argsort(-totals, kind="stable")[:number])
    return replace(bank, motifs=tuple(bank.motifs[i] for i in kept))


def _between(corpus: Corpus, spans: Spans) -> Corpus:
    """Make a corpus whose sequences are the letters between spans; the spans do not overlap."""
    edges = np.zeros(len(corpus.data) + 1, np.int64)
    np.add.at(edges, spans.begins, 1)
    np.add.at(edges, spans.ends, -1)
    outside = np.cumsum(edges)[:-1] == 0
    borders = np.union1d(corpus.offsets, np.concatenate((spans.begins, spans.ends)))
    kept_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(outside)))
    offsets = np.unique(kept_before[borders])
    counts = None
    if corpus.counts is not None:
        first_letters = np.flatnonzero(outside)[offsets[:-1]]
        counts = corpus.counts[np.searchsorted(corpus.offsets, first_letters, side="right") - 1]
    return Corpus(corpus.data[outside], offsets, counts)
