"""Stores the regions of shared memory that clients have registered, by name.

Threads open and close regions, since page-locking memory for a device would block the event loop.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gpu.errors import DeviceUnavailable, SharedTooSmall
from service.apis.oip.shared_memory import CudaRegion, Region, SystemRegion
from service.core.errors import (
    InvalidRequest,
    NameTaken,
    NotReady,
    RegionsOff,
    TooLarge,
    UnknownRegion,
)
from service.engines.base import DeviceMemory
from vocabularies.batch.shared_rows import SharedMemory

FOLDER = "/dev/shm"
HANDLE_BYTES = 64  # The size of a cudaIpcMemHandle_t.
KEY = re.compile(r"/?[A-Za-z0-9_.-]{1,250}")
AnyRegion = TypeVar("AnyRegion", SystemRegion, CudaRegion)


def _open_file(key: str, offset: int, byte_size: int) -> int:
    """Open the file of a POSIX shared-memory object; return its descriptor.

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
        message = f"bytes {offset} to {offset + byte_size} exceed the object, which has {size}"
        raise InvalidRequest(message, "byte_size")
    return file


def _close(region: Region) -> None:
    region.is_open = False
    region.close()


class RegionRegistry:
    """The registered regions of one service; names are unique among both kinds of regions.

    Args:
        is_enabled: whether clients may register regions.
        max_regions: the maximum number of regions.
        open_shared: opens device memory of another process; see `Engine.open_shared`.
        share_host: lets a device use a part of a file; see `Engine.share_host`.

    Attributes:
        system: the regions of system memory, by name.
        cuda: the regions of device memory, by name.
        is_closed: whether the service has stopped; no region can be added afterwards.
    """

    def __init__(
        self,
        is_enabled: bool,
        max_regions: int,
        open_shared: Callable[[bytes, int, int], DeviceMemory | None] = lambda *_: None,
        share_host: Callable[[int, int, int], SharedMemory | None] = lambda file, begin, size: None,
    ) -> None:
        self.is_enabled = is_enabled
        self.max_regions = max_regions
        self._open_shared = open_shared
        self._share_host = share_host
        self.system: dict[str, SystemRegion] = {}
        self.cuda: dict[str, CudaRegion] = {}
        self._opening: set[str] = set()  # Names of regions that are being opened.
        self.is_closed = False

    async def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a part of a POSIX shared-memory object as a region.

        Args:
            name: the name of the region in requests.
            key: the name of the object in the operating system.
            offset: the start of the part, in bytes.
            byte_size: the size of the part.

        Raises:
            ServiceError: there is no such object, it is too short, or the name is in use.
        """
        self._check_new(name)
        file = _open_file(key, offset, byte_size)

        def share() -> SystemRegion:
            try:
                memory = self._share_host(file, offset, byte_size)
            except BaseException as error:
                os.close(file)
                if isinstance(error, ValueError):  # The object was truncated since it was opened.
                    raise InvalidRequest(str(error), "byte_size") from error
                raise
            return SystemRegion(name, key, offset, byte_size, file, memory)

        await self._add(self.system, name, share)

    async def register_cuda(self, name: str, handle: bytes, device_id: int, byte_size: int) -> None:
        """Register a client's device memory as a region.

        Args:
            name: the name of the region in requests.
            handle: a cudaIpcMemHandle_t.
            device_id: the client's number of the device, which is tried first.
            byte_size: the size of the memory.

        Raises:
            ServiceError: there is no device, the handle is invalid, or the name is in use.
            NotReady: the process of the device may be restarting.
        """
        self._check_new(name)
        if byte_size < 1 or device_id < 0:
            raise InvalidRequest(
                f"{byte_size} bytes of device {device_id} cannot be registered", "byte_size"
            )
        if len(handle) != HANDLE_BYTES:
            message = f"has {len(handle)} bytes; a cudaIpcMemHandle_t has {HANDLE_BYTES}"
            raise InvalidRequest(message, "raw_handle")

        def open_handle() -> CudaRegion:
            try:
                memory = self._open_shared(handle, byte_size, device_id)
            except SharedTooSmall as error:
                raise InvalidRequest(str(error), "byte_size") from error
            except ValueError as error:
                raise InvalidRequest(str(error), "raw_handle") from error
            except DeviceUnavailable as error:
                raise NotReady(str(error), name) from error
            if memory is None:
                raise InvalidRequest("this server has no GPU, which device memory needs", name)
            return CudaRegion(name, device_id, byte_size, memory)

        await self._add(self.cuda, name, open_handle)

    def _add(
        self, regions: dict[str, AnyRegion], name: str, make: Callable[[], AnyRegion]
    ) -> Awaitable[None]:
        """Add a region that `make` creates in a thread; reserve its name immediately."""
        self._opening.add(name)

        async def add() -> None:
            try:
                region = await asyncio.to_thread(make)
            finally:
                self._opening.remove(name)
            if self.is_closed:
                _close(region)
                raise UnknownRegion("the service is stopping", name)
            regions[name] = region

        return asyncio.shield(add())  # The thread finishes even if the client disconnects.

    async def unregister_system(self, name: str = "") -> None:
        """Close the named region of system memory, if registered; without a name all of them."""
        await self._remove(self.system, name)

    async def unregister_cuda(self, name: str = "") -> None:
        """Close the named region of device memory, if registered; without a name all of them."""
        await self._remove(self.cuda, name)

    def system_status(self, name: str = "") -> list[SystemRegion]:
        """Return the named region of system memory, or all of them without a name.

        Raises:
            UnknownRegion: no region of system memory has this name.
        """
        return self._list(self.system, name)

    def cuda_status(self, name: str = "") -> list[CudaRegion]:
        """Return the named region of device memory, or all of them without a name.

        Raises:
            UnknownRegion: no region of device memory has this name.
        """
        return self._list(self.cuda, name)

    def _list(self, regions: dict[str, AnyRegion], name: str) -> list[AnyRegion]:
        self._check_enabled()
        if name and name not in regions:
            raise UnknownRegion(f"no region is registered under the name {name!r}", "name")
        return [regions[name]] if name else list(regions.values())

    async def _remove(self, regions: dict[str, AnyRegion], name: str) -> None:
        self._check_enabled()
        named = [name] if name else list(regions)
        removed = [regions.pop(each) for each in named if each in regions]
        for region in removed:
            region.is_open = False

        def close() -> None:
            for region in removed:
                region.close()

        await asyncio.shield(asyncio.to_thread(close))

    def find(self, name: str) -> Region:
        """Return the region with a name.

        Raises:
            UnknownRegion: no region has this name.
        """
        self._check_enabled()
        region = self.system.get(name) or self.cuda.get(name)
        if region is None:
            raise UnknownRegion(
                f"no region is registered under the name {name!r}", "shared_memory_region"
            )
        return region

    def close(self) -> None:
        """Close all regions, as the service stops."""
        self.is_closed = True
        for system_region in self.system.values():
            _close(system_region)
        for cuda_region in self.cuda.values():
            _close(cuda_region)
        self.system.clear()
        self.cuda.clear()

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise RegionsOff("shared memory is off; WARPTOK_SHARED_MEMORY=true turns it on")

    def _check_new(self, name: str) -> None:
        """Raise ServiceError if the name is in use, or there are too many regions."""
        self._check_enabled()
        if name in self.system or name in self.cuda or name in self._opening:
            raise NameTaken(f"the region {name!r} is registered already", "name")
        num_regions = len(self.system) + len(self.cuda) + len(self._opening)
        if num_regions >= self.max_regions:
            raise TooLarge(
                f"{num_regions} regions are registered; max_regions is {self.max_regions}", "name"
            )
