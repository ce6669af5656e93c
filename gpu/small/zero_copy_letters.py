"""Characters to ids by launches that read the text where it is, over PCIe or on the device.

An id is that of its letter alone, so that neither rows nor borders of pieces matter:

    pinned, little  one launch reads all of it over PCIe
    pinned, much    copied in pieces, each of which a launch reads on the device
    other text      staged in pinned pieces, each of which a launch reads over PCIe

    piece 0   staged   read            stream 0
    piece 1      staged   read         stream 1
    piece 2         staged   read      stream 0, when piece 0 is read

Where the text has what needs other kernels (STATUS_FALLBACK) it goes the usual way, from its begin.
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
ALIGNMENT = 16  # Of text and of ids.
OVER_BUS_BYTES = 1 << 23  # More pinned text is copied: the copy engine is faster than a kernel.
COPIED_BYTES = 1 << 23  # Of a piece.
STAGED_BYTES = 1 << 20, 1 << 21  # Of a piece at least and at most,
STAGED_PIECES = 4  # of which so many are on their way.
OWN_BYTES = 1 << 17  # What the caller's thread copies sooner than others wake.
_TEXT, _NUM_BYTES, _IDS = WORD["host_text"], WORD["num_bytes"], WORD["host_ids"]
_FALLBACK = STATUS["FALLBACK"]


def fetch_batch(resources: Resources, resident: Resident, batch: Batch) -> Encoded | None:
    """The ids of a batch of characters, as narrow as it asks for, in leased memory.

    None: it has letters that ask for more, or there is no memory to lease.
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
    """The ids of letters to memory that the device reaches, from an address on; then returns.

    Returns:
        False: it is not done, whatever lies there.

    Raises:
        OutOfMemory: there is no room for a workspace.
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
    least, most = STAGED_BYTES
    piece = min(max(-(-size // (STAGED_PIECES * ALIGNMENT)) * ALIGNMENT, least), most)
    num_pieces = min(STAGED_PIECES, -(-size // piece))
    with _Fetches(resources, resident, kernel, min(piece, size), num_pieces) as fetches:
        if size <= OWN_BYTES:
            fetches.next().take(text, address)
        else:
            _stage(resources, fetches, text, address, id_bytes)
        return fetches.are_complete()


def _stage(
    resources: Resources, fetches: _Fetches, text: Bytes, address: int, id_bytes: int
) -> None:
    """Text in ordinary memory: the next piece is being staged when one is launched."""
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
            fetch.wait()  # What was staged before is read.
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
    """A piece of text that is being staged, by which copy and for which launch."""

    fetch: _Fetch
    copy: Copy
    begin: int
    size: int


class _Fetches:
    """Some workspaces with room for a piece each; pieces take them round robin."""

    def __init__(
        self, resources: Resources, resident: Resident, kernel: str, piece_bytes: int, most: int
    ) -> None:
        """Take `most`, or as many as are free, at least one."""
        self.piece_bytes = piece_bytes
        size = piece_bytes, 1, resident.family.layout
        taken = [resources.workspaces.take(*size)]
        # Who waits for another one while it has one might do so for ever.
        while len(taken) < most and (other := resources.workspaces.try_take(*size)) is not None:
            taken.append(other)
        self.all = [_Fetch(resources, resident, kernel, workspace) for workspace in taken]
        self._number = -1

    def next(self) -> _Fetch:
        """The workspace for the next piece."""
        self._number += 1
        return self.all[self._number % len(self.all)]

    def are_complete(self) -> bool:
        """Wait for all launches; whether the ids are right."""
        return all([fetch.is_complete() for fetch in self.all])

    def __enter__(self) -> _Fetches:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for all launches and give the workspaces back."""
        for fetch in self.all:
            fetch.close()


class _Fetch:
    """Launches of a kernel in a workspace."""

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
        """Queue what writes the ids of a text; both are addresses."""
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
        """The same by way of the device's memory."""
        workspace = self.workspace
        self._is_busy = True
        workspace.stream.copy_in(workspace.fields["text"], text, num_bytes)
        self.launch(workspace.fields["text"], num_bytes, ids)

    def take(self, text: Bytes, ids: int) -> None:
        """The same by way of pinned memory, at once."""
        self.workspace.text[: len(text)] = text
        self.launch(self.workspace.text_place, len(text), ids)

    def wait(self) -> None:
        """Until all launches are done."""
        if self._is_busy:
            self.workspace.stream.synchronize()
            self._is_busy = False

    def is_complete(self) -> bool:
        """Wait; whether the ids are right."""
        self.wait()
        return not self.workspace.reported[_FALLBACK]

    def close(self) -> None:
        """Wait and give the workspace back."""
        self.wait()
        if self._clock is not None:
            self.resources.stage_times.add(self._clock)
        self.workspace.words[_IDS] = self._own_ids
        self.resources.workspaces.give(self.workspace)
