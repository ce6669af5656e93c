"""Converts tensors of the Open Inference Protocol to arrays, and back.

In binary form, an element of the datatype BYTES consists of its length, as 4 little-endian bytes,
and its bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.apis.oip.shared_memory import Region
from service.core.errors import InvalidRequest
from vocabularies.batch.batch import Batch
from vocabularies.batch.shared_rows import SharedMemory

BYTES = "BYTES"
DATATYPES: dict[str, type[np.integer[Any]]] = {
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
}
DATATYPE_NAMES = {np.dtype(dtype): name for name, dtype in DATATYPES.items()}
EMPTY: NDArray[Any] = np.empty(0, np.uint8)
LENGTH_BYTES = 4  # The size of the length before a BYTES element.
MAX_DIMENSIONS = 8


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSlice:
    """A slice of a region that a device can use, within the bounds of the region.

    Attributes:
        region: the region.
        memory: the region's memory as mapped for the device.
        offset: the start of the slice in the region, in bytes.
        byte_size: the size of the slice.
    """

    region: Region
    memory: SharedMemory
    offset: int
    byte_size: int


@dataclass(slots=True, eq=False)
class Tensor:
    """A named tensor.

    Attributes:
        datatype: BYTES or one of DATATYPES.
        data: the elements as a flat array; for BYTES uint8[...], each element after its length.
        device_slice: the shared memory that contains the tensor for a device; if set, `data` is
            empty.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: NDArray[Any]
    device_slice: DeviceSlice | None = None

    @property
    def num_elements(self) -> int:
        """The number of elements: the product of the shape."""
        return math.prod(self.shape)


Outputs = dict[str, Callable[[], Tensor]]
"""The outputs of a model by name; each function creates its tensor if a request names it."""


def make_tensor(name: str, array: NDArray[Any]) -> Tensor:
    """Create a tensor from an array of integers."""
    return Tensor(
        name, DATATYPE_NAMES[array.dtype], array.shape, np.ascontiguousarray(array).reshape(-1)
    )


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Check the number of dimensions of a tensor and their sizes.

    Raises:
        InvalidRequest: there are too many dimensions, or a size is not possible.
    """
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidRequest(f"the shape has more than {MAX_DIMENSIONS} dimensions", name)
    if any(not 0 <= size < 2**31 for size in shape):
        raise InvalidRequest("a size in the shape is negative or above 2147483647", name)


def read_tensor(
    name: str, datatype: str, shape: tuple[int, ...], data: NDArray[np.uint8] | list[Any]
) -> Tensor:
    """Create a tensor from its bytes, uint8[...], or from a nested or flat list of JSON values.

    Raises:
        InvalidRequest: the datatype is not supported, or the number of elements does not fit the
            shape.
    """
    if datatype != BYTES and datatype not in DATATYPES:
        known = ", ".join((BYTES, *DATATYPES))
        raise InvalidRequest(
            f"the datatype {datatype} is not supported; supported are {known}", name
        )
    check_shape(name, shape)
    tensor = Tensor(name, datatype, shape, np.zeros(0, np.uint8))
    if isinstance(data, list):
        tensor.data = _from_json(name, datatype, data)
        if datatype == BYTES:
            return tensor
    elif datatype == BYTES:
        tensor.data = data
        return tensor
    else:
        dtype = DATATYPES[datatype]
        if len(data) % np.dtype(dtype).itemsize:
            raise InvalidRequest(
                f"{len(data)} bytes are not a multiple of the size of {datatype}", name
            )
        tensor.data = data.view(dtype)
    if len(tensor.data) != tensor.num_elements:
        message = f"has {len(tensor.data)} elements, not the {tensor.num_elements} of {list(shape)}"
        raise InvalidRequest(message, name)
    return tensor


def _from_json(name: str, datatype: str, values: list[Any]) -> NDArray[Any]:
    flat = _flatten(values)
    if datatype == BYTES:
        if not all(isinstance(value, str) for value in flat):
            raise InvalidRequest("the data of BYTES must be strings", name)
        return make_bytes_tensor(name, Batch(flat)).data
    if not {*map(type, flat)} <= {int, bool}:
        raise InvalidRequest(f"the data of {datatype} must be whole numbers", name)
    try:
        return np.array(flat, DATATYPES[datatype])
    except OverflowError as error:
        raise InvalidRequest(f"a number does not fit in {datatype}", name) from error


def _flatten(values: list[Any]) -> list[Any]:
    while values and all(isinstance(value, list) for value in values):
        values = [element for value in values for element in value]
    return values


def read_rows(tensor: Tensor) -> Batch:
    """Read the elements of a BYTES tensor as a batch of texts.

    Raises:
        InvalidRequest: the lengths do not fit the bytes or the shape.
    """
    data, count = tensor.data, tensor.num_elements
    view = data.data
    lengths, places, place = np.zeros(count, np.int64), np.zeros(count, np.int64), 0
    for row in range(count):
        if place + LENGTH_BYTES > len(data):
            message = f"element {row} is missing; the shape means {count} elements"
            raise InvalidRequest(message, tensor.name)
        lengths[row], places[row] = struct.unpack_from("<I", view, place)[0], place
        place += LENGTH_BYTES + int(lengths[row])
    if place != len(data):
        message = f"{count} elements with their lengths are {place} bytes, not {len(data)}"
        raise InvalidRequest(message, tensor.name)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if count == 1:
        return Batch(data=data[LENGTH_BYTES:], offsets=offsets)
    is_text = np.ones(len(data), np.bool_)
    for i in range(LENGTH_BYTES):
        is_text[places + i] = False
    return Batch(data=data[is_text], offsets=offsets)


def make_bytes_tensor(name: str, rows: Batch) -> Tensor:
    """Create a BYTES tensor of one dimension from a batch of texts."""
    lengths, count = np.diff(rows.offsets), len(rows)
    places = rows.offsets[:-1] + LENGTH_BYTES * np.arange(count)
    data = np.empty(len(rows.data) + LENGTH_BYTES * count, np.uint8)
    is_text = np.ones(len(data), np.bool_)
    prefixes = lengths.astype(np.uint32).view(np.uint8).reshape(count, LENGTH_BYTES)
    for i in range(LENGTH_BYTES):
        data[places + i] = prefixes[:, i]
        is_text[places + i] = False
    data[is_text] = rows.data
    return Tensor(name, BYTES, (count,), data)
