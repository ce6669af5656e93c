"""Reads and writes the shared memory that clients register for inputs and outputs.

A CUDA region is device memory of a client, opened with the handle that the client sent.

A system region is a POSIX shared-memory object of this machine. The host accesses it through its
file instead of a mapping: if the client truncates the object, the request is refused, whereas a
mapping would end this process with SIGBUS. Only a device uses a mapping, which is page-locked.
Regions belong to the clients that registered them: this module opens and closes them, but never
removes them. If a region is closed while a device uses it, the engine closes the memory afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import BadHandle, DeviceLost, find_lost_context
from service.core.errors import InvalidRequest, NotReady, UnknownRegion
from service.engines.base import DeviceMemory
from vocabularies.batch.shared_rows import SharedMemory

Allocate = Callable[[int], NDArray[np.uint8]]
"""Allocates host memory: an array uint8 of a number of bytes."""


def allocate(num_bytes: int) -> NDArray[np.uint8]:
    """Allocate host memory that belongs to no pool."""
    return np.empty(num_bytes, np.uint8)


@dataclass(slots=True, eq=False)
class SystemRegion:
    """A region in a POSIX shared-memory object.

    Attributes:
        name: the name of the region in requests.
        key: the name of the object in the operating system.
        offset, byte_size: the part of the object that is the region, in bytes.
        file: the descriptor of the object's file.
        memory: the region as mapped for a device; None if no device can use it.
        is_open: whether the region is still registered.
    """

    name: str
    key: str
    offset: int
    byte_size: int
    file: int
    memory: SharedMemory | None = None
    is_open: bool = True

    def read(self, offset: int, byte_size: int, memory: Allocate = allocate) -> NDArray[np.uint8]:
        """Read uint8[byte_size] from the region, beginning at the byte `offset`.

        Args:
            offset: the first byte.
            byte_size: the number of bytes.
            memory: allocates the array.

        Raises:
            InvalidRequest: the bytes are outside of the region, or the object was truncated.
            UnknownRegion: the region was unregistered.
        """
        check_open(self)
        check_bounds(self, offset, byte_size)
        data, size = memory(byte_size), 0
        while size < byte_size:
            num_read = os.preadv(self.file, [data.data[size:]], self.offset + offset + size)
            if not num_read:
                raise InvalidRequest(f"the region ends at byte {offset + size}", self.name)
            size += num_read
        return data

    def write(self, offset: int, data: NDArray[Any], max_bytes: int) -> None:
        """Write an array's bytes to the region, beginning at the byte `offset`.

        Raises:
            InvalidRequest: the array has more than `max_bytes` bytes, or does not fit the region;
                or the file system is full, as an object gets its memory when it is written.
        """
        check_bounds(self, offset, max_bytes)
        view, size = view_bytes(data, max_bytes, self.name).data, 0
        try:
            while size < len(view):
                size += os.pwritev(self.file, [view[size:]], self.offset + offset + size)
        except OSError as error:
            message = f"the region cannot be written: {error.strerror}"
            raise InvalidRequest(message, self.name) from error

    def close(self) -> None:
        """Close the memory and the file; the object remains."""
        if self.memory is not None:
            self.memory.close()
        os.close(self.file)


@dataclass(slots=True, eq=False)
class CudaRegion:
    """A region in a client's device memory.

    Attributes:
        name: the name of the region in requests.
        device_id: the client's number of the device.
        byte_size: the size that the client registered.
        memory: the region as mapped for the device.
        is_open: whether the region is still registered.
    """

    name: str
    device_id: int
    byte_size: int
    memory: DeviceMemory
    is_open: bool = True

    def read(self, offset: int, byte_size: int, memory: Allocate = allocate) -> NDArray[np.uint8]:
        """Read uint8[byte_size] from the region to host memory, beginning at the byte `offset`.

        Args:
            offset: the first byte.
            byte_size: the number of bytes.
            memory: allocates the array.

        Raises:
            InvalidRequest: the bytes are outside of the region.
            UnknownRegion: the region was unregistered.
            NotReady: the GPU that contains the region is lost.
        """
        check_open(self)
        check_bounds(self, offset, byte_size)
        data = memory(byte_size)
        with _lost_devices_refused(self):
            self.memory.read(offset, data)
        return data

    def write(self, offset: int, data: NDArray[Any], max_bytes: int) -> None:
        """Write an array's bytes to the region, beginning at the byte `offset`.

        Raises:
            InvalidRequest: the array has more than `max_bytes` bytes, or does not fit the region.
        """
        check_bounds(self, offset, max_bytes)
        with _lost_devices_refused(self):
            self.memory.write(offset, view_bytes(data, max_bytes, self.name))

    def close(self) -> None:
        """Close the memory; the client still owns it."""
        self.memory.close()


Region = SystemRegion | CudaRegion


@contextmanager
def _lost_devices_refused(region: CudaRegion) -> Iterator[None]:
    """Raise NotReady if the block finds that the region's GPU is lost.

    Raises:
        InvalidRequest: the client has freed the memory, which the next process of a lost GPU needs.
    """
    try:
        yield
    except BadHandle as error:
        raise InvalidRequest(f"the region cannot be opened again: {error}", region.name) from error
    except Exception as error:
        if isinstance(error, DeviceLost) or find_lost_context(error):
            raise NotReady("the GPU that has the region has failed", region.name) from error
        raise


def check_open(region: Region) -> None:
    """Raise UnknownRegion if a region was unregistered since it was found."""
    if not region.is_open:
        raise UnknownRegion("the region was unregistered during the request", region.name)


def check_bounds(region: Region, offset: int, byte_size: int) -> None:
    """Raise InvalidRequest if bytes are outside of a region."""
    if offset < 0 or byte_size < 0 or offset + byte_size > region.byte_size:
        message = f"bytes {offset} to {offset + byte_size} exceed the region of {region.byte_size}"
        raise InvalidRequest(message, region.name)


def view_bytes(data: NDArray[Any], max_bytes: int, where: str) -> NDArray[np.uint8]:
    """View an array as bytes; raise InvalidRequest if there are more than `max_bytes`."""
    values: NDArray[np.uint8] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    if len(values) > max_bytes:
        raise InvalidRequest(
            f"the output has {len(values)} bytes, and its region has room for {max_bytes}", where
        )
    return values
