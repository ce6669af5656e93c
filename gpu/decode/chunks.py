"""Decodes large batches of ids in chunks, through the pipeline.

A chunk consists of several rows, or a part of a long row. Its ids are stored in the workspace's
memory for text, and the offsets of its bytes in that for `post_processed_offsets`. Decoding in
chunks stops if a part of a row has an unknown id, or if the bytes of a chunk do not fit into a
workspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.batch.row_options import NO_BYTE
from gpu.batch.transfer import checked
from gpu.host.copy_pool import CopyPool
from gpu.kernels.job import STATUS
from gpu.large.answer import GrowingArray
from gpu.large.chunk_in_flight import ChunkInFlight, CopyStreams, Work
from gpu.large.chunk_sizes import BY_BUS
from gpu.large.chunking import LEAST_BYTES, Chunk, next_size
from gpu.large.pipeline import Pipeline
from gpu.memory.pinned_pool import PinnedPool
from gpu.memory.workspace import Workspace
from gpu.memory.workspace_layout import BYTES_A_ROW
from gpu.vocabulary.cache import Resident

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
Ids = NDArray[np.int32] | NDArray[np.int64]
# The number of decoded bytes for which a workspace has room, for each byte of its capacity.
ID_BYTES = 4
ENDS = LEAST_BYTES, LEAST_BYTES


class DecodedRows(NamedTuple):
    """The bytes of decoded rows.

    Attributes:
        data: uint8[N], the bytes.
        offsets: int64[B + 1], where the bytes of each row begin.
        unknown: int64[B], the place of the first unknown id of each row, or NO_BYTE.
    """

    data: Bytes
    offsets: Int64s
    unknown: Int64s


def set_decode_job(workspace: Workspace, place: int, id_bytes: int, count: int) -> None:
    """Write the address, the width and the number of the ids into the Job."""
    job = workspace.job[0]
    job["decode_ids"], job["decode_wide"], job["num_decode_ids"] = place, id_bytes == 8, count
    job["decoded_capacity"] = ID_BYTES * workspace.capacity.num_bytes


class _GivesUp(Exception):
    """The batch cannot be decoded in chunks."""


@dataclass(frozen=True, slots=True, eq=False)
class _Decoding(Work):
    """The data and options of a decoding call; `data` are the ids, as bytes.

    Attributes:
        id_bytes: the number of bytes of an id.
        skips_special: whether special tokens are omitted.
    """

    id_bytes: int = ID_BYTES
    skips_special: bool = False

    def flight(
        self, chunk: Chunk, workspace: Workspace, copy_streams: CopyStreams, staging: CopyPool
    ) -> _DecodedChunk:
        """Start a chunk of the call in a workspace."""
        return _DecodedChunk(self, chunk, workspace, copy_streams, staging)


class _DecodedChunk(ChunkInFlight):
    """A chunk of ids that is being decoded; the ids use the memory of the text."""

    def __init__(
        self,
        work: _Decoding,
        chunk: Chunk,
        workspace: Workspace,
        copy_streams: CopyStreams,
        staging: CopyPool,
    ) -> None:
        super().__init__(work, chunk, workspace, copy_streams, staging)
        self.post_processed = True  # decoded_offsets share the memory of post_processed_offsets.
        workspace.clock = None  # Only encoding is timed.
        set_decode_job(
            workspace, workspace.fields["text"], work.id_bytes, len(self.source) // work.id_bytes
        )
        workspace.job[0]["skip_special"] = work.skips_special

    def _kernels(self) -> tuple[str, ...]:
        return "clear_faults", *self.work.resident.family.decode

    def wait(self, processors: int) -> None:
        """Wait for the kernels.

        Raises:
            _GivesUp: the bytes do not fit, or a part of a row has an unknown id.
        """
        self.workspace.stream.synchronize()
        checked(self.workspace)
        is_long = self.num_ids > ID_BYTES * self.workspace.capacity.num_bytes
        if is_long or (self.chunk.is_part and self.errors() is not None):
            raise _GivesUp

    def errors(self) -> NDArray[np.uint32] | None:
        """Return uint32[num_rows]: the first unknown id, or NO_BYTE; None if there is none."""
        if not self.workspace.status[STATUS["NOT_UTF8"]]:
            return None
        return self.workspace.errors[: self.chunk.num_rows]

    def _answer_field(self) -> str:
        return "decoded"


class _Answer:
    """Collects the bytes of all chunks; see `pipeline.Answer`."""

    def __init__(self, work: _Decoding, num_rows: int, leases: PinnedPool) -> None:
        self.work, self.has_collected = work, False
        self.data, self.offsets = GrowingArray(leases, np.uint8), np.zeros(num_rows + 1, np.int64)
        self.places = np.full(num_rows, NO_BYTE, np.int64)

    def collect(self, flight: ChunkInFlight) -> None:
        """Collect a chunk: queue the copy of its bytes, and note its offsets and errors."""
        self.has_collected, chunk, num_bytes = True, flight.chunk, flight.num_ids
        rows = slice(chunk.first_row, chunk.first_row + chunk.num_rows)
        errors = flight.errors()
        if errors is not None:
            wrong = np.flatnonzero(errors != NO_BYTE)
            self.places[chunk.first_row + wrong] = errors[wrong] + chunk.begin // self.work.id_bytes
        if chunk.begins_row:
            np.add(flight.offsets[:-1], self.data.size, out=self.offsets[rows])
        place = self.data.add(num_bytes, chunk.end / len(self.work.data), flight)
        if self.data.is_leased:
            flight.copy_ids(place, num_bytes)
        else:
            flight.bring_ids(self.data.last(num_bytes).view(np.uint8))
        self.offsets[rows.stop] = self.data.size


def decode_in_chunks(
    pipeline: Pipeline, resident: Resident, ids: Ids, offsets: Int64s, skip_special_tokens: bool
) -> DecodedRows | None:
    """Decode a batch in chunks; return None if it must be decoded in one workspace.

    Args:
        pipeline: runs the chunks.
        resident: the vocabulary on the device.
        ids: the rows, joined.
        offsets: int64[B + 1], where each row begins in `ids`.
        skip_special_tokens: whether special tokens are left out.
    """
    data, id_bytes = ids.view(np.uint8), ids.itemsize
    is_pinned = pipeline.resources.device.is_pinned(data)
    splits = not _shares_letters(resident)
    work = _Decoding(
        resident, data, is_pinned, id_bytes=id_bytes, skips_special=skip_special_tokens
    )

    def chunks(size: int) -> Iterator[Chunk]:
        return _chunks(offsets, id_bytes, size, splits)

    def new_answer() -> _Answer:
        return _Answer(work, len(offsets) - 1, pipeline.resources.leases)

    size = BY_BUS.of(len(data)).chunk_bytes
    try:
        answer = pipeline.answer(work, chunks, new_answer, min(pipeline.chunk_bytes, size))
    except _GivesUp:
        return None
    return DecodedRows(answer.data.filled().view(np.uint8), answer.offsets, answer.places)


def _shares_letters(resident: Resident) -> bool:
    """Return whether the bytes of an id may depend on the id before it."""
    return "decode_kmers" in resident.family.decode


def _chunks(offsets: Int64s, id_bytes: int, chunk_bytes: int, splits: bool) -> Iterator[Chunk]:
    """Divide rows of ids into chunks; `splits`: rows larger than a chunk are split into parts."""
    row, num_rows, total = 0, len(offsets) - 1, id_bytes * int(offsets[-1])
    while row < num_rows:
        begin = int(offsets[row])
        place = id_bytes * begin
        size = next_size(place, total - place, chunk_bytes, ENDS)
        past = int(offsets.searchsorted(begin + size // id_bytes, "right")) - 1
        past = min(max(past, row + 1), row + max(1, size // BYTES_A_ROW))
        end = int(offsets[past])
        if id_bytes * (end - begin) <= chunk_bytes or not splits:
            begins = offsets[row : past + 1] - begin
            yield Chunk(place, id_bytes * end, row, past - row, begins)
        else:
            yield from _parts(row, begin, end, id_bytes, total, chunk_bytes)
        row = past


def _parts(
    row: int, begin: int, end: int, id_bytes: int, total: int, chunk_bytes: int
) -> Iterator[Chunk]:
    """Split a row into chunks at ids."""
    first = begin
    while first < end:
        place = id_bytes * first
        size = next_size(place, total - place, chunk_bytes, ENDS)
        last = min(first + max(1, size // id_bytes), end)
        begins = np.array([0, last - first])
        yield Chunk(place, id_bytes * last, row, 1, begins, first == begin, last == end)
        first = last
