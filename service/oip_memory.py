"""Shared memory that clients name for their inputs and outputs, as Triton's clients do.

A CUDA region is device memory of the client's, opened by the handle that it sent.

A system region is a POSIX shared-memory object of this machine. We read and write it through its
file and not through a mapping: a client that cuts it short then gets a refusal, where a mapping
would end this process with SIGBUS. Only a device goes through a mapping, which is page-locked.
Regions belong to whoever registered them; we open and close them and never remove them. What a
device is at work on when it is let go of, the engine closes behind that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.engines import DeviceMemory
from service.errors import InvalidRequest, NameTaken, RegionsOff, TooLarge, UnknownRegion
from vocabularies.shared_rows import SharedMemory

__all__ = ["CudaRegion", "Region", "Regions", "SystemRegion"]

FOLDER = "/dev/shm"
HANDLE_BYTES = 64  # Of cudaIpcMemHandle_t.
Memory = Callable[[int], NDArray[np.uint8]]
KEY = re.compile(r"/?[A-Za-z0-9_.-]{1,250}")


def ordinary(num_bytes: int) -> NDArray[np.uint8]:
    """Memory that nobody lends."""
    return np.empty(num_bytes, np.uint8)


@dataclass(slots=True, eq=False)
class SystemRegion:
    """A part of a POSIX shared-memory object.

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
    """Device memory of a client's.

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


def _let_go(region: Region) -> None:
    region.is_open = False
    region.close()


def check_open(region: Region) -> None:
    """Raises UnknownRegion where a region was let go of since it was found."""
    if not region.is_open:
        raise UnknownRegion("the region was let go of meanwhile", region.name)


def check_bounds(region: Region, offset: int, byte_size: int) -> None:
    """Raises InvalidRequest where bytes are asked for that a region has not."""
    if offset < 0 or byte_size < 0 or offset + byte_size > region.byte_size:
        message = f"bytes {offset} to {offset + byte_size} of a region of {region.byte_size}"
        raise InvalidRequest(message, region.name)


def bytes_that_fit(data: NDArray[Any], room: int, where: str) -> NDArray[np.uint8]:
    """An array as bytes; raises InvalidRequest where there are more than there is room for."""
    values: NDArray[np.uint8] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    if len(values) > room:
        raise InvalidRequest(f"{len(values)} bytes do not fit into {room}", where)
    return values


class Regions:
    """The registered regions of one service; a name means one of either kind.

    Args:
        is_on: whether clients may name any.
        max_regions: how many there may be.
        open_shared: opens device memory of another process, see `Engine.open_shared`.
        share_host: shows a part of a file to a device, see `Engine.share_host`.
    """

    def __init__(
        self,
        is_on: bool,
        max_regions: int,
        open_shared: Callable[[bytes, int], DeviceMemory | None] = lambda handle, num_bytes: None,
        share_host: Callable[[int, int, int], SharedMemory | None] = lambda file, begin, size: None,
    ) -> None:
        self.is_on, self.max_regions = is_on, max_regions
        self._open_shared, self._share_host = open_shared, share_host
        self.system: dict[str, SystemRegion] = {}
        self.cuda: dict[str, CudaRegion] = {}

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open a POSIX shared-memory object under a name of the client's.

        Raises:
            ServiceError: it is not there, too short, or the name is taken.
        """
        self._check_new(name)
        if not KEY.fullmatch(key):
            raise InvalidRequest("is no name of a POSIX shared-memory object", "key")
        path = os.path.join(FOLDER, key.removeprefix("/"))
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidRequest(f"cannot be opened: {error.strerror}", "key") from error
        size = os.fstat(file).st_size
        if offset < 0 or byte_size < 1 or offset + byte_size > size:
            os.close(file)
            message = f"bytes {offset} to {offset + byte_size} of {size} that are there"
            raise InvalidRequest(message, "byte_size")
        memory = self._share_host(file, offset, byte_size)
        self.system[name] = SystemRegion(name, key, offset, byte_size, file, memory)

    def register_cuda(self, name: str, handle: bytes, device_id: int, byte_size: int) -> None:
        """Open device memory of a client's under a name of its own.

        Raises:
            ServiceError: there is no device, the handle is none, or the name is taken.
        """
        self._check_new(name)
        if byte_size < 1 or device_id < 0:
            raise InvalidRequest(f"{byte_size} bytes of device {device_id}", "byte_size")
        if len(handle) != HANDLE_BYTES:
            message = f"{len(handle)} bytes; a cudaIpcMemHandle_t has {HANDLE_BYTES}"
            raise InvalidRequest(message, "raw_handle")
        try:
            memory = self._open_shared(handle, byte_size)
        except ValueError as error:
            raise InvalidRequest(str(error), "raw_handle") from error
        if memory is None:
            raise InvalidRequest("this server has no GPU that could open device memory", name)
        self.cuda[name] = CudaRegion(name, device_id, byte_size, memory)

    def unregister_cuda(self, name: str = "") -> None:
        """Let go of a region; of all without a name. One that is not there is no fault."""
        self._check_on()
        for each in [name] if name else list(self.cuda):
            region = self.cuda.pop(each, None)
            if region is not None:
                _let_go(region)

    def cuda_status(self, name: str = "") -> list[CudaRegion]:
        """One region, or all."""
        self._check_on()
        if name and name not in self.cuda:
            raise UnknownRegion(f"no region has the name {name!r}", "shared_memory_region")
        return [self.cuda[name]] if name else list(self.cuda.values())

    def unregister_system(self, name: str = "") -> None:
        """Let go of a region; of all without a name. One that is not there is no fault."""
        self._check_on()
        for each in [name] if name else list(self.system):
            region = self.system.pop(each, None)
            if region is not None:
                _let_go(region)

    def find(self, name: str) -> Region:
        """The region of a name.

        Raises:
            UnknownRegion: there is none.
        """
        self._check_on()
        region = self.system.get(name) or self.cuda.get(name)
        if region is None:
            raise UnknownRegion(f"no region has the name {name!r}", "shared_memory_region")
        return region

    def status(self, name: str = "") -> list[SystemRegion]:
        """One region, or all."""
        self._check_on()
        if name and name not in self.system:
            raise UnknownRegion(f"no region has the name {name!r}", "shared_memory_region")
        return [self.system[name]] if name else list(self.system.values())

    def close(self) -> None:
        """Let go of all."""
        regions: list[Region] = [*self.system.values(), *self.cuda.values()]
        for region in regions:
            _let_go(region)
        self.system.clear()
        self.cuda.clear()

    def _check_on(self) -> None:
        if not self.is_on:
            raise RegionsOff("shared memory is off; WARPTOK_SHARED_MEMORY=true turns it on")

    def _check_new(self, name: str) -> None:
        self._check_on()
        if name in self.system or name in self.cuda:
            raise NameTaken(f"the region {name!r} is registered already", "name")
        num_regions = len(self.system) + len(self.cuda)
        if num_regions >= self.max_regions:
            raise TooLarge(f"{num_regions} regions; max_regions is {self.max_regions}", "name")
