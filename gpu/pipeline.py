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
from gpu.residents import Resident
from vocabularies.vocabulary import Vocabulary

__all__ = ["Chunk", "PackedIds", "chunks_of", "encode_packed", "encode_stream"]

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
    """Whether a letter and a blank behind it never lie in one pretoken or special token.

    Normalizers may take what a chunk begins with for what a text begins with.
    """
    contents = [token.content for token in vocabulary.special_tokens if token.matched]
    name = vocabulary.pretokenizer
    cuts_blanks = name != "none" and not name.startswith("isolate:") and not vocabulary.normalizers
    return cuts_blanks and not any(" " in content for content in contents)


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


@dataclass(slots=True, eq=False)
class _Landing:
    """A chunk whose ids are known to be `num_ids`, from `first_id` of the stream on.

    Attributes:
        place: byte of the answer where they lie.
        row_offsets: int64[...], where each row's begin in the chunk; complete when it has landed.
    """

    chunk: Chunk
    flight: Flight
    first_id: int
    num_ids: int
    place: int
    row_offsets: Int64s


class _Stream:
    """Chunks of one call on their way; the answer grows in `out`, uint8[...]."""

    def __init__(self, engine: GpuEngine, out: Bytes, id_bits: int, in_flight: int) -> None:
        self.engine, self.out, self.id_bits, self.in_flight = engine, out, id_bits, in_flight
        self.waiting: deque[tuple[Chunk, Flight]] = deque()
        self.landing: deque[_Landing] = deque()
        self.landed: list[_Landing] = []
        self.num_ids = self.num_bytes = 0

    def run(self, vocabulary: Vocabulary, data: Bytes, chunks: Iterator[Chunk]) -> list[_Landing]:
        """Encode all chunks; returns them with their places in the answer."""
        with self.engine.residents.using(vocabulary) as resident:
            try:
                for chunk in chunks:
                    self._send(resident, data, chunk)
                while self.waiting:
                    self._land()
                while self.landing:
                    self._finish()
            finally:
                for _, flight in self.waiting:
                    flight.finish()
                for landing in self.landing:
                    landing.flight.finish()
        return self.landed

    def _send(self, resident: Resident, data: Bytes, chunk: Chunk) -> None:
        part, flight = data[chunk.begin : chunk.end], None
        while flight is None:
            if len(self.waiting) + len(self.landing) < self.in_flight:
                workspaces, processors = self.engine.workspaces, self.engine.processors
                flight = start(workspaces, resident, part, chunk.begins, processors, self.id_bits)
            if flight is None:
                (self._finish if self.landing else self._land)()
        self.waiting.append((chunk, flight))
        if len(self.waiting) >= max(1, self.in_flight - 1):
            self._land()

    def _land(self) -> None:
        """Start the copy out of the oldest chunk."""
        chunk, flight = self.waiting[0]
        num_ids, num_bytes = flight.num_ids(), flight.num_bytes()
        if self.num_bytes + num_bytes > len(self.out):
            raise ValueError(f"more ids than there is room for: {len(self.out)} bytes")
        nothing = np.zeros(0, np.int64)
        landing = _Landing(chunk, flight, self.num_ids, num_ids, self.num_bytes, nothing)
        self.landing.append(landing)
        self.waiting.popleft()
        landing.row_offsets = flight.land(self.out[self.num_bytes :])
        self.num_ids += num_ids
        self.num_bytes += num_bytes

    def _finish(self) -> None:
        """Wait for the oldest copy out."""
        landing = self.landing.popleft()
        landing.flight.finish()
        self.landed.append(landing)


def _row_offsets(landed: list[_Landing], offsets: Int64s) -> Int64s:
    """int64[B + 1]: where each row's ids begin in the stream."""
    id_offsets = np.zeros(len(offsets), np.int64)
    for landing in landed:
        chunk = landing.chunk
        own = landing.row_offsets[len(landing.row_offsets) - 1 - chunk.num_rows : -1]
        id_offsets[chunk.first_row : chunk.first_row + chunk.num_rows] = landing.first_id + own
    last = landed[-1].first_id + landed[-1].num_ids if landed else 0
    id_offsets[np.searchsorted(offsets, offsets[-1], "left") :] = last
    return id_offsets


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
    stream = _Stream(engine, out.view(np.uint8), 8 * out.itemsize, in_flight)
    landed = stream.run(vocabulary, data, chunks_of(data, offsets, vocabulary, chunk_bytes))
    return _row_offsets(landed, offsets)


@dataclass(frozen=True, slots=True, eq=False)
class PackedIds:
    """Ids in as few bits as they need; see cuda/pack.cuh.

    Attributes:
        words: uint32[...], part after part.
        id_bits: of an id.
        parts: int64[P, 2], the first word of each part and how many ids it holds.
        offsets: int64[B + 1], where each row's ids begin among all of them.
    """

    words: NDArray[np.uint32]
    id_bits: int
    parts: Int64s
    offsets: Int64s

    def unpack(self) -> NDArray[np.int32]:
        """int32[T]: all ids."""
        unpacked = [np.zeros(0, np.int32)]
        for word, count in self.parts.tolist():
            size = -(-count * self.id_bits // 32)
            bits = np.unpackbits(self.words[word : word + size].view(np.uint8), bitorder="little")
            rows = bits[: count * self.id_bits].reshape(count, self.id_bits)
            weights = 1 << np.arange(self.id_bits, dtype=np.int32)
            unpacked.append(rows.astype(np.int32) @ weights)
        return np.concatenate(unpacked).astype(np.int32)


def encode_packed(
    engine: GpuEngine,
    vocabulary: Vocabulary,
    data: Bytes,
    offsets: Int64s,
    out: NDArray[np.uint32],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    in_flight: int = IN_FLIGHT,
) -> PackedIds:
    """As `encode_stream`, in as few bits an id as the vocabulary needs: 17 for cl100k_base.

    Raises:
        ValueError: `out` is too short.
    """
    id_bits = max(1, (len(vocabulary) - 1).bit_length())
    stream = _Stream(engine, out.view(np.uint8), id_bits, in_flight)
    landed = stream.run(vocabulary, data, chunks_of(data, offsets, vocabulary, chunk_bytes))
    parts = np.array([(part.place // 4, part.num_ids) for part in landed], np.int64).reshape(-1, 2)
    return PackedIds(out, id_bits, parts, _row_offsets(landed, offsets))
