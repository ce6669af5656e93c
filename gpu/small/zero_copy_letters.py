"""Looks up the ids of characters by kernels that read text over PCIe.

An id depends on its letter alone, so text may be divided into pieces at any place:

    short pinned text  one launch reads all of it over PCIe
    long pinned text   pieces are copied to the device, and a launch reads each there
    other text         pieces are staged in pinned memory, and a launch reads each over PCIe

    piece 0   staged   read            stream 0
    piece 1      staged   read         stream 1
    piece 2         staged   read      stream 0, when piece 0 is read

Text that needs fallback kernels (STATUS_FALLBACK) is encoded in another way, from its beginning.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.batch.resources import Resources
from gpu.batch.transfer import set_fields
from gpu.errors import OutOfMemory
from gpu.host.arrays import address_of, put_begins
from gpu.host.copy_pool import Copy
from gpu.kernels.catalog import KERNELS, num_blocks
from gpu.kernels.job import STATUS, WORD
from gpu.memory.workspace import Workspace
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch, Encoded

Bytes = NDArray[np.uint8]
ALIGNMENT = 16  # Of the addresses of text and ids.
OVER_BUS_BYTES = 1 << 23  # More pinned text is copied: the copy engine is faster than a kernel.
COPIED_BYTES = 1 << 23  # Bytes of a piece that is copied.
LEAST_STAGED_BYTES, MOST_STAGED_BYTES = 1 << 20, 1 << 21  # Of a piece that is staged.
STAGED_PIECES = 4  # The most pieces that are being staged or read.
OWN_BYTES = 1 << 17  # Up to here, the caller's thread copies faster than others wake up.
_TEXT, _NUM_BYTES, _IDS = WORD["host_text"], WORD["num_bytes"], WORD["host_ids"]
_FALLBACK = STATUS["FALLBACK"]


def fetch_batch(resources: Resources, resident: Resident, batch: Batch) -> Encoded | None:
    """Encode a batch of characters into leased memory, with ids of the batch's dtype.

    Returns None if the text needs fallback kernels or no memory can be leased.
    """
    text, offsets, id_dtype = batch.data, batch.offsets, np.dtype(batch.id_dtype)
    if not len(text) or offsets[0] != 0 or offsets[-1] != len(text):
        return None
    put_begins(own_offsets := np.empty_like(offsets), offsets)
    block = resources.leases.take(id_dtype.itemsize * len(text))
    if block is None:
        return None
    address, bits = address_of(block), 8 * id_dtype.itemsize
    try:
        if not fetch_letters(resources, resident, text, address, bits):
            return None
    except OutOfMemory:  # Other ways need less.
        return None
    ids = block[: id_dtype.itemsize * len(text)].view(id_dtype)
    return Encoded(ids, own_offsets, engine="gpu")


def fetch_letters(
    resources: Resources, resident: Resident, text: Bytes, address: int, id_bits: int
) -> bool:
    """Write the ids of the letters of `text` to `address`, which the device can write, and wait.

    Returns:
        Whether the ids are complete; otherwise the text must be encoded in another way.

    Raises:
        OutOfMemory: no workspace fits into memory.
    """
    place = address_of(text)
    is_pinned = resources.device.is_pinned(text)
    is_aligned = address % ALIGNMENT == 0 and (place % ALIGNMENT == 0 or not is_pinned)
    if not resident.family.fetch or resident.had_breaks or not is_aligned:
        return False
    kernel = resident.family.fetch + ("" if id_bits == 32 else str(id_bits))
    id_bytes, size = id_bits // 8, len(text)
    if is_pinned and size <= OVER_BUS_BYTES:
        with _Fetches(resources, resident, kernel, 1, 1) as fetches:
            fetches.next().launch(place, size, address)
            return fetches.are_complete()
    if is_pinned:
        with _Fetches(resources, resident, kernel, COPIED_BYTES, 2) as fetches:
            for begin in range(0, size, COPIED_BYTES):
                piece = min(COPIED_BYTES, size - begin)
                fetches.next().copy(place + begin, piece, address + begin * id_bytes)
            return fetches.are_complete()
    share = -(-size // (STAGED_PIECES * ALIGNMENT)) * ALIGNMENT
    piece = min(max(share, LEAST_STAGED_BYTES), MOST_STAGED_BYTES)
    num_pieces = min(STAGED_PIECES, -(-size // piece))
    with _Fetches(resources, resident, kernel, min(piece, size), num_pieces) as fetches:
        if size <= OWN_BYTES:
            fetches.next().stage(text, address)
        else:
            _stage(resources, fetches, text, address, id_bytes)
        return fetches.are_complete()


def _stage(
    resources: Resources, fetches: _Fetches, text: Bytes, address: int, id_bytes: int
) -> None:
    """Look up text in pageable memory: one piece is staged while another is read."""
    staged: deque[_StagedPiece] = deque()

    def launch_one() -> None:
        piece = staged.popleft()
        piece.copy.wait(piece.size)
        text_place = piece.fetch.workspace.text_place
        piece.fetch.launch(text_place, piece.size, address + piece.begin * id_bytes)

    try:
        for begin in range(0, len(text), fetches.piece_bytes):
            part = text[begin : begin + fetches.piece_bytes]
            if len(staged) == len(fetches.all):
                launch_one()
            fetch = fetches.next()
            fetch.wait()  # The kernel has read the piece that was staged here before.
            copy = resources.staging.start(fetch.workspace.text, part)
            staged.append(_StagedPiece(fetch, copy, begin, len(part)))
            if len(staged) > 1:
                launch_one()
        while staged:
            launch_one()
    finally:
        for piece in staged:
            piece.copy.wait(piece.size)


@dataclass(frozen=True, slots=True, eq=False)
class _StagedPiece:
    """A piece of text that is being staged, with its copy and its launch."""

    fetch: _Fetch
    copy: Copy
    begin: int
    size: int


class _Fetches:
    """Several workspaces with room for a piece each, used round robin."""

    def __init__(
        self, resources: Resources, resident: Resident, kernel: str, piece_bytes: int, most: int
    ) -> None:
        """Take `most` workspaces, or as many as are free, but at least one."""
        self.piece_bytes = piece_bytes
        size = piece_bytes, 1, resident.family.layout
        workspaces = [resources.workspaces.take(*size)]
        # Two calls that hold one and wait for another would wait for ever, so only the first waits.
        while (
            len(workspaces) < most and (other := resources.workspaces.try_take(*size)) is not None
        ):
            workspaces.append(other)
        self.all = [_Fetch(resources, resident, kernel, workspace) for workspace in workspaces]
        self._number = -1

    def next(self) -> _Fetch:
        """Return the workspace for the next piece."""
        self._number += 1
        return self.all[self._number % len(self.all)]

    def are_complete(self) -> bool:
        """Wait for all launches; return whether no fallback kernels are needed."""
        return all([fetch.is_complete() for fetch in self.all])

    def __enter__(self) -> _Fetches:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for all launches and give the workspaces back."""
        for fetch in self.all:
            fetch.close()


