"""Many ids back to bytes in chunks, which the pipeline takes through the device.

A chunk is some rows, or a part of a long one. Its ids lie where the text of others does, and where
its rows' bytes begin is reported where ids of framed rows do. What chunks cannot say: rows in parts
of which an id means nothing, and tokens that are so long that a chunk's bytes do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
Found = tuple[Bytes, Int64s, Int64s]
"""Bytes, where each row's begin, and where its first id is that means nothing, or NO_BYTE."""
ID_BYTES = 4  # A workspace has room for so many bytes of text in the place of each id.
ENDS = LEAST_BYTES, LEAST_BYTES


def set_decode_job(workspace: Workspace, place: int, id_bytes: int, count: int) -> None:
    """Where so many ids lie."""
    job = workspace.job[0]
    job["decode_ids"], job["decode_wide"], job["num_decode_ids"] = place, id_bytes == 8, count
    job["decoded_capacity"] = ID_BYTES * workspace.capacity.num_bytes


class _NotInChunks(Exception):
    """Chunks cannot say it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Decoding(Work):
    """Ids as bytes in `data`.

    Attributes:
        id_bytes: of an id.
        skips_special: whether special tokens are left out.
    """

    id_bytes: int = ID_BYTES
    skips_special: bool = False

    def flight(
        self, chunk: Chunk, workspace: Workspace, copy_streams: CopyStreams, staging: CopyPool
    ) -> _DecodedChunk:
        """A chunk of the call in a workspace."""
        return _DecodedChunk(self, chunk, workspace, copy_streams, staging)


class _DecodedChunk(ChunkInFlight):
    """A chunk of ids, which lie where the text of others does, on its way to bytes."""

    def __init__(
        self,
        work: _Decoding,
        chunk: Chunk,
        workspace: Workspace,
        copy_streams: CopyStreams,
        staging: CopyPool,
    ) -> None:
        super().__init__(work, chunk, workspace, copy_streams, staging)
        self.framed = True  # decoded_offsets lie where those of framed rows do.
        workspace.clock = None  # What is timed are the stages of encoding.
        set_decode_job(
            workspace, workspace.fields["text"], work.id_bytes, len(self.source) // work.id_bytes
        )
        workspace.job[0]["skip_special"] = work.skips_special

    def _kernels(self) -> tuple[str, ...]:
        return "clear_faults", *self.work.resident.family.decode

    def wait(self, processors: int) -> None:
        """Wait for the kernels.

        Raises:
            _NotInChunks: there is no room for the bytes, or a part of a row has an id that means
                nothing.
        """
        self.workspace.stream.synchronize()
        checked(self.workspace)
        is_long = self.num_ids > ID_BYTES * self.workspace.capacity.num_bytes
        if is_long or (self.chunk.is_part and self.errors() is not None):
            raise _NotInChunks

    def errors(self) -> NDArray[np.uint32] | None:
        """uint32[num_rows]: the first id that means nothing, or NO_BYTE; None where all do."""
        if not self.workspace.status[STATUS["NOT_UTF8"]]:
            return None
        return self.workspace.errors[: self.chunk.num_rows]

    def _answer_field(self) -> str:
        return "decoded"


class _Answer:
    """The bytes of all chunks in the making; see `pipeline.Answer`."""

    def __init__(self, work: _Decoding, num_rows: int, leases: PinnedPool) -> None:
        self.work, self.has_landed = work, False
        self.data, self.offsets = GrowingArray(leases, np.uint8), np.zeros(num_rows + 1, np.int64)
        self.places = np.full(num_rows, NO_BYTE, np.int64)

    def land(self, flight: ChunkInFlight) -> None:
        """Queue the copy out of a chunk."""
        self.has_landed, chunk, num_bytes = True, flight.chunk, flight.num_ids
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
) -> Found | None:
    """None: chunks cannot say it."""
    data, id_bytes = ids.view(np.uint8), ids.itemsize
    is_pinned, cuts = pipeline.resources.device.is_pinned(data), not _shares_letters(resident)
    work = _Decoding(
        resident, data, is_pinned, id_bytes=id_bytes, skips_special=skip_special_tokens
    )

    def chunks(size: int) -> Iterator[Chunk]:
        return _chunks(offsets, id_bytes, size, cuts)

    def new_answer() -> _Answer:
        return _Answer(work, len(offsets) - 1, pipeline.resources.leases)

    size = BY_BUS.of(len(data)).chunk_bytes
    try:
        answer = pipeline.answer(work, chunks, new_answer, min(pipeline.chunk_bytes, size))
    except _NotInChunks:
        return None
    return answer.data.filled().view(np.uint8), answer.offsets, answer.places


def _shares_letters(resident: Resident) -> bool:
    """Whether what an id spells may depend on the one before it."""
    return "decode_kmers" in resident.family.decode


def _chunks(offsets: Int64s, id_bytes: int, chunk_bytes: int, cuts: bool) -> Iterator[Chunk]:
    """Rows of ids of so many bytes in chunks; those that are larger in parts, if `cuts` says so."""
    row, num_rows, total = 0, len(offsets) - 1, id_bytes * int(offsets[-1])
    while row < num_rows:
        begin = int(offsets[row])
        place = id_bytes * begin
        size = next_size(place, total - place, chunk_bytes, ENDS)
        past = int(offsets.searchsorted(begin + size // id_bytes, "right")) - 1
        past = min(max(past, row + 1), row + max(1, size // BYTES_A_ROW))
        end = int(offsets[past])
        if id_bytes * (end - begin) <= chunk_bytes or not cuts:
            begins = offsets[row : past + 1] - begin
            yield Chunk(place, id_bytes * end, row, past - row, begins)
        else:
            yield from _parts(row, begin, end, id_bytes, total, chunk_bytes)
        row = past


def _parts(
    row: int, begin: int, end: int, id_bytes: int, total: int, chunk_bytes: int
) -> Iterator[Chunk]:
    """The chunks of a row, which begin and end at ids."""
    first = begin
    while first < end:
        place = id_bytes * first
        size = next_size(place, total - place, chunk_bytes, ENDS)
        last = min(first + max(1, size // id_bytes), end)
        begins = np.array([0, last - first])
        yield Chunk(place, id_bytes * last, row, 1, begins, first == begin, last == end)
        first = last
