"""A workspace: device memory, pinned host memory and a stream, for one batch at a time.

It has one block of device memory and one block of pinned memory; each is divided into fields once.
Nothing is allocated as long as batches fit. This module does not depend on vocabularies or kernels.
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
        capacity: the size of the largest batch that fits.
        job: one JOB record in pinned memory; the addresses of all fields are set.
        words: a view of `job` as 8-byte words, indexed by `job.WORD`; faster for single words.
        host_job: the address of `job`.
        text: uint8[...] in pinned memory, where the text of a batch is packed.
        row_begins, row_flags, row_max_length: int64[...], uint8[...] and uint32[...] in pinned
            memory, where the rows of a batch and their options are packed.
        text_place: the address of `text`.
        status: uint64[8] in pinned memory, the report of a batch's kernels.
        reported: a view of `status`; faster for single words.
        offsets: int64[...] in pinned memory, where each row's ids begin.
        errors: uint32[...] in pinned memory, the first faulty byte of each row.
        ids: int32[...] in pinned memory, the ids of a batch; only if `is_small`.
        ids_place: the address of `ids`.
        device_job: the address of the Job on the device.
        resident: the vocabulary whose fields the Job holds.
        launcher: writes a batch into the Job, and launches small batches in one call.
        recordings: recorded launches; the caller chooses the keys.
        shelf: the shelf that it returns to, see `WorkspacePool`.
        clock: the clock of the batch; None for most batches, which are not timed.
    """

    def __init__(self, device: Device, capacity: Capacity) -> None:
        """Allocate both blocks.

        Raises:
            OutOfMemory: there is too little device memory or pinned memory.
        """
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
        self.job.view(np.uint8)[:] = 0  # Fields that the layout does not have stay null.
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

    def answer_in(self, post_processed: bool) -> None:
        """Choose the fields that contain the answer: ids with begin and end tokens, or without."""
        self.launcher.answer_in(post_processed)

    def reserve(self, field: str, num_bytes: int) -> None:
        """Allocate memory for a field that most batches do not need; it is kept from then on.

        Raises:
            OutOfMemory: there is too little device memory.
        """
        if num_bytes <= self.reserved.get(field, 0):
            return
        if self.reserved.pop(field, 0):
            self.device.free(self.fields[field])
        self.fields[field] = self.device.allocate(num_bytes)
        self.reserved[field], self.job[0][field] = num_bytes, self.fields[field]
        self.stream.copy_in(self.device_job, self.job.ctypes.data, self.job.nbytes)

    def close(self) -> None:
        """Free all memory."""
        self.recordings.clear()
        del self.launcher  # It holds views of the pinned memory.
        for field in self.reserved:
            self.device.free(self.fields[field])
        self.device.free(self.block)
        self.device.free_pinned(self.pinned)


def _host_sizes(n: int, rows: int) -> dict[str, int]:
    """Return the bytes of each field in pinned memory, for n bytes of text and for rows."""
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
    # 8 bytes a byte of text are enough for begin and end tokens: a row has at most MAX_TEMPLATE
    # of them and counts as BYTES_A_ROW bytes.
    return sizes | ({"ids": 8 * n} if n <= SMALL_BYTES else {})