class _Fetch:
    """The launches of a kernel in one workspace."""

    def __init__(
        self, resources: Resources, resident: Resident, kernel: str, workspace: Workspace
    ) -> None:
        self.resources, self.kernel, self.workspace = resources, kernel, workspace
        self._own_ids, self._is_busy = workspace.words[_IDS], False
        self._clock = resources.stage_times.clock(workspace.stream)
        if workspace.resident is not resident:
            set_fields(workspace, resident)
        workspace.reported[_FALLBACK] = 0

    def launch(self, text: int, num_bytes: int, ids: int) -> None:
        """Queue the kernel that writes the ids of a text; `text` and `ids` are addresses."""
        workspace = self.workspace
        words = workspace.words
        words[_TEXT], words[_NUM_BYTES], words[_IDS] = text, num_bytes, ids
        self._is_busy = True
        blocks = num_blocks(self.kernel, num_bytes, self.resources.processors)
        if self._clock is not None:
            self._clock.enter(KERNELS[self.kernel].stage)
        workspace.stream.launch(self.kernel, blocks, workspace.host_job)
        if self._clock is not None:
            self._clock.leave()

    def copy(self, text: int, num_bytes: int, ids: int) -> None:
        """Queue a copy of the text to the device, and the kernel that reads it there."""
        workspace = self.workspace
        self._is_busy = True
        workspace.stream.copy_in(workspace.fields["text"], text, num_bytes)
        self.launch(workspace.fields["text"], num_bytes, ids)

    def stage(self, text: Bytes, ids: int) -> None:
        """Copy the text to pinned memory, and queue the kernel that reads it there."""
        self.workspace.text[: len(text)] = text
        self.launch(self.workspace.text_place, len(text), ids)

    def wait(self) -> None:
        """Wait until all launches are done."""
        if self._is_busy:
            self.workspace.stream.synchronize()
            self._is_busy = False

    def is_complete(self) -> bool:
        """Wait for the launches; return whether no fallback kernels are needed."""
        self.wait()
        return not self.workspace.reported[_FALLBACK]

    def close(self) -> None:
        """Wait and give the workspace back."""
        self.wait()
        if self._clock is not None:
            self.resources.stage_times.add(self._clock)
        self.workspace.words[_IDS] = self._own_ids
        self.resources.workspaces.give(self.workspace)
