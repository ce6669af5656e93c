"""Reads inputs from shared memory and writes outputs to it, as their parameters say."""

from __future__ import annotations

import math
from typing import Any

from service.apis.oip.region_registry import RegionRegistry
from service.apis.oip.shared_memory import check_bounds, ordinary
from service.apis.oip.state import OipState
from service.apis.oip.tensors import NOTHING, Place, Tensor, read_tensor
from service.core.errors import InvalidRequest, TooLarge
from service.operations.context import Service

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"
TEXT = "text", "UINT8"  # The name and datatype of the input that a device can read.
OFFSETS = "offsets"  # The input that only the host reads.


def _slice(name: str, parameters: dict[str, Any]) -> tuple[str, int, int]:
    region, offset, size = parameters[REGION], parameters.get(OFFSET, 0), parameters.get(SIZE)
    if not isinstance(region, str) or not isinstance(offset, int) or not isinstance(size, int):
        message = f"needs {REGION}, {SIZE} and perhaps {OFFSET}"
        raise InvalidRequest(message, name)
    return region, offset, size


def find_place(regions: RegionRegistry, name: str, parameters: dict[str, Any]) -> Place | None:
    """Find the place of a tensor in a region; None if no device can use it.

    Raises:
        ServiceError: the region is not there or too small.
    """
    if REGION not in parameters:
        return None
    named, offset, size = _slice(name, parameters)
    region = regions.find(named)
    check_bounds(region, offset, size)
    return None if region.memory is None else Place(region, region.memory, offset, size)


def input_from_region(
    oip: OipState, name: str, datatype: str, shape: tuple[int, ...], parameters: dict[str, Any]
) -> Tensor:
    """An input: its bytes in memory that the engine lends, or, of texts, where a device finds them.

    Raises:
        ServiceError: the region is not there or too small, or the input too large.
    """
    region, offset, size = _slice(name, parameters)
    max_bytes = oip.service.settings.max_body_bytes
    if not 0 <= size <= max_bytes:
        raise TooLarge(f"{size} bytes; max_body_bytes is {max_bytes}", name)
    place = find_place(oip.regions, name, parameters)
    if place is not None and (name, datatype) == TEXT and math.prod(shape) == size:
        return Tensor(name, datatype, shape, NOTHING, place=place)
    memory = ordinary if name == OFFSETS else oip.service.engine.host_memory
    data = oip.regions.find(region).read(offset, size, memory)
    return read_tensor(name, datatype, shape, data)


def fetch(service: Service, tensor: Tensor) -> None:
    """Read a tensor that was left in shared memory for a device."""
    place = tensor.place
    if place is not None:
        memory = service.engine.host_memory
        tensor.data = place.region.read(place.offset, place.byte_size, memory)
        tensor.place = None


def output_to_region(
    regions: RegionRegistry, tensor: Tensor, parameters: dict[str, Any]
) -> dict[str, Any]:
    """Write an output unless it is there; returns the parameters that say where it is.

    Raises:
        ServiceError: the region is not there or too small.
    """
    region, offset, size = _slice(tensor.name, parameters)
    if tensor.place is not None:
        return {REGION: region, OFFSET: offset, SIZE: tensor.place.byte_size}
    regions.find(region).write(offset, tensor.data, size)
    return {REGION: region, OFFSET: offset, SIZE: tensor.data.nbytes}
