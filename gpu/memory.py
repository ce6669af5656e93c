"""Workspaces: the device and pinned host memory that one batch at a time works in.

A workspace is two blocks of memory, cut once for its capacity: total bytes of text and rows, never
rows x longest row. Nothing is allocated while batches fit. Knows no vocabulary and no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition

import numpy as np
from numpy.typing import NDArray

from gpu.device import Device, OutOfMemory, Stream
from gpu.job import JOB, constant

__all__ = ["Capacity", "Workspace", "Workspaces", "device_bytes"]

ALIGNMENT = 256
TEXT_PADDING = 64
SMALL_BYTES = 1 << 20
"""Text of a batch whose answer a kernel writes straight into pinned memory."""
TILE, SCAN_TILE = constant("TILE"), constant("SCAN_ITEMS") * constant("BLOCK")
DECODE_TILE = constant("DECODE_TILE")
SHARED_PLACES = {
    "special_matches": "records",
    "framed_ids": "merged_ids",
    "packed": "merged_ids",
    "span_begins": "records",
    "decode_ids": "merged_ids",
    "decode_offsets": "row_begins",
    "decoded": "ids",
}
"""Fields that lie where others do which nobody reads any more."""
BIN_LENGTHS = (2, 5, 9, 13, 17, 25, 33, 65)
"""The shortest piece in each of the bins that look_up.cuh fills."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The largest batch that a workspace holds."""

    num_bytes: int
    num_rows: int


