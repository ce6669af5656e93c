"""Reads and writes the shared memory that clients register for inputs and outputs.

A CUDA region is device memory of the client's, opened by the handle that it sent.

A system region is a POSIX shared-memory object of this machine. We read and write it through its
file and not through a mapping: a client that cuts it short then gets a refusal, where a mapping
would end this process with SIGBUS. Only a device goes through a mapping, which is page-locked.
Regions belong to whoever registered them; we open and close them and never remove them. What a
device is at work on when it is let go of, the engine closes behind that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InvalidRequest, UnknownRegion
from service.engines.base import DeviceMemory
from vocabularies.batch.shared_rows import SharedMemory

Memory = Callable[[int], NDArray[np.uint8]]


def ordinary(num_bytes: int) -> NDArray[np.uint8]:
    """Memory that nobody lends."""
    return np.empty(num_bytes, np.uint8)


@dataclass(slots=True, eq=False)
class SystemRegion:
    """A region in a POSIX shared-memory object.

    Attributes:
        name: what requests call it.
        key: what the operating system calls it.
        offset, byte_size: the part.
        file: its descriptor.
        memory: the part as a device finds it; None where no device does.
        is_open: nobody let go of it.
    """

    name: str
    key: str
    offset: int
    byte_size: int
    file: int
    memory: SharedMemory | None = None
    is_open: bool = True

    def read(self, offset: int, byte_size: int, memory: Memory = ordinary) -> NDArray[np.uint8]:
        """uint8[byte_size] from the region's `offset` on, in memory that is given.

        Raises:
            InvalidRequest: so much is not there.
        """
        check_open(self)
        check_bounds(self, offset, byte_size)
        data, size = memory(byte_size), 0
        while size < byte_size:
            got = os.preadv(self.file, [data.data[size:]], self.offset + offset + size)
            if not got:
                raise InvalidRequest(f"the region ends at byte {offset + size}", self.name)
            size += got
        return data

    def write(self, offset: int, data: NDArray[Any], room: int) -> None:
        """Put an array's bytes there.

        Raises:
            InvalidRequest: there is not so much room.
        """
        check_bounds(self, offset, room)
        view, size = bytes_that_fit(data, room, self.name).data, 0
        while size < len(view):
            size += os.pwritev(self.file, [view[size:]], self.offset + offset + size)

    def close(self) -> None:
        """Let go of it."""
        if self.memory is not None:
            self.memory.close()
        os.close(self.file)


@dataclass(slots=True, eq=False)
class CudaRegion:
    """A region in a client's device memory.

    Attributes:
        name: what requests call it.
        device_id: what the client calls the device.
        byte_size: as the client says.
        memory: the region as the device finds it.
        is_open: nobody let go of it.
    """

    name: str
    device_id: int
    byte_size: int
    memory: DeviceMemory
    is_open: bool = True

    def read(self, offset: int, byte_size: int, memory: Memory = ordinary) -> NDArray[np.uint8]:
        """uint8[byte_size] from the region's `offset` on, in memory of the host.

        Raises:
            InvalidRequest: so much is not there.
        """
        check_open(self)
        check_bounds(self, offset, byte_size)
        data = memory(byte_size)
        self.memory.read(offset, data)
        return data

    def write(self, offset: int, data: NDArray[Any], room: int) -> None:
        """Put an array's bytes there.

        Raises:
            InvalidRequest: there is not so much room.
        """
        check_bounds(self, offset, room)
        self.memory.write(offset, bytes_that_fit(data, room, self.name))

    def close(self) -> None:
        """Let go of it."""
        self.memory.close()


Region = SystemRegion | CudaRegion


def check_open(region: Region) -> None:
    """Raise UnknownRegion if a region was unregistered since it was found."""
    if not region.is_open:
        raise UnknownRegion("the region was let go of meanwhile", region.name)


def check_bounds(region: Region, offset: int, byte_size: int) -> None:
    """Raise InvalidRequest if bytes are outside of a region."""
    if offset < 0 or byte_size < 0 or offset + byte_size > region.byte_size:
        message = f"bytes {offset} to {offset + byte_size} of a region of {region.byte_size}"
        raise InvalidRequest(message, region.name)


def bytes_that_fit(data: NDArray[Any], room: int, where: str) -> NDArray[np.uint8]:
    """View an array as bytes; raise InvalidRequest if they do not fit."""
    values: NDArray[np.uint8] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    if len(values) > room:
        raise InvalidRequest(f"{len(values)} bytes do not fit into {room}", where)
    return values
