"""Shared memory that clients name for their inputs and outputs, as Triton's clients do.

A system region is a POSIX shared-memory object of this machine. It is read and written through its
file and not through a mapping: a client that cuts it short then gets a refusal, where a mapping
would end this process with SIGBUS. Regions belong to whoever registered them; we open and close
them and never remove them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidRequest, NameTaken, RegionsOff, TooLarge, UnknownRegion

__all__ = ["Regions", "SystemRegion"]

FOLDER = "/dev/shm"
KEY = re.compile(r"/?[A-Za-z0-9_.-]{1,250}")


@dataclass(slots=True, eq=False)
class SystemRegion:
    """A part of a POSIX shared-memory object.

    Attributes:
        name: what requests call it.
        key: what the operating system calls it.
        offset, byte_size: the part.
    """

    name: str
    key: str
    offset: int
    byte_size: int
    file: int

    def read(self, offset: int, byte_size: int) -> NDArray[np.uint8]:
        """uint8[byte_size] from the region's `offset` on.

        Raises:
            InvalidRequest: so much is not there.
        """
        self._check(offset, byte_size)
        data, size = np.empty(byte_size, np.uint8), 0
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
        self._check(offset, room)
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        if len(view) > room:
            raise InvalidRequest(f"{len(view)} bytes do not fit into {room}", self.name)
        size = 0
        while size < len(view):
            size += os.pwritev(self.file, [view[size:]], self.offset + offset + size)

    def _check(self, offset: int, byte_size: int) -> None:
        if offset < 0 or byte_size < 0 or offset + byte_size > self.byte_size:
            message = f"bytes {offset} to {offset + byte_size} of a region of {self.byte_size}"
            raise InvalidRequest(message, self.name)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.file)


class Regions:
    """The registered regions of one service.

    Args:
        is_on: whether clients may name any.
        max_regions: how many there may be.
    """

    def __init__(self, is_on: bool, max_regions: int) -> None:
        self.is_on, self.max_regions = is_on, max_regions
        self.system: dict[str, SystemRegion] = {}

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
        self.system[name] = SystemRegion(name, key, offset, byte_size, file)

    def unregister_system(self, name: str = "") -> None:
        """Let go of a region; of all without a name. One that is not there is no fault."""
        self._check_on()
        for each in [name] if name else list(self.system):
            region = self.system.pop(each, None)
            if region is not None:
                region.close()

    def find(self, name: str) -> SystemRegion:
        """The region of a name.

        Raises:
            UnknownRegion: there is none.
        """
        self._check_on()
        region = self.system.get(name)
        if region is None:
            raise UnknownRegion(f"no region has the name {name!r}", "shared_memory_region")
        return region

    def status(self, name: str = "") -> list[SystemRegion]:
        """One region, or all."""
        self._check_on()
        return [self.find(name)] if name else list(self.system.values())

    def close(self) -> None:
        """Let go of all."""
        for region in self.system.values():
            region.close()
        self.system.clear()

    def _check_on(self) -> None:
        if not self.is_on:
            raise RegionsOff("shared memory is off; WARPTOK_SHARED_MEMORY=true turns it on")

    def _check_new(self, name: str) -> None:
        self._check_on()
        if name in self.system:
            raise NameTaken(f"the region {name!r} is registered already", "name")
        if len(self.system) >= self.max_regions:
            raise TooLarge(f"{len(self.system)} regions; max_regions is {self.max_regions}", "name")
