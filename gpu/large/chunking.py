"""A batch cut into chunks: whole rows, or the parts of one row that is larger than a chunk.

Plain arithmetic on bytes and offsets; knows no device.
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
SHORT_BYTES, NEAR_BYTES = 16 << 20, 1 << 17  # Of so much text a border is looked for near.
Ends = tuple[int, int]
"""About how many bytes the first chunk has, and the last."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Neighbouring rows of a batch, or a part of one row.

    Attributes:
        begin, end: its bytes.
        first_row, num_rows: its rows; a part has one.
        begins: int64[num_rows + 1], where texts begin in it, and its length.
        begins_row, ends_row: whether its first row begins and its last row ends in it; only a part
            lacks one of them.
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
        """Whether it is not all of its row."""
        return not (self.begins_row and self.ends_row)


def may_cut_rows(vocabulary: Vocabulary) -> bool:
    """Whether a letter and a blank behind it never lie in one pretoken or special token.

    Normalizers may take what a chunk begins with for what a text begins with; NFC does not.
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
    """Cut rows, int64[B + 1] offsets into data, into chunks of about `chunk_bytes`.

    Those beside the first one and the last, which `ends` are for, are not much larger than these.

    A row that is larger is cut into parts, at borders of `split_points`, which `find` looks for.
    It stays whole where it has none, where the vocabulary does not allow it, and where `whole`,
    bool[B], says so.
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


def next_size(done: int, left: int, chunk_bytes: int, ends: Ends) -> int:
    """Bytes of the next chunk: small ones first and last, whose copies overlap with nothing."""
    first, last = ends
    return min(chunk_bytes, done + first, max(last, left // 2))


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
    """The chunks of a row that is larger than a chunk."""
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
    """How far from where it is wanted a border is looked for, in so much that is left of a row.

    Of some megabytes only near: the rest of the search takes longer than what chunks that overlap
    gain. Not where memory is short, so that chunks must be small.
    """
    is_short = num_bytes <= SHORT_BYTES and chunk_bytes >= LEAST_BYTES
    return NEAR_BYTES if is_short else num_bytes


def _part(row: int, begin: int, end: int, begins_row: bool, ends_row: bool) -> Chunk:
    return Chunk(begin, end, row, 1, np.array([0, end - begin]), begins_row, ends_row)