def _cleared(n: int, rows: int) -> dict[str, int]:
    """Fields that are zero before a batch begins, with their bytes."""
    return {
        "status": 64,
        "miss_counts": 4 * constant("NUM_BINS"),
        "merge_tickets": 4,
        "window_counts": 24,
        "bad_tiles": 4,
        "hard": n // 8 + 16,
        "cuts": n // 8 + 16,
        "special": n // 8 + 16,
        "special_counts": 32,
        "decode_faults": 4,
        "decode_states": 16 * (n // DECODE_TILE + 2),
        "frame_states": 8 * (rows // SCAN_TILE + 2),
        "span_states": 8 * (n // SCAN_TILE + 2),
    }


def _scratch(n: int, rows: int) -> dict[str, int]:
    """The other fields, for n bytes (whole tiles) of text, with their bytes."""
    tiles = n // TILE
    return {
        "text": n + TEXT_PADDING,
        "row_begins": 8 * (rows + 1),
        "row_flags": rows,
        "starts": n // 8 + 16,
        "tile_state": tiles,
        "tile_entry": tiles,
        "tile_function": 32 * tiles,
        "tile_pending": 32 * tiles,
        "records": 4 * n + TEXT_PADDING,
        "tile_pieces": 4 * tiles,
        "tile_counts": 4 * tiles + 32,
        "group_offsets": tiles + 8,
        "merged_ids": 8 * n + 512,
        "long_pieces": 16 * (n // 129 + 1),
        "hard_pieces": 16 * (n // 129 + 1),
        "whole_pieces": 16 * (n // 513 + 1),
        "window_borders": 8 * (n // 32 + 1),
        "even_borders": n // 8 + 16,
        "odd_borders": n // 8 + 16,
        "ids": 4 * n,
        "id_offsets": 8 * (rows + 1),
        "row_errors": 4 * rows,
        "row_refused": 4 * rows,
        "row_stretch": 4 * rows,
        "row_max_length": 4 * rows,
        "special_list": 8 * tiles,
        "special_exits": 2 * tiles,
        "special_function": 256 * tiles,
        "framed_offsets": 8 * (rows + 1),
        "num_tokens": 8 * rows,
        "kept": 16 * rows,
        "decoded_offsets": 8 * (rows + 1),
    }


def _cut(sizes: dict[str, int], begin: int) -> tuple[dict[str, int], int]:
    """Where each field lies from `begin` on, and the end."""
    places = {}
    for name, size in sizes.items():
        places[name] = begin
        begin += -(-size // ALIGNMENT) * ALIGNMENT
    return places, begin


def _places(capacity: Capacity) -> tuple[dict[str, int], int, int]:
    """Where each field lies in the device block; where the cleared ones end; the block's size."""
    n, rows = -(-max(1, capacity.num_bytes) // TILE) * TILE, capacity.num_rows
    places, end = _cut(_cleared(n, rows), -(-JOB.itemsize // ALIGNMENT) * ALIGNMENT)
    scratch, size = _cut(_scratch(n, rows), end)
    bins = {f"misses{i}": 8 * (n // length + 1) for i, length in enumerate(BIN_LENGTHS)}
    bins |= {f"merged_counts{i}": n // length + 1 for i, length in enumerate(BIN_LENGTHS)}
    missed, size = _cut(bins, size)
    return places | scratch | missed, end, size


def device_bytes(capacity: Capacity) -> int:
    """Device memory of a workspace."""
    return _places(capacity)[2]


class Workspace:
    """Memory and a stream for one batch at a time.

    Attributes:
        capacity: the largest batch it holds.
        job: one JOB record in pinned memory, every workspace field set.
        text, row_begins, row_flags, row_max_length: uint8[...], int64[...], uint8[...], uint32[...]
            in pinned memory, where a batch is packed.
        status: uint64[8] in pinned memory, what a batch's kernels report.
        ids, offsets, errors: int32[...], int64[...], uint32[...] in pinned memory, the answer of a
            batch where `is_small`.
        device_job: address of the job on the device.
        resident: the vocabulary whose fields the job holds.
        recordings: recorded launches, by whatever key the engine gives them.
    """

    def __init__(self, device: Device, capacity: Capacity) -> None:
        """Raises OutOfMemory where there is not so much of either memory."""
        self.device, self.capacity = device, capacity
        places, cleared_end, size = _places(capacity)
        n, rows = -(-max(1, capacity.num_bytes) // TILE) * TILE, capacity.num_rows
        host_sizes = {
            "job": JOB.itemsize,
            "status": 64,
            "row_begins": 8 * (rows + 1),
            "row_flags": rows,
            "row_max_length": 4 * rows,
            "text": n + TEXT_PADDING,
        }
        if n <= SMALL_BYTES:
            # Begin and end tokens are few: MAX_TEMPLATE a row, and a row takes BYTES_A_ROW.
            host_sizes |= {"ids": 8 * n, "offsets": 8 * (rows + 1), "errors": 4 * rows}
        host, host_size = _cut(host_sizes, 0)
        self.block = device.allocate(size)
        try:
            self.pinned = device.allocate_pinned(host_size)
        except OutOfMemory:
            device.free(self.block)
            raise

        def view(name: str, dtype: type[np.generic]) -> NDArray[np.generic]:
            part = self.pinned[host[name] : host[name] + host_sizes[name]]
            return part[: part.nbytes // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(
                dtype
            )

        self.job = self.pinned[host["job"] : host["job"] + JOB.itemsize].view(JOB)[0:1]
        self.text, self.status = view("text", np.uint8), view("status", np.uint64)
        self.row_begins, self.row_flags = view("row_begins", np.int64), view("row_flags", np.uint8)
        self.row_max_length = view("row_max_length", np.uint32)
        self.is_small = n <= SMALL_BYTES
        if self.is_small:
            self.ids, self.offsets = view("ids", np.int32), view("offsets", np.int64)
            self.errors = view("errors", np.uint32)
        self.device_job, self.stream = self.block, device.stream()
        self.size, self.recordings, self.num_spans = size, {}, 0
        self._set_fields(places, cleared_end)

    stream: Stream
    recordings: dict[object, object]
    resident: object = None

    def _set_fields(self, places: dict[str, int], cleared_end: int) -> None:
        job = self.job[0]
        names = set(JOB.names or ())
        for name, place in places.items():
            if name in names:
                job[name] = self.block + place
        for i in range(len(BIN_LENGTHS)):
            for name in ("misses", "merged_counts"):
                job[name][i] = self.block + places[f"{name}{i}"]
        self.fields = {name: self.block + place for name, place in places.items()}
        for name, other in SHARED_PLACES.items():
            job[name] = self.fields[name] = self.fields[other]
        job["device_job"] = self.device_job
        job["cleared"] = self.fields["status"]
        job["num_cleared"] = (self.block + cleared_end - self.fields["status"]) // 8
        job["host_text"] = self.text.ctypes.data
        job["host_row_begins"] = self.row_begins.ctypes.data
        if self.is_small:
            job["host_ids"], job["host_offsets"] = self.ids.ctypes.data, self.offsets.ctypes.data
            job["host_errors"] = self.errors.ctypes.data
            job["host_status"] = self.status.ctypes.data

    def answer_in(self, framed: bool) -> None:
        """Say which fields hold a small batch's answer."""
        job, fields = self.job[0], self.fields
        job["answer_ids"] = fields["framed_ids" if framed else "ids"]
        job["answer_offsets"] = fields["framed_offsets" if framed else "id_offsets"]

    def reserve_spans(self, num_ids: int) -> None:
        """Make room for the spans of so many ids; kept from then on.

        Raises:
            OutOfMemory: there is not so much.
        """
        if num_ids <= self.num_spans:
            return
        if self.num_spans:
            self.device.free(self.fields["spans"])
            self.num_spans = 0
        self.fields["spans"] = self.device.allocate(16 * num_ids)
        self.num_spans, self.job[0]["spans"] = num_ids, self.fields["spans"]
        self.stream.copy_in(self.device_job, self.job.ctypes.data, self.job.nbytes)

    def close(self) -> None:
        """Give the memory back."""
        self.recordings.clear()
        if self.num_spans:
            self.device.free(self.fields["spans"])
        self.device.free(self.block)
        self.device.free_pinned(self.pinned)


class Workspaces:
    """Workspaces in a few sizes, lent to one call each, together within a cap.

    Args:
        device: whose memory.
        cap_bytes: device memory for all of them.
        each: how many of one size there are at most.
    """

    SIZES = (1 << 13, 1 << 17, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)
    BYTES_A_ROW = 16

    def __init__(self, device: Device, cap_bytes: int, each: int = 4) -> None:
        self.device, self.cap_bytes, self.each = device, cap_bytes, each
        self.used_bytes = self.num_allocations = 0
        self._free: dict[Capacity, list[Workspace]] = {}
        self._made: dict[Capacity, int] = {}
        self._changed = Condition()
        self.largest = self._largest()

    def _largest(self) -> Capacity:
        """The largest size of which `each` fit beside one of every smaller one."""
        best = self._capacity(self.SIZES[0], 0)
        for size in self.SIZES:
            capacity = self._capacity(size, 0)
            if 2 * device_bytes(capacity) <= self.cap_bytes:
                best = capacity
        return best

    def _capacity(self, num_bytes: int, num_rows: int) -> Capacity:
        """The smallest size for a batch; rows beyond the usual number count as bytes."""
        wanted = max(num_bytes, num_rows * self.BYTES_A_ROW)
        size = next((size for size in self.SIZES if size >= wanted), wanted)
        return Capacity(size, size // self.BYTES_A_ROW)

    @contextmanager
    def lend(self, num_bytes: int, num_rows: int) -> Iterator[Workspace]:
        """A workspace for a batch; waits while all of its size are in use.

        Raises:
            OutOfMemory: no workspace of this size fits under the cap or into memory.
        """
        workspace = self.take(num_bytes, num_rows)
        try:
            yield workspace
        finally:
            self.give(workspace)

    def take(self, num_bytes: int, num_rows: int) -> Workspace:
        """As `lend`, until it is given back."""
        workspace = self._take(self._capacity(num_bytes, num_rows), wait=True)
        assert workspace is not None
        return workspace

    def try_take(self, num_bytes: int, num_rows: int) -> Workspace | None:
        """As `take`, but None where all of the size are in use."""
        return self._take(self._capacity(num_bytes, num_rows), wait=False)

    def give(self, workspace: Workspace) -> None:
        """Give a workspace back; nothing of it may still be at work."""
        with self._changed:
            self._free[workspace.capacity].append(workspace)
            self._changed.notify()

    def _take(self, capacity: Capacity, *, wait: bool) -> Workspace | None:
        with self._changed:
            while True:
                free = self._free.setdefault(capacity, [])
                if free:
                    return free.pop()
                if self._made.get(capacity, 0) < self.each:
                    made = self._make(capacity)
                    if made is not None:
                        return made
                if not self._made.get(capacity, 0):
                    message = f"a batch of {capacity.num_bytes} bytes needs more than the cap"
                    raise OutOfMemory(message)
                if not wait:
                    return None
                self._changed.wait()

    def _make(self, capacity: Capacity) -> Workspace | None:
        size = device_bytes(capacity)
        if self.used_bytes + size > self.cap_bytes:
            return None
        workspace = Workspace(self.device, capacity)
        self.used_bytes += size
        self.num_allocations += 1
        self._made[capacity] = self._made.get(capacity, 0) + 1
        return workspace

    def close(self) -> None:
        """Give all free workspaces back."""
        with self._changed:
            for capacity, workspaces in self._free.items():
                for workspace in workspaces:
                    workspace.close()
                    self.used_bytes -= workspace.size
                    self._made[capacity] -= 1
            self._free.clear()
