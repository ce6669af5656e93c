"""A chunk on its way through the device, in a workspace of its own.

    staged      its bytes are being copied into pinned memory, unless they lie there already
    launched    copied to the device, its kernels queued
    landed      its kernels are done, its ids are being copied out

`pipeline` says when; knows no answer and no other chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.batch.plan import FALLBACK_BREAK, fallback_kernels, first_kernels, make_room_for_spans
from gpu.batch.row_options import NO_BYTE, RowOptions
from gpu.batch.transfer import checked, fetch, launch, pack_rows, send_job
from gpu.errors import DescendingOffsets
from gpu.host.copy_pool import Copy, CopyPool
from gpu.kernels.families import frame_kernels
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
    """The streams of one call's copies: one goes after the other, in the order of its chunks.

    Copies of several streams share PCIe: each chunk's would end with those of the chunks behind
    it, whose ids wait for its own.

    Attributes:
        inward: of texts.
        outward: of ids.
    """

    inward: Stream
    outward: Stream


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What all chunks of a call share.

    Attributes:
        resident: the vocabulary, in use until the last chunk has landed.
        data: uint8[N], the rows, which stay as they are meanwhile; the device reads shared ones.
        is_pinned: whether the device copies from where they lie.
        options: of the rows; None: special tokens are matched, nothing is added or cut.
        validate: whether rows may not be UTF-8.
        id_bits: of an id in the answer, see cuda/batch/narrow_ids.cuh.
        count_only: only how many ids there are.
        joining: the copy that writes `data` meanwhile; None: they are there.
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
        """A chunk of the call in a workspace; it is being staged where it must be."""
        return ChunkInFlight(self, chunk, workspace, copy_streams, staging)


class ChunkInFlight:
    """A chunk in a workspace, in one of the states above.

    Attributes:
        chunk: the chunk.
        options: what its rows ask for.
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
        framed = options is not None and options.framed and not self.with_spans
        self.framed = work.count_only or framed

    def launch(self, processors: int) -> None:
        """Queue the copy in, the kernels, and the copy out of all but ids; once."""
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
        workspace.answer_in(self.framed)
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
        return *self._first(), *self._frames()

    def _first(self) -> tuple[str, ...]:
        """The kernels that are tried first: the plain ones unless the last batch was not plain."""
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

    def _frames(self) -> tuple[str, ...]:
        family, count_only = self.work.resident.family, self.work.count_only
        return frame_kernels(family, spans=False, count_only=count_only) if self.framed else ()

    def wait(self, processors: int) -> None:
        """Wait for the kernels; queue and wait for those that need to know what these found.

        Raises:
            DeviceFault: a kernel found itself wrong.
            NotCovered: a kernel met a character that it does not know.
            OutOfMemory: there is no room for spans.
        """
        workspace, work = self.workspace, self.work
        workspace.stream.synchronize()
        fallback = int(checked(workspace)[STATUS["FALLBACK"]])
        if work.resident.family.plain:
            work.resident.had_breaks = fallback == FALLBACK_BREAK
        if not self.is_plain:
            fallback &= ~FALLBACK_BREAK  # These were met.
        if work.resident.family.plain and (fallback or self.with_spans):
            others = fallback_kernels(
                workspace,
                work.resident,
                fallback,
                validate=work.validate,
                with_spans=self.with_spans,
                id_bits=work.id_bits,
            )
            self._again((*others, *self._frames()), processors)
        if self.with_spans:
            num_ids = int(workspace.status[STATUS["NUM_IDS"]])
            most_ids = work.resident.most_ids(num_ids, self.chunk.num_rows)
            workspace.reserve("spans", SPAN_BYTES * max(1, most_ids))
        if self.with_spans or (not self.framed and self.errors() is not None):
            self.framed = True  # Which takes the refused rows' ids away, too.
            workspace.answer_in(True)
            send_job(workspace)
            kernels = frame_kernels(work.resident.family, spans=self.with_spans)
            self._again(kernels, processors)

    def _again(self, kernels: tuple[str, ...], processors: int) -> None:
        """Launch kernels and wait for them and their report."""
        self.workspace.status[STATUS["NOT_UTF8"]] = 0
        launch(self.workspace, (*kernels, "report"), processors)
        self.workspace.stream.synchronize()
        checked(self.workspace)

    def errors(self) -> NDArray[np.uint32] | None:
        """uint32[num_rows]: the first byte at fault, or NO_BYTE; None where no row is wrong."""
        if self.work.options is None or not self.workspace.status[STATUS["NOT_UTF8"]]:
            return None
        return self.workspace.errors[: self.chunk.num_rows]

    def first_refused(self) -> int | None:
        """The number of the first refused row, whatever was asked for; None: none is."""
        if not self.workspace.status[STATUS["NOT_UTF8"]]:
            return None
        places = self.workspace.errors[: self.chunk.num_rows]
        return self.chunk.first_row + int(np.argmax(places != NO_BYTE))

    @property
    def offsets(self) -> Int64s:
        """int64[num_rows + 1]: where each row's ids begin; until the flight has landed."""
        return self.workspace.offsets[: self.chunk.num_rows + 1]

    @property
    def num_ids(self) -> int:
        """How many ids there are."""
        return int(self.workspace.offsets[self.chunk.num_rows])

    @property
    def num_bytes(self) -> int:
        """Bytes of the ids in the answer."""
        return self.work.id_bits // 8 * self.num_ids

    def truncated(self) -> tuple[Int64s, Int64s] | None:
        """num_tokens int64[num_rows] and kept int64[num_rows, 2], where truncation cut a row."""
        workspace, rows = self.workspace, self.chunk.num_rows
        if not workspace.status[STATUS["CUT"]]:
            return None
        kept = fetch(workspace, "kept", np.int64, 2 * rows).reshape(-1, 2)
        return fetch(workspace, "num_tokens", np.int64, rows), kept

    def copy_ids(self, address: int, num_bytes: int, begin: int = 0) -> None:
        """Queue the copy of bytes of the ids to memory of the host or the device."""
        place = self.workspace.fields[self._answer_field()] + begin
        self.copy_streams.outward.copy_out(address, place, num_bytes)
        self.workspace.stream.follow(self.copy_streams.outward)

    def _answer_field(self) -> str:
        if self.work.id_bits != BITS_A_WORD:
            return "narrow_ids"
        return "framed_ids" if self.framed else "ids"

    def bring_ids(self, out: Bytes) -> None:
        """Copy the first bytes of the ids to ordinary memory, by way of the text's; at once."""
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
        """Wait until nobody reads the batch or writes to the workspace but its stream."""
        if self._copy is not None:
            self._copy.wait(len(self.source))


def _options(work: Work, chunk: Chunk) -> RowOptions | None:
    if work.options is None:
        return None
    if chunk.is_part:
        return work.options.of_part(chunk.first_row)
    return work.options.of_rows(chunk.first_row, chunk.first_row + chunk.num_rows)
