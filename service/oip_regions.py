"""Inputs that lie in shared memory, and outputs that go there: what a tensor's parameters say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidRequest, TooLarge
from service.oip_memory import Regions
from service.oip_tensors import Tensor
from service.state import Service

__all__ = ["REGION", "input_from_region", "output_to_region"]

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"


def _slice(name: str, parameters: dict[str, Any]) -> tuple[str, int, int]:
    region, offset, size = parameters[REGION], parameters.get(OFFSET, 0), parameters.get(SIZE)
    if not isinstance(region, str) or not isinstance(offset, int) or not isinstance(size, int):
        message = f"needs {REGION}, {SIZE} and perhaps {OFFSET}"
        raise InvalidRequest(message, name)
    return region, offset, size


def input_from_region(service: Service, name: str, parameters: dict[str, Any]) -> NDArray[np.uint8]:
    """The bytes of an input, in memory that the engine lends.

    Raises:
        ServiceError: the region is not there or too small, or the input too large.
    """
    region, offset, size = _slice(name, parameters)
    max_bytes = service.settings.max_body_bytes
    if not 0 <= size <= max_bytes:
        raise TooLarge(f"{size} bytes; max_body_bytes is {max_bytes}", name)
    return service.regions.find(region).read(offset, size, service.engine.host_memory)


def output_to_region(
    regions: Regions, tensor: Tensor, parameters: dict[str, Any]
) -> dict[str, Any]:
    """Write an output; returns the parameters that say where it is.

    Raises:
        ServiceError: the region is not there or too small.
    """
    region, offset, size = _slice(tensor.name, parameters)
    regions.find(region).write(offset, tensor.data, size)
    return {REGION: region, OFFSET: offset, SIZE: tensor.data.nbytes}
