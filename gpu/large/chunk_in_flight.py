"""Encodes one chunk in its own workspace.

    staged      its bytes are being copied into pinned memory, unless they are there already
    launched    the copy to the device and its kernels are queued
    finished    its kernels are done, and its ids are being copied out

`pipeline` decides when each step happens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.batch.kernel_choice import (
    FALLBACK_BREAK,
    fallback_kernels,
    first_kernels,
    make_room_for_spans,
)
from gpu.batch.row_options import NO_BYTE, RowOptions
from gpu.batch.transfer import checked, fetch, launch, pack_rows, send_job
from gpu.errors import DescendingOffsets
from gpu.host.copy_pool import Copy, CopyPool
from gpu.kernels.families import post_process_kernels
from gpu.kernels.job import STATUS
from gpu.large.chunking import Chunk
from gpu.memory.workspace import Workspace
from gpu.runtime.device import Stream
from gpu.vocabulary.cache import Resident
from vocabularies.batch.shared_rows import SharedText

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
BITS_A_WORD = 32
SPAN_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class CopyStreams:
    """The two streams for the copies of one call, which run in the order of its chunks.

    If each chunk had its own copy stream, their copies would share PCIe, and the copy of a chunk
    would end no earlier than those of later chunks, although its ids are needed first.

    Attributes:
        inward: the stream that copies texts to the device.
        outward: the stream that copies ids from the device.
    """

    inward: Stream
    outward: Stream


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The data and options that all chunks of a call share.

    Attributes:
        resident: the vocabulary, in use until the last chunk is finished.
        data: uint8[N], the rows joined, which must not change meanwhile.
        is_pinned: whether the device copies `data` directly, without staging.
        options: the options of the rows; None: special tokens are matched, nothing is added or
            truncated.
        validate: whether rows must be checked for UTF-8.
        id_bits: the number of bits of an id in the answer, see cuda/batch/narrow_ids.cuh.
        count_only: whether ids are only counted.
        joining: the copy that is still writing `data`; None: they are complete.
    """

    resident: Resident
    data: Bytes | SharedText
    is_pinned: bool
    options: RowOptions | None = None
    validate: bool = False
    id_bits: int = BITS_A_WORD
    count_only: bool = False
    joining: Copy | None = None

    def flight(
        self, chunk: Chunk, workspace: Workspace, copy_streams: CopyStreams, staging: CopyPool
    ) -> ChunkInFlight:
        """Start a chunk of the call in a workspace; staging begins if it is needed."""
        return ChunkInFlight(self, chunk, workspace, copy_streams, staging)


