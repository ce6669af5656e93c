"""Maps the memory of the parent in its GPU worker, and page-locks blocks of it.

Blocks for texts are page-locked when the parent requests it. Blocks for ids are lent by the parent
when the engine's pool of pinned memory requests them; the pool page-locks them.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory
from gpu.runtime.device import Device
from service.multiprocess.gpu_workers.connection import Connection
from service.multiprocess.gpu_workers.worker_process import TAKE
from service.multiprocess.link.frames import Message
from service.multiprocess.link.shared_memory import MIN_SHARED_BYTES
from vocabularies.batch.shared_rows import SharedMemory

logger = logging.getLogger(__name__)
Bytes = NDArray[np.uint8]


class ParentMemory:
    """The memory of the parent.

    Args:
        file: the descriptor of the memory.
    """

    def __init__(self, file: int) -> None:
        self._all = np.frombuffer(mmap.mmap(file, 0), np.uint8)
        self._address = int(self._all.ctypes.data)
        self._pinned: set[int] = set()  # The offsets of blocks for texts.
        self._has_failed = False
        self._freed: deque[int] = deque()  # Blocks for ids that the parent may have back.
        self._thread = threading.local()

    def connect_thread(self, connection: Connection) -> None:
        """Set the connection through which this thread requests blocks for ids."""
        self._thread.connection = connection

    def take(self, num_bytes: int) -> Bytes:
        """Borrow a block of the parent's memory for ids; it is released when nothing refers to it.

        Without a connection, or if the parent has no free memory, allocate memory of this process.
        """
        connection: Connection | None = getattr(self._thread, "connection", None)
        if connection is not None and num_bytes >= MIN_SHARED_BYTES:
            connection.send(Message(TAKE, {"num_bytes": num_bytes}))
            frame, _ = connection.receive()
            values = frame.message.values
            if (offset := values["offset"]) is not None:
                view = self._all[offset : offset + num_bytes]
                return np.asarray(_Block(view, values["block"], self._freed))
        return np.frombuffer(mmap.mmap(-1, num_bytes), np.uint8)

    def take_freed(self) -> list[int]:
        """Return the numbers of the blocks that were released since the last call."""
        return [self._freed.popleft() for _ in range(len(self._freed))]

    def pin(self, device: Device, offset: int, num_bytes: int) -> None:
        """Page-lock a block for texts; if that fails, its texts are copied instead."""
        try:
            device.pin(self._address + offset, num_bytes)
            self._pinned.add(offset)
        except OutOfMemory as error:
            if not self._has_failed:
                logger.warning("some texts are in pageable memory and take longer: %s", error)
            self._has_failed = True

    def unpin(self, device: Device, offset: int) -> None:
        """End the page lock of a block."""
        if offset in self._pinned:
            self._pinned.remove(offset)
            device.unpin(self._address + offset)

    def find_offset(self, array: NDArray[Any]) -> int | None:
        """Return the offset of a large array; None if it is elsewhere, or small."""
        if array.nbytes < MIN_SHARED_BYTES:
            return None
        offset = int(array.__array_interface__["data"][0]) - self._address
        return offset if 0 <= offset < len(self._all) else None

    def array(self, offset: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Make an array in the parent's memory; the parent keeps it allocated during the call."""
        return np.asarray(_Placed(self._all, self._address + offset, dtype, shape))


def array_in_region(
    region: SharedMemory, offset: int, dtype: str, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Make an array in a region of host memory; it keeps the region open."""
    return np.asarray(_Placed(region, region.address + offset, dtype, shape))


class _Block:
    """The base of an array in a block that the parent has lent; its finalizer releases it."""

    __slots__ = ("__array_interface__", "_freed", "_number")

    def __init__(self, view: Bytes, number: int, freed: deque[int]) -> None:
        self.__array_interface__ = view.__array_interface__
        self._number, self._freed = number, freed

    def __del__(self) -> None:
        self._freed.append(self._number)


class _Placed:
    """The base of a read-only array at an address; it keeps the memory."""

    __slots__ = ("__array_interface__", "_memory")

    def __init__(self, memory: object, address: int, dtype: str, shape: tuple[int, ...]) -> None:
        is_read_only = True
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype,
            "shape": tuple(shape),
            "data": (address, is_read_only),
        }
        self._memory = memory
