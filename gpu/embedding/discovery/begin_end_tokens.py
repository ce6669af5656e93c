"""Finds the begin and end tokens that a tokenizer puts around a row.

They are compared on texts of many lengths, to detect tokenizers that cut rows into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpu.embedding.discovery.probe_texts import DNA, make_random_text
from gpu.embedding.row_layout import NO_BEGIN_END_TOKENS, BeginEndTokens
from gpu.embedding.upstream_tokenizer import EncodeBatch
from vocabularies.batch.batch import Batch
from vocabularies.batch.post_processing import AddedIds
from vocabularies.model.vocabulary import Vocabulary

_LENGTHS = (20, 1, 2, 3, 7, 100, 511, 1030, 4096, 20_000)
"""Letters of the texts; the first one shows begin and end tokens at few ids."""


def read_begin_end_tokens(vocabulary: Vocabulary) -> BeginEndTokens:
    """Read the begin and end tokens of a Vocabulary."""
    added = AddedIds.of(vocabulary)
    if not len(added):
        return NO_BEGIN_END_TOKENS
    return BeginEndTokens(vocabulary.prefix, vocabulary.suffix, added.max_piece_tokens)


def find_begin_end_tokens(
    content: EncodeBatch, with_special_tokens: EncodeBatch
) -> BeginEndTokens | None:
    """Find the begin and end tokens of a tokenizer; None if they differ between texts.

    Args:
        content: encodes rows without begin and end tokens.
        with_special_tokens: encodes rows with them.
    """
    texts = [make_random_text(DNA, length, length) for length in _LENGTHS]
    try:
        rows, longer_rows = _encode(content, texts), _encode(with_special_tokens, texts)
    # Foreign code: some tokenizers refuse long texts; then only the tokenizer can encode them.
    except Exception:
        return None
    for tokens in _list_candidates(rows[0], longer_rows[0]):
        expected = ([*tokens.prefix, *row, *tokens.suffix] for row in rows)
        if all(map(np.array_equal, longer_rows, expected)):
            return tokens
    return None


def _encode(encode: EncodeBatch, texts: Sequence[str]) -> list[NDArray[np.int32]]:
    ids, offsets = encode(Batch(texts))
    return np.split(ids, offsets[1:-1])


def _list_candidates(row: NDArray[np.int32], longer_row: NDArray[np.int32]) -> list[BeginEndTokens]:
    """List the possible begin and end tokens that extend `row` to `longer_row`."""
    num_added = len(longer_row) - len(row)
    candidates = []
    for begin in range(num_added + 1):
        end = begin + len(row)
        if np.array_equal(longer_row[begin:end], row):
            candidates.append(
                BeginEndTokens(tuple(longer_row[:begin].tolist()), tuple(longer_row[end:].tolist()))
            )
    return candidates