class ChunkInFlight:
    """A chunk in a workspace, in one of the states above.

    Attributes:
        chunk: the chunk.
        options: the options of its rows.
    """

    def __init__(
        self,
        work: Work,
        chunk: Chunk,
        workspace: Workspace,
        copy_streams: CopyStreams,
        staging: CopyPool,
    ) -> None:
        self.work, self.chunk, self.workspace, self.copy_streams = (
            work,
            chunk,
            workspace,
            copy_streams,
        )
        self.options, self.staging = _options(work, chunk), staging
        self.is_launched, self.is_plain = False, False
        self._copy = None
        self.source: Bytes | SharedText
        if isinstance(work.data, SharedText):
            self.source = work.data.part(chunk.begin, chunk.end)
        else:
            self.source = work.data[chunk.begin : chunk.end]
            if not work.is_pinned:
                self._copy = staging.start(workspace.text, self.source)
                self.source = workspace.text[: len(self.source)]
        options, spans = self.options, self.options is not None and self.options.spans is not None
        self.with_spans = spans and not work.count_only
        post_processed = options is not None and options.post_processed and not self.with_spans
        self.post_processed = work.count_only or post_processed

    def launch(self, processors: int) -> None:
        """Queue the copy in, the kernels and the report, unless they are queued already."""
        if self.is_launched:
            return
        self.is_launched = True
        work, workspace = self.work, self.workspace
        clock = workspace.clock
        if self._copy is not None:
            self._copy.wait(len(self.source))
        if work.joining is not None:
            work.joining.wait(self.chunk.end)
        if clock is not None:
            if self._copy is not None:
                clock.add("stage", self._copy.seconds)
            clock.enter("copy_to_device")
        workspace.answer_in(self.post_processed)
        workspace.status[STATUS["NOT_UTF8"]] = 0
        try:
            pack_rows(
                workspace,
                work.resident,
                self.source,
                self.chunk.begins,
                processors,
                options=self.options,
                id_bits=work.id_bits,
                inward=self.copy_streams.inward,
            )
        except DescendingOffsets as error:
            raise error.behind(self.chunk.first_row, self.chunk.begin) from None
        if self.with_spans:
            make_room_for_spans(workspace, work.resident.family)
        launch(workspace, (*self._kernels(), "report"), processors)

    def _kernels(self) -> tuple[str, ...]:
        return *self._first(), *self._post_process_kernels()

    def _first(self) -> tuple[str, ...]:
        """Return the first kernels: plain ones, unless the last batch needed fallback kernels."""
        work, augmented = self.work, self.options is not None and self.options.augmented
        resident = work.resident
        self.is_plain = bool(resident.family.plain)
        if resident.had_breaks and not augmented and not self.with_spans:
            self.is_plain = False
            return fallback_kernels(self.workspace, resident, FALLBACK_BREAK, id_bits=work.id_bits)
        return first_kernels(
            self.workspace,
            resident,
            validate=work.validate,
            count_only=work.count_only,
            augmented=augmented,
            id_bits=work.id_bits,
        )

    def _post_process_kernels(self) -> tuple[str, ...]:
        family, count_only = self.work.resident.family, self.work.count_only
        return (
            post_process_kernels(family, spans=False, count_only=count_only)
            if self.post_processed
            else ()
        )

    def wait(self, processors: int) -> None:
        """Wait for the kernels, and run those that depend on their report.

        Raises:
            DeviceFault: a kernel detected an inconsistency.
            NotCovered: the kernels do not support a character.
            OutOfMemory: spans do not fit into memory.
        """
        workspace, work = self.workspace, self.work
        workspace.stream.synchronize()
        fallback = int(checked(workspace)[STATUS["FALLBACK"]])
        if work.resident.family.plain:
            work.resident.had_breaks = fallback == FALLBACK_BREAK
        if not self.is_plain:
            fallback &= ~FALLBACK_BREAK  # The first kernels encoded breaks.
        if work.resident.family.plain and (fallback or self.with_spans):
            others = fallback_kernels(
                workspace,
                work.resident,
                fallback,
                validate=work.validate,
                with_spans=self.with_spans,
                id_bits=work.id_bits,
            )
            self._again((*others, *self._post_process_kernels()), processors)
        if self.with_spans:
            num_ids = int(workspace.status[STATUS["NUM_IDS"]])
            most_ids = work.resident.most_ids(num_ids, self.chunk.num_rows)
            workspace.reserve("spans", SPAN_BYTES * max(1, most_ids))
        if self.with_spans or (not self.post_processed and self.errors() is not None):
            self.post_processed = True  # Post-processing also removes the ids of refused rows.
            workspace.answer_in(True)
            send_job(workspace)
            kernels = post_process_kernels(work.resident.family, spans=self.with_spans)
            self._again(kernels, processors)

    def _again(self, kernels: tuple[str, ...], processors: int) -> None:
        """Launch more kernels, and wait for them and their report."""
        self.workspace.status[STATUS["NOT_UTF8"]] = 0
        launch(self.workspace, (*kernels, "report"), processors)
        self.workspace.stream.synchronize()
        checked(self.workspace)

    def errors(self) -> NDArray[np.uint32] | None:
        """Return uint32[num_rows]: the first faulty byte, or NO_BYTE; None if no row is refused."""
        if self.work.options is None or not self.workspace.status[STATUS["NOT_UTF8"]]:
            return None
        return self.workspace.errors[: self.chunk.num_rows]

    def first_refused(self) -> int | None:
        """Return the number of the first refused row, with any options; None if there is none."""
        if not self.workspace.status[STATUS["NOT_UTF8"]]:
            return None
        places = self.workspace.errors[: self.chunk.num_rows]
        return self.chunk.first_row + int(np.argmax(places != NO_BYTE))

    @property
    def offsets(self) -> Int64s:
        """int64[num_rows + 1]: where each row's ids begin; valid until the chunk is collected."""
        return self.workspace.offsets[: self.chunk.num_rows + 1]

    @property
    def num_ids(self) -> int:
        """The number of ids of the chunk."""
        return int(self.workspace.offsets[self.chunk.num_rows])

    @property
    def num_bytes(self) -> int:
        """The size of the chunk's ids, in bytes."""
        return self.work.id_bits // 8 * self.num_ids

    def truncated(self) -> tuple[Int64s, Int64s] | None:
        """Return num_tokens int64[num_rows] and kept int64[num_rows, 2], if a row is truncated."""
        workspace, rows = self.workspace, self.chunk.num_rows
        if not workspace.status[STATUS["TRUNCATED"]]:
            return None
        kept = fetch(workspace, "kept", np.int64, 2 * rows).reshape(-1, 2)
        return fetch(workspace, "num_tokens", np.int64, rows), kept

    def copy_ids(self, address: int, num_bytes: int, begin: int = 0) -> None:
        """Queue the copy of bytes of the ids, from `begin` on, to an address of host or device."""
        place = self.workspace.fields[self._answer_field()] + begin
        self.copy_streams.outward.copy_out(address, place, num_bytes)
        self.workspace.stream.follow(self.copy_streams.outward)

    def _answer_field(self) -> str:
        if self.work.id_bits != BITS_A_WORD:
            return "narrow_ids"
        return "post_processed_ids" if self.post_processed else "ids"

    def bring_ids(self, out: Bytes) -> None:
        """Copy the first bytes of the ids to pageable memory, through pinned memory, and wait."""
        text, stream = self.workspace.text, self.workspace.stream
        for begin in range(0, len(out), len(text)):
            piece = out[begin : begin + len(text)]
            self.copy_ids(self.workspace.text_place, len(piece), begin)
            stream.synchronize()
            self.staging.share(piece, text[: len(piece)])

    def copy_spans(self, address: int, num_bytes: int) -> None:
        """Queue the copy of the first bytes of int64[num_ids, 2] spans."""
        self.workspace.stream.copy_out(address, self.workspace.fields["spans"], num_bytes)

    def abandon(self) -> None:
        """After an error, wait until threads have stopped reading the batch."""
        if self._copy is not None:
            self._copy.wait(len(self.source))


def _options(work: Work, chunk: Chunk) -> RowOptions | None:
    if work.options is None:
        return None
    if chunk.is_part:
        return work.options.of_part(chunk.first_row)
    return work.options.of_rows(chunk.first_row, chunk.first_row + chunk.num_rows)
