"""Workspaces in a few sizes, lent to one call each, together within a cap."""

from __future__ import annotations

import functools
from contextlib import suppress
from threading import Condition

from gpu.device import Device, OutOfMemory
from gpu.layout import BYTES_A_ROW, SMALL_BYTES, Capacity, device_bytes
from gpu.loan import Loan
from gpu.memory import Workspace

__all__ = ["Workspaces"]

LARGE_BYTES = 1 << 24
MAX_BYTES = 1 << 29  # Records count misses, of 2 bytes or more, in 28 bits.


class Workspaces:
    """Workspaces in a few sizes, lent to one call each, together within a cap.

    Where the cap or the memory leaves no room for another, those that nobody uses make room.

    Args:
        device: whose memory.
        cap_bytes: device memory for all of them.
        each: how many of one size there are at most.
    """

    SIZES = (1 << 13, 1 << 17, 1 << 20, 1 << 22, 1 << 23, 1 << 24, 1 << 26, 1 << 28)

    def __init__(self, device: Device, cap_bytes: int, each: int = 4) -> None:
        self.device, self.cap_bytes, self.each = device, cap_bytes, each
        self.used_bytes = self.num_allocations = 0
        self._free: dict[Capacity, list[Workspace]] = {}  # The last used at the end.
        self._made: dict[Capacity, int] = {}
        self._changed = Condition()

    def chunk_sizes(self, chunk_bytes: int, layout: str = "text") -> list[int]:
        """Bytes of chunks to try in turn: the largest of which two fit first, the smallest last.

        Two large ones leave half of the cap, so that calls in turn do not drop each other's.
        """
        sizes = [size for size in self.SIZES if size < chunk_bytes]
        fitting = [
            size
            for size in (*sizes, chunk_bytes)
            if (4 if size > LARGE_BYTES else 2) * device_bytes(self._capacity(size, 0, layout))
            <= self.cap_bytes
        ]
        return fitting[::-1] or [self.SIZES[0]]

    def is_small(self, num_bytes: int, num_rows: int) -> bool:
        """Whether a batch gets a workspace with room for its answer in pinned memory."""
        return max(num_bytes, num_rows * BYTES_A_ROW) <= SMALL_BYTES

    def _capacity(self, num_bytes: int, num_rows: int, layout: str = "text") -> Capacity:
        """The smallest size for a batch; rows beyond the usual number count as bytes."""
        wanted = max(num_bytes, num_rows * BYTES_A_ROW)
        size = next((size for size in self.SIZES if size >= wanted), wanted)
        if size > MAX_BYTES:
            raise OutOfMemory(f"{num_bytes} bytes in one batch; at most {MAX_BYTES} are possible")
        return _capacity_of(size, size // BYTES_A_ROW, layout)

    def lend(self, num_bytes: int, num_rows: int, layout: str = "text") -> Loan[Workspace]:
        """A workspace for a batch and a `with` block; waits while all of its size are in use.

        Raises:
            OutOfMemory: no workspace of this size fits under the cap or into memory.
        """
        return Loan(self.take(num_bytes, num_rows, layout), self.give)

    def take(self, num_bytes: int, num_rows: int, layout: str = "text") -> Workspace:
        """As `lend`, until it is given back."""
        workspace = self._take(self._capacity(num_bytes, num_rows, layout), wait=True)
        assert workspace is not None
        return workspace

    def try_take(self, num_bytes: int, num_rows: int, layout: str = "text") -> Workspace | None:
        """As `take`, but None where all of the size are in use."""
        return self._take(self._capacity(num_bytes, num_rows, layout), wait=False)

    def give(self, workspace: Workspace) -> None:
        """Give a workspace back; nothing of it may still be at work."""
        with self._changed:
            free = self._free.pop(workspace.capacity, [])
            self._free[workspace.capacity] = [*free, workspace]
            self._changed.notify_all()

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
                    message = f"no room for a batch of {capacity.num_bytes} bytes under the cap"
                    raise OutOfMemory(message)
                if not wait:
                    return None
                self._changed.wait()

    def _make(self, capacity: Capacity) -> Workspace | None:
        """A new one, or None where there is no room even without those that nobody uses."""
        size = device_bytes(capacity)
        while True:
            if self.used_bytes + size <= self.cap_bytes:
                with suppress(OutOfMemory):
                    workspace = Workspace(self.device, capacity)
                    self.used_bytes += size
                    self.num_allocations += 1
                    self._made[capacity] = self._made.get(capacity, 0) + 1
                    return workspace
            if size > self.cap_bytes or not self._drop_one():
                return None

    def _drop_one(self) -> bool:
        """Give up a workspace that nobody uses; False where there is none."""
        for capacity, workspaces in self._free.items():
            if workspaces:
                workspaces.pop(0).close()
                self.used_bytes -= device_bytes(capacity)
                self._made[capacity] -= 1
                return True
        return False

    def close(self) -> None:
        """Give all free workspaces back."""
        with self._changed:
            while self._drop_one():
                pass


@functools.lru_cache
def _capacity_of(num_bytes: int, num_rows: int, layout: str) -> Capacity:
    """One of the few that there are, made once."""
    return Capacity(num_bytes, num_rows, layout)
