"""Encodes a small batch in one workspace, which has pinned memory for the answer.

The fused kernel of the batch is tried first. Single kernels, launched as one recording, encode the
batch if there is no fused kernel or if it could not finish the batch.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpu.batch.kernel_choice import fallback_kernels, first_kernels
from gpu.batch.resources import Resources
from gpu.batch.row_options import RowOptions, drop_rows, row_errors
from gpu.batch.transfer import checked, fetch, launch, pack, put_batch
from gpu.errors import OutOfMemory
from gpu.host.arrays import address_of
from gpu.kernels.catalog import KERNELS
from gpu.kernels.families import answer_kernels
from gpu.kernels.job import STATUS, WORD, constant
from gpu.memory.workspace import Workspace
from gpu.small.fused import (
    CAN_FALL_BACK,
    FALLBACK_RUNS,
    FIXED_BLOCKS,
    GOES_ON_FROM,
    PARTS_SKIPS,
    HostText,
    blocks_of,
    grid_text,
    size_of,
    staged_text,
)
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.model.vocabulary import Vocabulary

Int64s = NDArray[np.int64]
_HOST_IDS, _ID_BITS = WORD["host_ids"], WORD["id_bits"]
_TRUNCATED, _NOT_UTF8, _FALLBACK = STATUS["TRUNCATED"], STATUS["NOT_UTF8"], STATUS["FALLBACK"]
CIRCLE_OR_COMPLEMENT = np.uint8(constant("ROW_CIRCLE") | constant("ROW_REVERSE_COMPLEMENT"))
COPIED_BYTES = 1 << 17  # Up to here, copying the ids is faster than leasing pinned memory.


class SmallCall:
    """The encoding of one small batch; a context manager that gives the workspace back."""

    def __init__(
        self,
        resources: Resources,
        vocabulary: Vocabulary,
        workspace: Workspace,
        resident: Resident,
        batch: Batch,
        options: RowOptions,
        validate: bool,
    ) -> None:
        self.resources, self.vocabulary, self.workspace = resources, vocabulary, workspace
        self.processors = resources.processors
        self.resident, self.batch, self.options = resident, batch, options
        self.family = resident.family
        self.validate = validate
        self.post_processed = options.post_processed
        self.text = HostText(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        copy = self.text.copy
        if copy is not None:  # Also after an error: the threads may still be copying.
            copy.wait(len(self.batch.data))
        try:
            if kind is not None:  # The device may still be reading the text.
                self.workspace.stream.synchronize()
        finally:
            self.resources.workspaces.give(self.workspace)

    def pack(self) -> None:
        """Copy the batch to the device."""
        begin, clock = perf_counter(), self.workspace.clock
        if clock is not None:
            clock.enter("copy_to_device")
        staging = self.resources.staging
        pack(self.workspace, self.resident, self.batch, self.options, self.processors, staging)
        if clock is not None:
            clock.add("stage", perf_counter() - begin)

    def launch(self, kernels: tuple[str, ...]) -> None:
        """Queue kernels on the stream of the workspace."""
        launch(self.workspace, kernels, self.processors)

    def encode(self, fused: str) -> Encoded:
        """Encode the batch; `fused` is the fused kernel to try first, "" for none."""
        workspace, rows = self.workspace, len(self.batch)
        fused = self.kernel_to_try(fused)
        self.stage_text(fused)
        workspace.answer_in(self.post_processed)
        ids, is_leased = self.room_for_ids()
        self.run(fused, 8 * ids.itemsize)
        offsets = workspace.offsets[: rows + 1].copy()
        own = ids[: offsets[-1]]
        encoded = Encoded(own if is_leased else own.copy(), offsets, engine="gpu")
        reported = workspace.reported
        if reported[_TRUNCATED]:
            self.add_truncation(encoded)
        if reported[_NOT_UTF8] or self.options.may_refuse:
            encoded.errors = self.errors()
            if encoded.errors and not self.post_processed:
                drop_rows(encoded)
        return encoded

    def encode_to(self, address: int, id_bits: int, fused: str) -> Int64s:
        """Encode into memory that kernels can write, with room for one id a byte.

        Returns the offsets int64[B + 1].
        """
        workspace = self.workspace
        fused = self.kernel_to_try(fused)
        self.stage_text(fused)
        workspace.answer_in(False)
        own, workspace.words[_HOST_IDS] = workspace.words[_HOST_IDS], address
        try:
            self.run(fused, id_bits)
        finally:
            workspace.words[_HOST_IDS] = own
        return workspace.offsets[: len(self.batch) + 1].copy()

    def stage_text(self, fused: str) -> None:
        """Start to copy the text to the memory from which the fused kernel reads it."""
        if fused in FIXED_BLOCKS:
            self.text = staged_text(self.workspace, self.batch)
        elif fused:
            in_place = bool(self.family.parts)
            self.text = grid_text(
                self.workspace, self.batch, self.resources.staging, in_place=in_place
            )

    def run(self, fused: str, id_bits: int = 32) -> None:
        """Run all stages; they write the answer to the address in the Job."""
        workspace = self.workspace
        workspace.words[_ID_BITS] = id_bits
        workspace.clock = self.resources.stage_times.clock(workspace.stream)
        try:
            self.run_all(fused)
            if workspace.clock is not None:
                self.resources.stage_times.add(workspace.clock)
        finally:
            workspace.clock = None
        checked(workspace)

    def kernel_to_try(self, fused: str) -> str:
        """Return the fused kernel to try for this batch: `fused`, or "" if it would fall back.

        A batch that skips the kernel of DNA parts is counted in `Resident.parts_skips`.
        """
        resident, options = self.resident, self.options
        if not fused or fused != self.family.parts:
            return fused
        if options.may_refuse:
            return ""
        if not options.is_default and (
            self.post_processed or np.any(options.flags & CIRCLE_OR_COMPLEMENT)
        ):
            return ""
        if resident.parts_skips:
            resident.parts_skips -= 1
            return ""
        return fused

    def encode_parts(self, kernel: str) -> bool:
        """Encode by the kernel of DNA parts; return whether it finished the batch."""
        self.workspace.status[:] = 0
        if self.launch_fused(kernel):
            self.resident.parts_skips = PARTS_SKIPS
            return False
        return True

    def run_all(self, fused: str) -> None:
        """Run the fused kernel, if any, and single kernels if the batch is not finished then."""
        if fused in FIXED_BLOCKS:
            is_done = not self.launch_fused(fused)
        elif fused and fused == self.family.parts:
            is_done = self.encode_parts(fused)
        else:
            is_done = bool(fused) and self.run_grid(fused)
        if not is_done:
            self.pack()
            self.launch_single_kernels()

    def run_grid(self, kernel: str) -> bool:
        """Encode by a grid, and by the fallback kernels where it stops.

        Returns whether the answer is complete; otherwise it is discarded.
        """
        resident = self.resident
        planned = resident.planned_fallback
        fallback = self.launch_fused(kernel, planned)
        # Runs come first: long pieces in them were not found, or are wrong.
        resident.planned_fallback = fallback & FALLBACK_RUNS or fallback
        if planned:
            return planned == FALLBACK_RUNS or not fallback & FALLBACK_RUNS
        if fallback:
            self.launch_fallback(fallback)
            self.workspace.stream.synchronize()
        return True

    def launch_fused(self, kernel: str, planned: int = 0) -> int:
        """Launch a fused kernel and wait for it.

        Args:
            kernel: the fused kernel.
            planned: a key of GOES_ON_FROM: a grid always stops there, and the fallback
                kernels that go on from there are queued after it. 0: it stops only where it must.

        Returns:
            The FALLBACK_* bits that say why fallback kernels are needed; 0: the batch is finished.
        """
        workspace, batch = self.workspace, self.batch
        clock = workspace.clock
        copy = self.text.copy
        put_batch(
            workspace,
            self.resident,
            len(batch.data),
            batch.offsets,
            self.options,
            host_text=self.text.address,
            validates=self.validate,
            planned_fallback=planned,
        )
        workspace.reported[_NOT_UTF8] = 0
        blocks = blocks_of(kernel, size_of(len(batch.data), len(batch)), self.processors)
        if clock is not None:
            clock.enter(KERNELS[kernel].stage)
        if copy is not None:
            copy.wait(len(batch.data))
        workspace.stream.launch(kernel, blocks, workspace.host_job)
        if clock is not None:
            clock.leave()
        if planned:
            self.launch_fallback(planned)
        workspace.stream.synchronize()
        return workspace.reported[_FALLBACK] if kernel in CAN_FALL_BACK else 0

    def launch_fallback(self, fallback: int) -> None:
        """Queue the kernels that continue where a grid stops; it has copied the Job for them."""
        kernels = self.all_kernels(self.first_kernels())
        self.launch(kernels[kernels.index(GOES_ON_FROM[fallback]) :])

    def first_kernels(self) -> tuple[str, ...]:
        """Return the kernels to try first, from the first stage to the one that writes ids."""
        augmented = self.options.augmented
        return first_kernels(
            self.workspace, self.resident, validate=self.validate, augmented=augmented
        )

    def all_kernels(self, encode: tuple[str, ...]) -> tuple[str, ...]:
        """Return the kernels of `encode` followed by those that write the answer."""
        return answer_kernels(self.family, encode, post_processed=self.post_processed)

    def launch_single_kernels(self) -> None:
        """Run all stages by single kernels, and the fallback kernels where these are needed."""
        workspace = self.workspace
        workspace.status[STATUS["NOT_UTF8"]] = 0
        self.launch(self.all_kernels(self.first_kernels()))
        workspace.stream.synchronize()
        fallback = int(workspace.status[STATUS["FALLBACK"]]) if self.family.plain else 0
        if fallback:
            others = fallback_kernels(workspace, self.resident, fallback, validate=self.validate)
            self.launch(self.all_kernels(others))
            workspace.stream.synchronize()

    def room_for_ids(self) -> tuple[NDArray[np.integer[Any]], bool]:
        """Return pinned memory for the ids, and whether it is leased.

        The workspace's own memory serves small answers, which are copied from there. Large answers
        get leased memory, if there is any, which the caller keeps.
        """
        workspace, block = self.workspace, None
        id_dtype, ids = self.batch.id_dtype, workspace.ids
        if id_dtype is not np.int32:
            ids = ids.view(id_dtype)
        if workspace.capacity.num_bytes <= COPIED_BYTES:
            return ids, False
        if len(self.batch.data) > COPIED_BYTES:
            most_ids = self.resident.most_ids(len(self.batch.data), len(self.batch))
            block = self.resources.leases.take(ids.itemsize * most_ids)
        if block is not None:
            ids = block.view(id_dtype)
        workspace.words[_HOST_IDS] = address_of(ids)
        return ids, block is not None

    def add_truncation(self, encoded: Encoded) -> None:
        """Report how many ids each row had before truncation, and which were kept."""
        rows = len(self.batch)
        encoded.num_tokens = fetch(self.workspace, "num_tokens", np.int64, rows)
        encoded.kept = fetch(self.workspace, "kept", np.int64, 2 * rows).reshape(-1, 2)

    def errors(self) -> dict[int, RowError]:
        """Return the errors of the refused rows."""
        places = self.workspace.errors[: len(self.batch)]
        return row_errors(self.vocabulary, self.batch, self.options, places)


def encode_in_workspace(
    resources: Resources,
    vocabulary: Vocabulary,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    kernel: str,
    *,
    validate: bool,
) -> Encoded | None:
    """Encode a batch in one workspace; `kernel` is the fused kernel to try first, or "".

    Returns None if no workspace fits into memory; smaller chunks may fit.
    """
    try:
        workspace = resources.workspaces.take(len(batch.data), len(batch), resident.family.layout)
    except OutOfMemory:
        return None
    with SmallCall(resources, vocabulary, workspace, resident, batch, options, validate) as call:
        return call.encode(kernel)
