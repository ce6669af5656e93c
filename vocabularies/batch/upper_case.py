"""Converts the letters of texts to upper case before encoding, if their options request it.

Only the letters a to z change, so every byte keeps its position, and invalid UTF-8 stays invalid.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch, EncodeOptions

FIRST_LETTER = np.uint8(ord("a"))
NUM_LETTERS = np.uint8(26)
CASE_SHIFT = 5  # The bit that differs between "a" and "A" is 1 << 5.


def make_upper_case(batch: Batch) -> Batch:
    """Convert the rows whose options request upper case; return `batch` itself if there are none.

    The options of the returned batch no longer request it.
    """
    options = batch.options
    if isinstance(options, EncodeOptions):
        if not options.uppercase:
            return batch
        rows = None
        plain: EncodeOptions | list[EncodeOptions] = replace(options, uppercase=False)
    else:
        kinds = {each: replace(each, uppercase=False) for each in dict.fromkeys(options)}
        if not any(each.uppercase for each in kinds):
            return batch
        rows = [row for row, each in enumerate(options) if each.uppercase]
        plain = [kinds[each] for each in options]
    upper = _change_texts(batch, rows) if batch.has_texts else _change_bytes(batch, rows)
    upper.options = plain
    upper.id_dtype = batch.id_dtype
    upper.should_continue = batch.should_continue
    return upper


def upper_case_bytes(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Replace a to z by A to Z in uint8[N], and return the result."""
    is_lower = data - FIRST_LETTER < NUM_LETTERS  # Bytes below "a" wrap around to large values.
    return data - (is_lower.view(np.uint8) << CASE_SHIFT)


def upper_case_text(text: str) -> str:
    """Replace a to z by A to Z in a text, and change nothing else.

    Example: "acgß" becomes "ACGß", whereas `str.upper` gives "ACGSS".
    """
    if text.isascii():
        return text.upper()
    return text.encode("utf-8", "surrogatepass").upper().decode("utf-8", "surrogatepass")


def _change_texts(batch: Batch, rows: list[int] | None) -> Batch:
    """Convert some rows of strings to upper case; None: all rows."""
    texts = list(batch.texts()[0])
    for row in range(len(texts)) if rows is None else rows:
        texts[row] = upper_case_text(texts[row])
    return Batch(texts)


def _change_bytes(batch: Batch, rows: list[int] | None) -> Batch:
    """Convert some rows of joined bytes to upper case; None: all rows."""
    data, offsets = batch.data, batch.offsets
    if rows is None:
        return Batch(data=upper_case_bytes(data), offsets=offsets)
    data = data.copy()
    for row in rows:
        own = slice(offsets[row], offsets[row + 1])
        data[own] = upper_case_bytes(data[own])
    return Batch(data=data, offsets=offsets)
