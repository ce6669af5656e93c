"""Cuts the ids of a text into chunks of limited size, which may overlap.

The input is the ids of a text with their spans. This module does not depend on texts or engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import EncodeOptions
from vocabularies.batch.post_processing import AddedIds, Content, count_kept, post_process
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices

LONGEST = np.array([2**62])


@dataclass(frozen=True, slots=True)
class Chunks:
    """The C chunks of one text.

    Attributes:
        ids: int32[T], the ids of all chunks, begin and end tokens included.
        offsets: int64[C + 1], where the ids of each chunk begin.
        starts: int64[C], the number of each chunk's first token in the text, from 0.
        spans: int64[C, 2], the begin and the end of each chunk in the text, in bytes.
        num_tokens: the number of the text's tokens.
    """

    ids: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]
    spans: NDArray[np.int64]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """The options for cutting a text into chunks.

    Attributes:
        added: the begin and end tokens of each chunk.
        size: the largest number of tokens of the text in a chunk.
        overlap: the number of tokens that two neighbouring chunks share.
    """

    added: AddedIds
    size: int
    overlap: int

    @classmethod
    def of(cls, added: AddedIds, chunk_size: int, chunk_overlap: int) -> ChunkLayout:
        """Make the layout of chunks of at most `chunk_size` ids, including those of `added`.

        Raises:
            ChunkTooSmall: a chunk has no room for a token beside the added ids.
            OverlapTooLarge: neighbouring chunks would share all of their tokens.
        """
        size = int(count_kept(LONGEST, added, chunk_size)[0])
        if size < 1:
            raise ChunkTooSmall(f"must be larger than the {len(added)} begin and end tokens")
        if chunk_overlap >= size:
            message = f"must be less than the {size} tokens of text in a chunk"
            raise OverlapTooLarge(message)
        return cls(added, size, chunk_overlap)

    def count_ids(self, num_tokens: int) -> int:
        """Return the largest total number of ids in the chunks of a text of `num_tokens` tokens."""
        width = min(self.size, num_tokens) + len(self.added)
        return count_chunks(num_tokens, self.size, self.overlap) * width


class ChunkTooSmall(ValueError):
    """A chunk has no room for a token."""


class OverlapTooLarge(ValueError):
    """Neighbouring chunks would share all of their tokens."""


def cut_chunks(
    layout: ChunkLayout, ids: NDArray[np.integer[Any]], spans: NDArray[np.int64]
) -> Chunks:
    """Cut the ids of a text into chunks.

    Args:
        layout: the options.
        ids: int32[T], without begin and end tokens.
        spans: int64[T, 2], the begin and the end of each id in the text, in bytes.
    """
    places = find_chunks(len(ids), layout.size, layout.overlap)
    sizes = places[:, 1] - places[:, 0]
    index = ragged_indices(places[:, 0], sizes)
    content = Content(ids[index], offsets_from_lengths(sizes))
    framed = post_process(content, layout.added, EncodeOptions())
    covered = _cover(spans, places)
    return Chunks(framed.ids, framed.offsets, places[:, 0].copy(), covered, len(ids))


def _cover(spans: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the begin of each chunk's first token and the end of its last, int64[C, 2]."""
    if not len(spans):
        return np.zeros((1, 2), np.int64)
    ends = np.maximum.accumulate(spans[:, 1])
    return np.stack([spans[places[:, 0], 0], ends[places[:, 1] - 1]], axis=1)


def find_chunks(num_tokens: int, size: int, overlap: int) -> NDArray[np.int64]:
    """Return the first token of each chunk, and the one after its last, int64[C, 2].

    All chunks but the last have `size` tokens, and each begins `overlap` tokens before the end of
    the one before it. The first chunk that contains the last token is the last chunk, as with the
    overflowing tokens of Hugging Face. A text without tokens has one empty chunk.

    Args:
        num_tokens: the number of the text's tokens.
        size: the largest number of tokens of a chunk, 1 or more.
        overlap: the number of tokens that two neighbouring chunks share, less than `size`.

    Example: 10 tokens in chunks of 4 that overlap by 1 are 0..4, 3..7 and 6..10.
    """
    num_chunks = count_chunks(num_tokens, size, overlap)
    begins = np.arange(num_chunks, dtype=np.int64) * (size - overlap)
    return np.stack([begins, np.minimum(begins + size, num_tokens)], axis=1)


def count_chunks(num_tokens: int, size: int, overlap: int) -> int:
    """Count the chunks of `find_chunks`."""
    return 1 + max(0, -(-(num_tokens - size) // (size - overlap)))
