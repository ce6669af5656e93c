"""Cuts the tokens of a text into chunks of at most so many tokens, which may overlap.

Takes counts and returns places in the sequence of tokens. Knows no vocabulary and no text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def find_chunks(num_tokens: int, size: int, overlap: int) -> NDArray[np.int64]:
    """Return the first token of each chunk, and the one behind its last, int64[C, 2].

    All chunks but the last have `size` tokens, and each begins `overlap` tokens before the end of
    the one before it. The chunk that reaches the last token is the last, as with the overflowing
    tokens of Hugging Face. No tokens are one chunk without any.

    Args:
        num_tokens: the number of the text's tokens.
        size: the most tokens of a chunk, at least one.
        overlap: the tokens that two neighbours share, fewer than `size`.

    Example: 10 tokens in chunks of 4 that overlap by 1 are 0..4, 3..7 and 6..10.
    """
    num_chunks = count_chunks(num_tokens, size, overlap)
    begins = np.arange(num_chunks, dtype=np.int64) * (size - overlap)
    return np.stack([begins, np.minimum(begins + size, num_tokens)], axis=1)


def count_chunks(num_tokens: int, size: int, overlap: int) -> int:
    """Count the chunks of `find_chunks`."""
    return 1 + max(0, -(-(num_tokens - size) // (size - overlap)))
