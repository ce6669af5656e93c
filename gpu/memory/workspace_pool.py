"""Workspaces in a few sizes, lent to one call each, together within a cap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from threading import Condition, Lock

from gpu.errors import OutOfMemory
from gpu.memory.workspace import Workspace
from gpu.memory.workspace_layout import (
    BYTES_A_ROW,
    SMALL_BYTES,
    Capacity,
    capacity_for,
    device_bytes,
)
from gpu.runtime.device import Device

LARGE_BYTES = 1 << 24
MAX_BYTES = 1 << 29  # Records count misses, of 2 bytes or more, in 28 bits.


@dataclass(slots=True, eq=False)
class _Shelf:
    """The workspaces of one size and layout.

    Attributes:
        size: bytes of the largest batch that may take one.
        num_made: lent and free ones.
        free: those that nobody uses.
        given: when one was given back last, by a clock that counts.
    """

    size: int
    num_made: int = 0
    free: list[Workspace] = field(default_factory=list)
    given: int = 0


class WorkspacePool:
    """Workspaces in a few sizes, lent to one call each, together within a cap.

    Where the cap or the memory leaves no room for another, those that nobody uses make room.

    Args:
        device: whose memory.
        cap_bytes: device memory for all of them.
        each: how many of one size there are at most.
    """

    SIZES = (1 << 13, 1 << 17, 1 << 20, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26, 1 << 28)

    def __init__(self, device: Device, cap_bytes: int, each: int = 4) -> None:
        self.device, self.cap_bytes, self.each = device, cap_bytes, each
        self.used_bytes = self.num_allocations = 0
        self._shelves: dict[tuple[int, str], _Shelf] = {}  # By bytes and layout.
        self._chunk_sizes: dict[tuple[int, str], list[int]] = {}  # By bytes and layout, too.
        self._clock = count(1)
        self._num_waiting = 0  # Waking nobody takes as long as the rest of giving back.
        self._lock = Lock()
        self._changed = Condition(self._lock)

    def chunk_sizes(self, chunk_bytes: int, layout: str = "text") -> list[int]:
        """Bytes of chunks to try in turn: the largest of which two fit first, the smallest last.

        Two large ones leave half of the cap, so that calls in turn do not drop each other's.
        """
        known = self._chunk_sizes.get((chunk_bytes, layout))
        if known is None:
            sizes = [size for size in self.SIZES if size < chunk_bytes]
            fitting = [size for size in (*sizes, chunk_bytes) if self._fit(size, layout)]
            known = self._chunk_sizes[chunk_bytes, layout] = fitting[::-1] or [self.SIZES[0]]
        return known

    def _fit(self, chunk_bytes: int, layout: str) -> bool:
        largest = capacity_for(chunk_bytes, chunk_bytes // BYTES_A_ROW, chunk_bytes, layout)
        return (4 if chunk_bytes > LARGE_BYTES else 2) * device_bytes(largest) <= self.cap_bytes

    def is_small(self, num_bytes: int, num_rows: int) -> bool:
        """Whether a batch gets a workspace with room for its answer in pinned memory."""
        return num_bytes <= SMALL_BYTES and num_rows * BYTES_A_ROW <= SMALL_BYTES

    def _shelf(self, num_bytes: int, num_rows: int, layout: str) -> _Shelf:
        """Of the smallest size for a batch; rows beyond the usual number count as bytes."""
        wanted = max(num_bytes, num_rows * BYTES_A_ROW)
        if wanted > self.SIZES[-1]:  # As it will be when it is given back.
            size = capacity_for(num_bytes, num_rows, wanted, layout).num_bytes
        else:
            size = self.SIZES[bisect_left(self.SIZES, wanted)]
        shelf = self._shelves.get((size, layout))
        if shelf is not None:
            return shelf
        if size > MAX_BYTES:
            raise OutOfMemory(f"{num_bytes} bytes in one batch; at most {MAX_BYTES} are possible")
        return self._shelves.setdefault((size, layout), _Shelf(size))

    @contextmanager
    def lend(self, num_bytes: int, num_rows: int, layout: str = "text") -> Iterator[Workspace]:
        """A workspace for a batch and a `with` block; waits while all of its size are in use.

        Raises:
            OutOfMemory: no workspace of this size fits under the cap or into memory.
        """
        workspace = self.take(num_bytes, num_rows, layout)
        try:
            yield workspace
        finally:
            self.give(workspace)

    def take(self, num_bytes: int, num_rows: int, layout: str = "text") -> Workspace:
        """As `lend`, until it is given back."""
        workspace = self._take(num_bytes, num_rows, layout, wait=True)
        assert workspace is not None
        return workspace

    def try_take(self, num_bytes: int, num_rows: int, layout: str = "text") -> Workspace | None:
        """As `take`, but None where all of the size are in use."""
        return self._take(num_bytes, num_rows, layout, wait=False)

    def give(self, workspace: Workspace) -> None:
        """Give a workspace back; nothing of it may still be at work."""
        shelf: _Shelf = workspace.shelf
        with self._lock:
            shelf.free.append(workspace)
            shelf.given = next(self._clock)
            if self._num_waiting:
                self._changed.notify_all()

    def _take(self, num_bytes: int, num_rows: int, layout: str, *, wait: bool) -> Workspace | None:
        shelf = self._shelf(num_bytes, num_rows, layout)
        with self._lock:
            while True:
                for place in range(len(shelf.free) - 1, -1, -1):
                    capacity = shelf.free[place].capacity
                    if num_bytes <= capacity.num_bytes and num_rows <= capacity.num_rows:
                        return shelf.free.pop(place)
                if shelf.free:  # A larger one takes the place of one that is too small.
                    small = self._drop(shelf)
                    num_bytes = max(num_bytes, small.num_bytes)
                    num_rows = max(num_rows, small.num_rows)
                if shelf.num_made < self.each:
                    made = self._make(shelf, capacity_for(num_bytes, num_rows, shelf.size, layout))
                    if made is not None:
                        return made
                if not shelf.num_made:
                    raise OutOfMemory(f"no room for a batch of {shelf.size} bytes under the cap")
                if not wait:
                    return None
                self._num_waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._num_waiting -= 1

    def _make(self, shelf: _Shelf, capacity: Capacity) -> Workspace | None:
        """A new one, or None where there is no room even without those that nobody uses."""
        size = device_bytes(capacity)
        while True:
            if self.used_bytes + size <= self.cap_bytes:
                with suppress(OutOfMemory):
                    workspace = Workspace(self.device, capacity)
                    workspace.shelf = shelf
                    self.used_bytes += size
                    self.num_allocations += 1
                    shelf.num_made += 1
                    return workspace
            if size > self.cap_bytes or not self._drop_one():
                return None

    def _drop_one(self) -> bool:
        """Give up a workspace that nobody uses, of the size that was longest ago; False: none."""
        shelves = [shelf for shelf in list(self._shelves.values()) if shelf.free]
        if not shelves:
            return False
        self._drop(min(shelves, key=lambda shelf: shelf.given))
        return True

    def _drop(self, shelf: _Shelf) -> Capacity:
        """Give up the first one of those that nobody uses; what it held."""
        workspace = shelf.free.pop(0)
        workspace.close()
        self.used_bytes -= device_bytes(workspace.capacity)
        shelf.num_made -= 1
        return workspace.capacity

    def close(self) -> None:
        """Give all free workspaces back."""
        with self._lock:
            while self._drop_one():
                pass
