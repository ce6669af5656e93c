"""Keeps the regions of shared memory that clients have registered, by name.

Threads open and close regions, as page-locking memory for a device would block the event loop.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from service.apis.oip.shared_memory import CudaRegion, Region, SystemRegion
from service.core.errors import InvalidRequest, NameTaken, RegionsOff, TooLarge, UnknownRegion
from service.engines.base import DeviceMemory
from vocabularies.batch.shared_rows import SharedMemory

FOLDER = "/dev/shm"
HANDLE_BYTES = 64  # The size of a cudaIpcMemHandle_t.
KEY = re.compile(r"/?[A-Za-z0-9_.-]{1,250}")
R = TypeVar("R", SystemRegion, CudaRegion)


def _opened(key: str, offset: int, byte_size: int) -> int:
    """Open the file of a POSIX shared-memory object, and check its size.

    Raises:
        InvalidRequest: there is no such object, or it is too short.
    """
    if not KEY.fullmatch(key):
        raise InvalidRequest("is not a valid name of a POSIX shared-memory object", "key")
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
    return file


def _let_go(region: Region) -> None:
    region.is_open = False
    region.close()


class RegionRegistry:
    """The registered regions of one service; a name means one of either kind.

    Args:
        is_on: whether clients may register regions.
        max_regions: the most regions at a time.
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
        self.is_on = is_on
        self.max_regions = max_regions
        self._open_shared = open_shared
        self._share_host = share_host
        self.system: dict[str, SystemRegion] = {}
        self.cuda: dict[str, CudaRegion] = {}
        self._coming: set[str] = set()
        self.is_closed = False

    async def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open a POSIX shared-memory object under a name of the client's.

        Raises:
            ServiceError: it is not there, too short, or the name is taken.
        """
        self._check_new(name)
        file = _opened(key, offset, byte_size)

        def share() -> SystemRegion:
            try:
                memory = self._share_host(file, offset, byte_size)
            except BaseException as error:
                os.close(file)
                if isinstance(error, ValueError):  # It was cut short since it was opened.
                    raise InvalidRequest(str(error), "byte_size") from error
                raise
            return SystemRegion(name, key, offset, byte_size, file, memory)

        await self._add(self.system, name, share)

    async def register_cuda(self, name: str, handle: bytes, device_id: int, byte_size: int) -> None:
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

        def open_handle() -> CudaRegion:
            try:
                memory = self._open_shared(handle, byte_size)
            except ValueError as error:
                raise InvalidRequest(str(error), "raw_handle") from error
            if memory is None:
                raise InvalidRequest("this server has no GPU that could open device memory", name)
            return CudaRegion(name, device_id, byte_size, memory)

        await self._add(self.cuda, name, open_handle)

    def _add(self, regions: dict[str, R], name: str, make: Callable[[], R]) -> Awaitable[None]:
        """Add a region that a thread makes, whose name is taken from now on."""
        self._coming.add(name)

        async def add() -> None:
            try:
                region = await asyncio.to_thread(make)
            finally:
                self._coming.remove(name)
            if self.is_closed:
                _let_go(region)
                raise UnknownRegion("the service has stopped meanwhile", name)
            regions[name] = region

        return asyncio.shield(add())  # What has begun is finished, whoever has left.

    async def unregister_cuda(self, name: str = "") -> None:
        """Let go of a region; of all without a name. One that is not there is no fault."""
        await self._remove(self.cuda, name)

    def cuda_status(self, name: str = "") -> list[CudaRegion]:
        """One region, or all."""
        self._check_on()
        if name and name not in self.cuda:
            raise UnknownRegion(f"no region has the name {name!r}", "shared_memory_region")
        return [self.cuda[name]] if name else list(self.cuda.values())

    async def unregister_system(self, name: str = "") -> None:
        """Let go of a region; of all without a name. One that is not there is no fault."""
        await self._remove(self.system, name)

    async def _remove(self, regions: dict[str, R], name: str) -> None:
        self._check_on()
        named = [name] if name else list(regions)
        removed = [regions.pop(each) for each in named if each in regions]
        for region in removed:
            region.is_open = False

        def close() -> None:
            for region in removed:
                region.close()

        await asyncio.shield(asyncio.to_thread(close))

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
        self.is_closed = True
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
        if name in self.system or name in self.cuda or name in self._coming:
            raise NameTaken(f"the region {name!r} is registered already", "name")
        num_regions = len(self.system) + len(self.cuda) + len(self._coming)
        if num_regions >= self.max_regions:
            raise TooLarge(f"{num_regions} regions; max_regions is {self.max_regions}", "name")
