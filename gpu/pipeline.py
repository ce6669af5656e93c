"""Streams larger than a batch: chunks in flight on several CUDA streams at once.

While one chunk is copied in, another is encoded and a third is copied out. A chunk's workspace is
its own and goes to the next chunk only when its copy out is done, so that any number of chunks in
flight gives the same ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.engine import GpuEngine
from gpu.flights import Flight, start
from vocabularies.vocabulary import Vocabulary

__all__ = ["Chunk", "chunks_of", "encode_stream"]

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
CHUNK_BYTES = 16 << 20
IN_FLIGHT = 3
SEARCH_BYTES = 1 << 16
BLANK, LOWER_A, LOWER_Z, TO_LOWER = 0x20, 0x61, 0x7A, 0x20


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a stream.

    Attributes:
        begin, end: its bytes.
        first_row, num_rows: the rows that begin in it.
        begins: int64[...], where texts begin in it, and its length: its rows, and before them 0
            where it begins inside of a row.
    """

    begin: int
    end: int
    first_row: int
    num_rows: int
    begins: Int64s


def chunks_of(
    data: Bytes, offsets: Int64s, vocabulary: Vocabulary, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """Cut rows, int64[B + 1] offsets into data, into chunks of about `chunk_bytes`.

    Between rows where one ends in time; else inside of a row between an ASCII letter and a blank,
    where a pretoken ends whatever stands around; a row without such a place stays whole.
    """
    begin, total, inside_rows = 0, int(offsets[-1]), may_cut_rows(vocabulary)
    while begin < total:
        end = _chunk_end(data, offsets, begin, chunk_bytes, inside_rows)
        first, past = np.searchsorted(offsets[:-1], [begin, end], "left").tolist()
        begins = np.append(offsets[first:past], end) - begin
        if begins[0]:
            begins = np.append(0, begins)
        yield Chunk(begin, end, first, past - first, begins)
        begin = end


def may_cut_rows(vocabulary: Vocabulary) -> bool:
    """Whether a letter and a blank behind it never lie in one pretoken or special token."""
    contents = [token.content for token in vocabulary.special_tokens if token.matched]
    return vocabulary.pretokenizer != "none" and not any(" " in content for content in contents)


def _chunk_end(
    data: Bytes, offsets: Int64s, begin: int, chunk_bytes: int, inside_rows: bool
) -> int:
    """Where the chunk from `begin` on ends."""
    limit = begin + chunk_bytes
    if limit >= int(offsets[-1]):
        return int(offsets[-1])
    row = int(np.searchsorted(offsets, limit, "right")) - 1
    row_begin, next_row = int(offsets[row]), int(offsets[row + 1])
    if limit - row_begin < SEARCH_BYTES and row_begin > begin:
        return row_begin
    if inside_rows:
        low = max(begin, row_begin, limit - SEARCH_BYTES) + 1
        letters = data[low - 1 : limit - 1] | TO_LOWER
        borders = (letters >= LOWER_A) & (letters <= LOWER_Z) & (data[low:limit] == BLANK)
        found = np.flatnonzero(borders)
        if len(found):
            return low + int(found[-1])
    return row_begin if row_begin > begin else next_row


def encode_stream(
    engine: GpuEngine,
    vocabulary: Vocabulary,
    data: Bytes,
    offsets: Int64s,
    out: NDArray[np.int32] | NDArray[np.uint16],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    in_flight: int = IN_FLIGHT,
) -> Int64s:
    """Ids of UTF-8 rows into `out`, int32 or uint16, which is long enough; returns int64[B + 1].

    Special tokens are matched and nothing is added. Copies overlap with kernels where data and out
    are pinned (`Device.allocate_pinned`).

    Raises:
        ValueError: `out` is too short, or of 16 bits for larger ids.
    """
    if out.dtype == np.uint16 and len(vocabulary) > 1 << 16:
        raise ValueError(f"{len(vocabulary)} ids do not fit in 16 bits")
    id_offsets = np.zeros(len(offsets), np.int64)
    waiting: deque[tuple[Chunk, Flight]] = deque()
    landing: deque[tuple[Chunk, Flight, Int64s, int]] = deque()
    written = 0

    def land() -> None:
        """Start the copy out of the oldest chunk."""
        nonlocal written
        chunk, flight = waiting.popleft()
        landing.append((chunk, flight, np.zeros(0, np.int64), written))
        num_ids = flight.num_ids()
        if written + num_ids > len(out):
            raise ValueError(f"more ids than the {len(out)} that there is room for")
        row_offsets = flight.land(out[written:])
        landing[-1] = (chunk, flight, row_offsets, written)
        written += num_ids

    def finish() -> None:
        """Wait for the oldest copy out."""
        chunk, flight, row_offsets, before = landing.popleft()
        flight.finish()
        rows = slice(chunk.first_row, chunk.first_row + chunk.num_rows)
        id_offsets[rows] = before + row_offsets[len(row_offsets) - 1 - chunk.num_rows : -1]

    with engine.residents.using(vocabulary) as resident:
        try:
            for chunk in chunks_of(data, offsets, vocabulary, chunk_bytes):
                part, flight = data[chunk.begin : chunk.end], None
                while flight is None:
                    if len(waiting) + len(landing) < in_flight:
                        flight = start(
                            engine.workspaces,
                            resident,
                            part,
                            chunk.begins,
                            engine.processors,
                            8 * out.itemsize,
                        )
                    if flight is None:
                        (finish if landing else land)()
                waiting.append((chunk, flight))
                if len(waiting) >= max(1, in_flight - 1):
                    land()
            while waiting:
                land()
            while landing:
                finish()
        finally:
            for _, flight in waiting:
                flight.finish()
            for _, flight, *_ in landing:
                flight.finish()
    id_offsets[np.searchsorted(offsets, offsets[-1], "left") :] = written
    return id_offsets
