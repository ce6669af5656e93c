"""Divides a batch into chunks: whole rows, or parts of a row that is larger than a chunk.

Plain arithmetic on bytes and offsets, without a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.host.split_points import FindBorder, find_border
from gpu.memory.workspace_layout import BYTES_A_ROW
from vocabularies.batch.shared_rows import SharedText
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
CHUNK_BYTES, LEAST_BYTES = 8 << 20, 4 << 20
SHORT_BYTES, NEAR_BYTES = 16 << 20, 1 << 17
"""In texts up to SHORT_BYTES, a border is searched only within NEAR_BYTES of the limit."""
Ends = tuple[int, int]
"""The approximate bytes of the first chunk, and of the last."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Neighbouring rows of a batch, or a part of one row.

    Attributes:
        begin, end: its first byte, and the byte after its last one.
        first_row: its first row.
        num_rows: the number of its rows; 1 for a part.
        begins: int64[num_rows + 1], where rows begin in the chunk, and its length.
        begins_row: whether its first row begins in it; false only for parts.
        ends_row: whether its last row ends in it; false only for parts.
    """

    begin: int
    end: int
    first_row: int
    num_rows: int
    begins: Int64s
    begins_row: bool = True
    ends_row: bool = True

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a row."""
        return not (self.begins_row and self.ends_row)


def may_cut_rows(vocabulary: Vocabulary) -> bool:
    """Return whether rows may be split between a letter and a blank.

    The two must never be in one pretoken or special token. Normalizers other than NFC may treat the
    beginning of a chunk as that of a text.
    """
    if not isinstance(vocabulary.model, Bpe):
        return False
    if any(step.kind != "nfc" for step in vocabulary.normalizers):
        return False
    contents = [token.content for token in vocabulary.special_tokens if token.matched]
    name = vocabulary.pretokenizer
    cuts_blanks = name not in ("none", "motifs") and not name.startswith("isolate:")
    return cuts_blanks and not any(" " in content for content in contents)


def chunks_of(
    data: Bytes | SharedText,
    offsets: Int64s,
    vocabulary: Vocabulary,
    chunk_bytes: int = CHUNK_BYTES,
    whole: NDArray[np.bool_] | None = None,
    ends: Ends = (LEAST_BYTES, LEAST_BYTES),
    find: FindBorder = find_border,
) -> Iterator[Chunk]:
    """Divide rows into chunks.

    A row that is larger than a chunk is split into parts at the borders of `split_points`, unless
    it has none or the vocabulary does not allow it.

    Args:
        data: uint8[N], the rows joined.
        offsets: int64[B + 1], where each row begins.
        vocabulary: the vocabulary.
        chunk_bytes: the largest size of a chunk, in bytes.
        whole: bool[B], rows that must not be split; None: there are none.
        ends: the approximate sizes of the first and the last chunk.
        find: finds a border.
    """
    row, num_rows, cuts = 0, len(offsets) - 1, may_cut_rows(vocabulary)
    total = int(offsets[-1])
    while row < num_rows:
        begin = int(offsets[row])
        size = next_size(begin, total - begin, chunk_bytes, ends)
        past = row + 1
        if offsets[past] <= begin + size:
            past = max(past, int(offsets.searchsorted(begin + size, "right")) - 1)
            past = min(past, row + max(1, size // BYTES_A_ROW))
        end = int(offsets[past])
        if end - begin <= chunk_bytes:
            yield Chunk(begin, end, row, past - row, offsets[row : past + 1] - begin)
        elif cuts and (whole is None or not whole[row]):
            yield from _parts(data, row, begin, end, total, chunk_bytes, ends, find)
        else:
            yield _part(row, begin, end, True, True)
        row = past


def next_size(done: int, remaining: int, chunk_bytes: int, ends: Ends) -> int:
    """Return the size of the next chunk; the first and last are small, to start and end early."""
    first, last = ends
    return min(chunk_bytes, done + first, max(last, remaining // 2))


def _parts(
    data: Bytes | SharedText,
    row: int,
    begin: int,
    end: int,
    total: int,
    chunk_bytes: int,
    ends: Ends,
    find: FindBorder,
) -> Iterator[Chunk]:
    """Split a row that is larger than a chunk."""
    row_begin = begin
    while begin < end:
        limit = begin + next_size(begin, total - begin, chunk_bytes, ends)
        cut = None
        if limit < end:
            reach = _reach(end - begin, chunk_bytes)
            cut = find(data, max(begin + 1, limit - reach), limit, True)
            cut = cut or find(data, limit, min(end, limit + reach), False)
        cut = cut or end
        yield _part(row, begin, cut, begin == row_begin, cut == end)
        begin = cut


def _reach(num_bytes: int, chunk_bytes: int) -> int:
    """Return the distance from a chunk's limit in which a border is searched, in the rest of a row.

    In a short rest the distance is small, because a long search takes more time than
    overlapping chunks save. Where memory is short and chunks must be small, the whole rest is
    searched.
    """
    is_short = num_bytes <= SHORT_BYTES and chunk_bytes >= LEAST_BYTES
    return NEAR_BYTES if is_short else num_bytes


def _part(row: int, begin: int, end: int, begins_row: bool, ends_row: bool) -> Chunk:
    return Chunk(begin, end, row, 1, np.array([0, end - begin]), begins_row, ends_row)
