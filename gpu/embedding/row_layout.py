"""Places the ids of a row in a matrix, with begin and end tokens and padding.

Nothing here uses torch, devices or tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

PaddingSide = Literal["left", "right"]
SIDES: tuple[PaddingSide, ...] = ("left", "right")


class BeginEndTokens(NamedTuple):
    """The begin and end tokens of a row.

    Attributes:
        prefix: the ids before the row's own.
        suffix: the ids after them.
        max_ids: rows with this many ids or more, not counting begin and end tokens, have other
            begin and end tokens, which only the tokenizer adds; None: there are no such rows.
    """

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    max_ids: int | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids before the row's own, and those after them."""
        return self.prefix + self.suffix


NO_BEGIN_END_TOKENS = BeginEndTokens()


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Lays rows of ids out in a matrix.

    Attributes:
        pad_id: the id of the padding.
        begin_end_tokens: the begin and end tokens that are put around each row.
        padding_side: the side of a row that is padded.
        least_width: the lowest number of columns of the matrix.

    Example: pad_id 0, prefix 1, suffix 2, least_width 6 and the row 7 8 give 0 0 1 7 8 2, or, with
    the padding on the right, 1 7 8 2 0 0.
    """

    pad_id: int
    begin_end_tokens: BeginEndTokens = NO_BEGIN_END_TOKENS
    padding_side: PaddingSide = "left"
    least_width: int = 0

    def find_width(self, counts: NDArray[np.int64]) -> int:
        """Find the columns of a matrix from its rows' ids, int64[b], including added tokens."""
        return max(self.least_width, int(counts.max(initial=0)))

    def find_begins(self, counts: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """Find the column of each row's first id, int64[b], by its ids, added tokens included."""
        return width - counts if self.padding_side == "left" else np.zeros_like(counts)
