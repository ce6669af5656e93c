"""A pool of workspaces in several size classes, within a cap of device memory."""

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
MAX_BYTES = 1 << 29  # Records number misses, each of 2 bytes or more, by 28 bits.


@dataclass(slots=True, eq=False)
class _Shelf:
    """The workspaces of one size class and layout.

    Attributes:
        size: bytes of the largest batch of the class.
        num_made: the number of workspaces, lent or free.
        free: the free ones.
        last_given: the time when one was last given back, counted in returns.
    """

    size: int
    num_made: int = 0
    free: list[Workspace] = field(default_factory=list)
    last_given: int = 0


class WorkspacePool:
    """Workspaces in several size classes, each lent to one call at a time.

    If a new workspace would exceed the cap or the memory, free workspaces are closed.

    Args:
        device: the device.
        cap_bytes: the largest total device memory of all workspaces, in bytes.
        each: the largest number of workspaces of a size class.
    """

    SIZES = (1 << 13, 1 << 17, 1 << 20, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26, 1 << 28)

    def __init__(self, device: Device, cap_bytes: int, each: int = 4) -> None:
        self.device, self.cap_bytes, self.each = device, cap_bytes, each
        self.used_bytes = self.num_allocations = 0
        self._shelves: dict[tuple[int, str], _Shelf] = {}  # By bytes and layout.
        self._chunk_sizes: dict[tuple[int, str], list[int]] = {}  # By bytes and layout, too.
        self._clock = count(1)
        self._num_waiting = 0  # A notification takes as long as the rest of `give`.
        self._lock = Lock()
        self._changed = Condition(self._lock)

    def chunk_sizes(self, chunk_bytes: int, layout: str = "text") -> list[int]:
        """Return the sizes of chunks to try, in bytes, the largest first.

        Two chunks of the size fit under the cap; two large ones take at most half of it, so that
        alternating calls do not close each other's workspaces.
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
        """Return whether the workspace of a batch has pinned memory for the answer."""
        return num_bytes <= SMALL_BYTES and num_rows * BYTES_A_ROW <= SMALL_BYTES

    def _shelf(self, num_bytes: int, num_rows: int, layout: str) -> _Shelf:
        """Return the shelf of the smallest size class for a batch."""
        needed = max(num_bytes, num_rows * BYTES_A_ROW)
        if needed > self.SIZES[-1]:  # A class of its own.
            size = capacity_for(num_bytes, num_rows, needed, layout).num_bytes
        else:
            size = self.SIZES[bisect_left(self.SIZES, needed)]
        shelf = self._shelves.get((size, layout))
        if shelf is not None:
            return shelf
        if size > MAX_BYTES:
            raise OutOfMemory(f"a batch needs {num_bytes} bytes; at most {MAX_BYTES} are possible")
        return self._shelves.setdefault((size, layout), _Shelf(size))

    @contextmanager
    def lend(self, num_bytes: int, num_rows: int, layout: str = "text") -> Iterator[Workspace]:
        """Lend a workspace during a `with` block; wait while all of its size class are in use.

        Raises:
            OutOfMemory: no workspace of this size fits under the cap or into memory.
        """
        workspace = self.take(num_bytes, num_rows, layout)
        try:
            yield workspace
        finally:
            self.give(workspace)

    def take(self, num_bytes: int, num_rows: int, layout: str = "text") -> Workspace:
        """Lend a workspace as `lend` does, until `give`."""
        workspace = self._take(num_bytes, num_rows, layout, wait=True)
        assert workspace is not None
        return workspace

    def try_take(self, num_bytes: int, num_rows: int, layout: str = "text") -> Workspace | None:
        """Lend a workspace as `take` does, or return None if all of its class are in use."""
        return self._take(num_bytes, num_rows, layout, wait=False)

    def give(self, workspace: Workspace) -> None:
        """Take a workspace back; all work on its stream must be done."""
        shelf: _Shelf = workspace.shelf
        with self._lock:
            shelf.free.append(workspace)
            shelf.last_given = next(self._clock)
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
                if shelf.free:  # A larger one replaces a free one that is too small.
                    small = self._drop(shelf)
                    num_bytes = max(num_bytes, small.num_bytes)
                    num_rows = max(num_rows, small.num_rows)
                if shelf.num_made < self.each:
                    made = self._make(shelf, capacity_for(num_bytes, num_rows, shelf.size, layout))
                    if made is not None:
                        return made
                if not shelf.num_made:
                    raise OutOfMemory(f"a batch of {shelf.size} bytes exceeds the memory limit")
                if not wait:
                    return None
                self._num_waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._num_waiting -= 1

    def _make(self, shelf: _Shelf, capacity: Capacity) -> Workspace | None:
        """Make a workspace; None if there is no room even after all free ones are closed."""
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
        """Close a free workspace of the least recently used class; return whether there was one."""
        shelves = [shelf for shelf in list(self._shelves.values()) if shelf.free]
        if not shelves:
            return False
        self._drop(min(shelves, key=lambda shelf: shelf.last_given))
        return True

    def _drop(self, shelf: _Shelf) -> Capacity:
        """Close the first free workspace of a shelf; return its capacity."""
        workspace = shelf.free.pop(0)
        workspace.close()
        self.used_bytes -= device_bytes(workspace.capacity)
        shelf.num_made -= 1
        return workspace.capacity

    def close(self) -> None:
        """Close all free workspaces."""
        with self._lock:
            while self._drop_one():
                pass
