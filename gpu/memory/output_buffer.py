"""Describes the caller's memory for ids: device memory, pinned or pageable host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.host.arrays import address_of
from gpu.runtime.device import Device

Bytes = NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class OutputBuffer:
    """Memory for ids.

    Attributes:
        address: the address of the first byte.
        num_bytes: its size.
        item_bytes: the bytes of an id.
        host: uint8[num_bytes], the same memory; None if it is device memory.
        is_pageable: whether it is host memory that is not pinned, so that kernels cannot write it.
    """

    address: int
    num_bytes: int
    item_bytes: int
    host: Bytes | None = None
    is_pageable: bool = False

    @classmethod
    def of(cls, array: Any, device: Device, types: tuple[str, ...]) -> OutputBuffer:
        """Describe the memory of an array.

        Args:
            array: an array of the device, for whose stream this waits, or of the host (by DLPack).
            device: the device.
            types: the dtypes that are allowed, as `dtype.str`.

        Raises:
            ValueError: the array is not flat, contiguous, writable and of one of the types, or is
                on another device.
        """
        is_numpy = type(array) is np.ndarray  # Looking for a missing attribute takes longer.
        shown = None if is_numpy else getattr(array, "__cuda_array_interface__", None)
        if shown is None:
            return cls._of_host(array, device, types)
        address, is_readonly = shown["data"]
        shape, kind = shown["shape"], shown["typestr"]
        item = np.dtype(kind).itemsize
        is_flat = len(shape) == 1 and shown.get("strides") in (None, (item,))
        if kind not in types or is_readonly or not is_flat:
            raise _refused(types)
        if shape[0] and not device.has_memory(int(address)):
            raise ValueError("out is in the memory of another device")
        if shown.get("stream") is not None:
            device.wait_for(shown["stream"])
        return cls(int(address), shape[0] * item, item)

    @classmethod
    def _of_host(cls, array: Any, device: Device, types: tuple[str, ...]) -> OutputBuffer:
        is_foreign = not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__")
        host: NDArray[Any] = np.from_dlpack(array) if is_foreign else np.asarray(array)
        flags = host.flags
        is_flat = host.ndim == 1 and flags.c_contiguous
        if host.dtype.str not in types or not is_flat or not flags.writeable:
            raise _refused(types)
        data = host.view(np.uint8)
        is_pageable = not device.is_pinned(data)
        return cls(address_of(data), len(data), host.itemsize, data, is_pageable)

    @property
    def on_device(self) -> bool:
        """Whether it is device memory."""
        return self.host is None

    def part(self, begin: int, num_bytes: int) -> Bytes:
        """Return uint8[num_bytes], a view of the host memory from byte `begin` on."""
        assert self.host is not None
        return self.host[begin : begin + num_bytes]

    def check_room(self, num_bytes: int) -> None:
        """Check that `num_bytes` bytes of ids fit.

        Raises:
            ValueError: they do not fit.
        """
        if num_bytes > self.num_bytes:
            raise ValueError(f"out is too small: {self.num_bytes} bytes")


def _refused(types: tuple[str, ...]) -> ValueError:
    named = " or ".join(np.dtype(each).name for each in types)
    return ValueError(f"out must be a writable, contiguous, one-dimensional array of {named}")
