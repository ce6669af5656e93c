"""Finds the begin and end tokens that a tokenizer puts around a row.

They are compared on texts of many lengths, to detect tokenizers that cut rows into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpu.embedding.discovery.probe_texts import DNA, make_random_text
from gpu.embedding.row_layout import NO_FRAME, Frame
from gpu.embedding.upstream_tokenizer import EncodeBatch
from vocabularies.batch.batch import Batch
from vocabularies.batch.post_processing import AddedIds
from vocabularies.model.vocabulary import Vocabulary

_LENGTHS = (20, 1, 2, 3, 7, 100, 511, 1030, 4096, 20_000)
"""Letters of the texts; the first one shows begin and end tokens at few ids."""


def read_frame(vocabulary: Vocabulary) -> Frame:
    """Read the begin and end tokens of a Vocabulary."""
    added = AddedIds.of(vocabulary)
    if not len(added):
        return NO_FRAME
    return Frame(vocabulary.prefix, vocabulary.suffix, added.max_piece_tokens)


def find_frame(content: EncodeBatch, framed: EncodeBatch) -> Frame | None:
    """Find the begin and end tokens of a tokenizer; None if they differ between texts.

    Args:
        content: encodes rows without begin and end tokens.
        framed: encodes rows with them.
    """
    texts = [make_random_text(DNA, length, length) for length in _LENGTHS]
    try:
        rows, framed_rows = _encode(content, texts), _encode(framed, texts)
    # Foreign code: some tokenizers refuse long texts; then only the tokenizer can encode them.
    except Exception:
        return None
    for frame in _list_frames(rows[0], framed_rows[0]):
        expected = ([*frame.prefix, *row, *frame.suffix] for row in rows)
        if all(map(np.array_equal, framed_rows, expected)):
            return frame
    return None


def _encode(encode: EncodeBatch, texts: Sequence[str]) -> list[NDArray[np.int32]]:
    ids, offsets = encode(Batch(texts))
    return np.split(ids, offsets[1:-1])


def _list_frames(row: NDArray[np.int32], framed: NDArray[np.int32]) -> list[Frame]:
    """List the possible begin and end tokens by which `framed` extends the ids of `row`."""
    num_added = len(framed) - len(row)
    frames = []
    for begin in range(num_added + 1):
        end = begin + len(row)
        if np.array_equal(framed[begin:end], row):
            frames.append(Frame(tuple(framed[:begin].tolist()), tuple(framed[end:].tolist())))
    return frames
