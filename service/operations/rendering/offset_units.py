"""Converts the positions of ids in a text from bytes to code points or UTF-16 units."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray


def convert_spans(
    spans: NDArray[np.int64], text: str, unit: Literal["bytes", "codepoints", "utf16"]
) -> NDArray[np.int64]:
    """Convert byte spans to another unit.

    An id that stands for a part of a character gets the span of the whole character. Example: "é"
    is the bytes 0..2 and one code point; both of its bytes' ids get the span (0, 1).

    Args:
        spans: int64[T, 2], the start and the end of each id in bytes; empty spans stay empty.
        text: the text that the spans refer to.
        unit: the unit of the result.

    Returns:
        The spans in the unit, int64[T, 2].
    """
    if unit == "bytes" or text.isascii():
        return spans
    data = np.frombuffer(text.encode(), np.uint8)
    is_lead = (data & 0xC0) != 0x80
    character = np.append(np.cumsum(is_lead) - 1, is_lead.sum())
    begin = character[spans[:, 0]]
    is_empty = spans[:, 0] >= spans[:, 1]
    end = np.where(is_empty, begin, character[np.maximum(spans[:, 1] - 1, 0)] + 1)
    if unit == "utf16":
        units = 1 + (data[is_lead] >= 0xF0)
        first_unit = np.append(0, np.cumsum(units))
        begin, end = first_unit[begin], first_unit[end]
    return np.stack([begin, end], axis=1).astype(np.int64)
