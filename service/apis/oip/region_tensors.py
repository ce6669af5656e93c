"""Reads inputs from regions of shared memory, and writes outputs to them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from service.apis.oip.region_registry import RegionRegistry
from service.apis.oip.shared_memory import allocate, check_bounds
from service.apis.oip.state import OipState
from service.apis.oip.tensors import EMPTY, DeviceSlice, Tensor, read_tensor
from service.core.errors import InvalidRequest, TooLarge
from service.operations.context import Service

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"
OFFSETS = "offsets"  # Only the host reads this input.


class _RegionSlice(NamedTuple):
    """The region, offset and size in bytes of a tensor, from its parameters."""

    region: str
    offset: int
    byte_size: int


def _read_slice(name: str, parameters: dict[str, Any]) -> _RegionSlice:
    region, offset, size = parameters[REGION], parameters.get(OFFSET, 0), parameters.get(SIZE)
    if not isinstance(region, str) or type(offset) is not int or type(size) is not int:
        message = f"must have the parameters {REGION} and {SIZE}, and may have {OFFSET}"
        raise InvalidRequest(message, name)
    return _RegionSlice(region, offset, size)


def find_device_slice(
    regions: RegionRegistry, name: str, parameters: dict[str, Any]
) -> DeviceSlice | None:
    """Return the slice of a region that contains a tensor, for use by a device.

    The result is None if the parameters name no region, or if no device can use the region.

    Raises:
        ServiceError: the region is not registered, or too small.
    """
    if REGION not in parameters:
        return None
    part = _read_slice(name, parameters)
    region = regions.find(part.region)
    check_bounds(region, part.offset, part.byte_size)
    if region.memory is None:
        return None
    return DeviceSlice(region, region.memory, part.offset, part.byte_size)


def input_from_region(
    oip: OipState, name: str, datatype: str, shape: tuple[int, ...], parameters: dict[str, Any]
) -> Tensor:
    """Read an input from a region; do not read UINT8 texts that a device can read.

    Raises:
        ServiceError: the region is not registered or too small, or the input is too large.
    """
    part = _read_slice(name, parameters)
    max_bytes = oip.service.settings.max_body_bytes
    if not 0 <= part.byte_size <= max_bytes:
        raise TooLarge(f"has {part.byte_size} bytes; max_body_bytes is {max_bytes}", name)
    device_slice = find_device_slice(oip.regions, name, parameters)
    is_text = name == "text" and datatype == "UINT8" and math.prod(shape) == part.byte_size
    if device_slice is not None and is_text:
        return Tensor(name, datatype, shape, EMPTY, device_slice=device_slice)
    memory = allocate if name == OFFSETS else oip.service.engine.host_memory
    data = oip.regions.find(part.region).read(part.offset, part.byte_size, memory)
    return read_tensor(name, datatype, shape, data)


def fetch(service: Service, tensor: Tensor) -> None:
    """Read the data of a tensor from shared memory, unless they have been read."""
    part = tensor.device_slice
    if part is not None:
        memory = service.engine.host_memory
        tensor.data = part.region.read(part.offset, part.byte_size, memory)
        tensor.device_slice = None


def output_to_region(
    regions: RegionRegistry, tensor: Tensor, parameters: dict[str, Any]
) -> dict[str, Any]:
    """Write an output to its region, unless a device has written it.

    Returns:
        The parameters of the output in the answer.

    Raises:
        ServiceError: the region is not registered, or too small.
    """
    part = _read_slice(tensor.name, parameters)
    if tensor.device_slice is not None:
        num_bytes = tensor.device_slice.byte_size
    else:
        regions.find(part.region).write(part.offset, tensor.data, part.byte_size)
        num_bytes = tensor.data.nbytes
    return {REGION: part.region, OFFSET: part.offset, SIZE: num_bytes}
