"""A workspace: the device and pinned host memory and the stream that one batch at a time uses.

Two blocks of memory, cut once for its capacity; nothing is allocated while batches fit.
Knows no vocabulary and no kernel.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory
from gpu.host.fast_launch import launcher_of
from gpu.kernels.job import JOB
from gpu.memory.workspace_layout import (
    BIN_LENGTHS,
    SMALL_BYTES,
    TEXT_PADDING,
    TILE,
    Capacity,
    cut,
    field_places,
)
from gpu.runtime.device import Device, Stream
from gpu.runtime.stage_timer import Clock

Item = TypeVar("Item", bound=np.generic)


class Workspace:
    """Memory and a stream for one batch at a time.

    Attributes:
        capacity: the largest batch it holds.
        job: one JOB record in pinned memory, every workspace field set.
        words: its 8-byte words by `job.WORD`, which are written faster one by one.
        host_job: its address.
        text, row_begins, row_flags, row_max_length: uint8[...], int64[...], uint8[...], uint32[...]
            in pinned memory, where a batch is packed.
        text_place: address of `text`.
        status: uint64[8] in pinned memory, what a batch's kernels report.
        reported: the same words, which are read faster one by one.
        offsets, errors: int64[...], uint32[...] in pinned memory, where each row's ids begin and
            its first bad byte.
        ids, ids_place: int32[...] in pinned memory and its address, the ids of a batch where
            `is_small`.
        device_job: address of the job on the device.
        resident: the vocabulary whose fields the job holds.
        launcher: writes what the Job says of a batch, and launches small ones in one call.
        recordings: recorded launches, by whatever key the engine gives them.
        shelf: whose it is while nobody uses it, see `WorkspacePool`.
        clock: times the batch that is in here; None for most of them.
    """

    def __init__(self, device: Device, capacity: Capacity) -> None:
        """Raises OutOfMemory where there is not so much of either memory."""
        self.device, self.capacity = device, capacity
        places, cleared_end, size = field_places(capacity)
        n, rows = -(-max(1, capacity.num_bytes) // TILE) * TILE, capacity.num_rows
        host_sizes = _host_sizes(n, rows)
        host, host_size = cut(host_sizes, 0)
        self.block = device.allocate(size)
        try:
            self.pinned = device.allocate_pinned(host_size)
        except OutOfMemory:
            device.free(self.block)
            raise

        def view(name: str, dtype: type[Item]) -> NDArray[Item]:
            whole = host_sizes[name] // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize
            return self.pinned[host[name] : host[name] + whole].view(dtype)

        self.job = self.pinned[host["job"] : host["job"] + JOB.itemsize].view(JOB)[0:1]
        self.words = self.job.view(np.uint64).data
        self.host_job = int(self.job.ctypes.data)
        self.text, self.status = view("text", np.uint8), view("status", np.uint64)
        self.reported = self.status.data
        self.row_begins, self.row_flags = view("row_begins", np.int64), view("row_flags", np.uint8)
        self.row_max_length = view("row_max_length", np.uint32)
        self.text_place = int(self.text.ctypes.data)
        self.offsets, self.errors = view("offsets", np.int64), view("errors", np.uint32)
        self.is_small = "ids" in host_sizes
        if self.is_small:
            self.ids = view("ids", np.int32)
            self.ids_place = int(self.ids.ctypes.data)
        self.device_job, self.stream = self.block, device.stream()
        self.size, self.recordings, self.reserved = size, {}, {}
        self._set_fields(places, cleared_end)
        self.stream.clear(self.fields["grid_arrivals"], 4)
        self.launcher = launcher_of(
            self.stream.driver,
            self.fields,
            job=self.job,
            text=self.text,
            row_begins=self.row_begins,
            status=self.status,
            offsets=self.offsets,
        )

    stream: Stream
    recordings: dict[object, object]
    reserved: dict[str, int]
    resident: object = None
    shelf: Any = None
    clock: Clock | None = None

    def _set_fields(self, places: dict[str, int], cleared_end: int) -> None:
        self.job.view(np.uint8)[:] = 0  # A family does not use all fields.
        job = self.job[0]
        names = set(JOB.names or ())
        for name, place in places.items():
            if name in names:
                job[name] = self.block + place
        for i in range(len(BIN_LENGTHS)):
            for name in ("misses", "merged_counts"):
                job[name][i] = self.block + places.get(f"{name}{i}", 0)
        self.fields = {name: self.block + place for name, place in places.items()}
        job["device_job"] = self.device_job
        job["cleared"] = self.fields["status"]
        job["num_cleared"] = (self.block + cleared_end - self.fields["status"]) // 8
        job["host_text"] = self.text_place
        job["host_row_begins"] = self.row_begins.ctypes.data
        job["host_row_flags"] = self.row_flags.ctypes.data
        job["host_row_max_length"] = self.row_max_length.ctypes.data
        job["host_offsets"], job["host_errors"] = self.offsets.ctypes.data, self.errors.ctypes.data
        job["host_status"] = self.status.ctypes.data
        if self.is_small:
            job["host_ids"] = self.ids_place

    def answer_in(self, framed: bool) -> None:
        """Say which fields hold the answer."""
        self.launcher.answer_in(framed)

    def reserve(self, field: str, num_bytes: int) -> None:
        """Make room for a field that few batches need; kept from then on.

        Raises:
            OutOfMemory: there is not so much.
        """
        if num_bytes <= self.reserved.get(field, 0):
            return
        if self.reserved.pop(field, 0):
            self.device.free(self.fields[field])
        self.fields[field] = self.device.allocate(num_bytes)
        self.reserved[field], self.job[0][field] = num_bytes, self.fields[field]
        self.stream.copy_in(self.device_job, self.job.ctypes.data, self.job.nbytes)

    def close(self) -> None:
        """Give the memory back."""
        self.recordings.clear()
        del self.launcher  # It has views of the pinned memory.
        for field in self.reserved:
            self.device.free(self.fields[field])
        self.device.free(self.block)
        self.device.free_pinned(self.pinned)


def _host_sizes(n: int, rows: int) -> dict[str, int]:
    """Bytes of what lies in pinned memory, for n bytes of text (whole tiles) and rows."""
    sizes = {
        "job": JOB.itemsize,
        "status": 64,
        "row_begins": 8 * (rows + 1),
        "row_flags": rows,
        "row_max_length": 4 * rows,
        "text": n + TEXT_PADDING,
        "offsets": 8 * (rows + 1),
        "errors": 4 * rows,
    }
    # Begin and end tokens are few: MAX_TEMPLATE a row, and a row takes BYTES_A_ROW.
    return sizes | ({"ids": 8 * n} if n <= SMALL_BYTES else {})
