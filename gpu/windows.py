"""Cuts the ids of characters and k-mers into windows, on the device.

A kernel cuts the encoded ids and their positions as `vocabularies.sequences.windows.make_windows`
does. The windows remain in device memory.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpu.batch.kernel_choice import fallback_kernels, first_kernels, refused_rows
from gpu.batch.resources import Resources
from gpu.batch.row_options import RowOptions, row_errors, row_options
from gpu.batch.transfer import fetch, launch, pack, status_of
from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.kernels.catalog import num_blocks
from gpu.kernels.job import STATUS
from gpu.memory.workspace import Workspace
from gpu.runtime.device import Device
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch, EncodeOptions, RowError
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.windows import Windows, named_fields

Int64s = NDArray[np.int64]
Item = TypeVar("Item", bound=np.generic)
ALIGNMENT = 256
MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array of the device, which CuPy, torch and others can use without a copy.

    Several arrays share one block of memory, which is freed when all of them, and all arrays made
    from them, are garbage-collected.

    Attributes:
        address: the address of the first item.
        shape: the shape.
        dtype: the dtype of an item.
        owner: the block of memory.

    Example: torch.as_tensor(array, device="cuda"); torch.from_dlpack(array); cupy.asarray(array).
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: _Block

    @classmethod
    def empty(cls, device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """Allocate an array without initializing its items; raises OutOfMemory."""
        block = _Block(device, int(np.prod(shape)) * dtype.itemsize)
        return cls(block.address, shape, dtype, block)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The interface, version 3; the kernels that wrote the array are done."""
        place = self.address, False
        return {"shape": self.shape, "typestr": self.dtype.str, "data": place, "version": 3}

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule, as the array API standard says."""
        return self.owner.device.array(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind and the number of the device, as the standard counts them."""
        kind, number = self.owner.device.array(self).__dlpack_device__()
        return int(kind), int(number)

    def to_host(self) -> NDArray[Any]:
        """Copy the array to a NumPy array."""
        array = np.empty(self.shape, self.dtype)
        stream = self.owner.device.stream()
        stream.copy_out(array.ctypes.data, self.address, array.nbytes)
        stream.synchronize()
        return array


class _Block:
    """Device memory that is freed when the last reference to it is gone."""

    def __init__(self, device: Device, num_bytes: int) -> None:
        self.device, self.address = device, device.allocate(max(1, num_bytes))
        weakref.finalize(self, device.free, self.address)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWindows:
    """W windows of C columns on the device; see `vocabularies.sequences.windows.Windows`.

    Attributes:
        input_ids, attention_mask, position_ids, channel, starts: as in `Windows`.
        rows: int64[B + 1] in host memory, the first window of each row; a refused row has none.
        errors: the errors of the refused rows.
    """

    input_ids: DeviceArray
    attention_mask: DeviceArray
    position_ids: DeviceArray
    channel: DeviceArray | None
    starts: DeviceArray
    rows: Int64s
    errors: dict[int, RowError]

    def fields(self, channel_name: str = "channel") -> dict[str, DeviceArray]:
        """Return the arrays by the names of a model's arguments, as `Windows.fields` does."""
        return named_fields(self, channel_name)

    def to_host(self) -> Windows:
        """Copy all arrays to NumPy arrays."""
        return Windows(
            self.input_ids.to_host(),
            self.attention_mask.to_host(),
            self.position_ids.to_host(),
            None if self.channel is None else self.channel.to_host(),
            self.starts.to_host(),
        )


def encode_windows(
    engine: GpuEngine,
    vocabulary: Vocabulary,
    batch: Batch,
    *,
    window: int,
    stride: int,
    pad_id: int,
    prefix: Sequence[int] = (),
    channel: ArrayLike | None = None,
) -> DeviceWindows:
    """Encode a batch and cut each row into windows, row after row.

    Args:
        engine: the engine.
        vocabulary: a vocabulary of characters or k-mers.
        batch: the rows with their options. Windows of circular rows wrap. The positions of a
            reverse complement's ids are those in the original row. Begin and end tokens are not
            added, and no row may be truncated.
        window: the number of tokens of a window, without the prefix.
        stride: the number of tokens from the begin of one window to the begin of the next.
        pad_id: the id of the padding.
        prefix: the ids in front of every window.
        channel: N values, one for each byte of the batch, which are converted to float32.

    Raises:
        TypeError: window or stride is not an integer.
        ValueError: window or stride is below 1, an id below 0, a row has a max_length, or the
            channel has another length.
        NotCovered: the vocabulary is of another family, or a character may split a k-mer.
        OutOfMemory: the batch or its windows do not fit into memory.
    """
    window, stride = operator.index(window), operator.index(stride)
    values = None if channel is None else np.asarray(channel, np.float32)
    _check(batch, window, stride, (*prefix, pad_id), values)
    resources = engine.resources
    with resources.residents.using(vocabulary) as resident:
        if not resident.family.plain:
            raise NotCovered("only characters and k-mers have windows")
        size = len(batch.data), len(batch)
        with resources.workspaces.lend(*size, resident.family.layout) as workspace:
            counts, errors = _encode(resources, workspace, resident, vocabulary, batch)
            rows, columns = offsets_from_lengths(-(-counts // stride)), len(prefix) + window
            job = workspace.job[0]
            job["window_length"], job["window_stride"], job["window_pad"] = window, stride, pad_id
            job["num_window_prefix"] = len(prefix)
            _send(workspace, "window_rows", rows)
            _send(workspace, "window_prefix", np.asarray(prefix, np.int32))
            job["channel"] = 0
            if values is not None:
                _send(workspace, "channel", values)
            made = _allocate(engine.device, workspace, rows, columns, errors)
            _cut(workspace, int(rows[-1]) * columns, resources.processors)
            return made


def _check(
    batch: Batch,
    window: int,
    stride: int,
    ids: Sequence[int],
    values: NDArray[np.float32] | None,
) -> None:
    for name, value in (("window", window), ("stride", stride)):
        if not 1 <= value <= MOST:
            raise ValueError(f"{name} is {value}; it must be 1 to {MOST}")
    for token_id in ids:
        if not 0 <= token_id <= MOST:
            raise ValueError(f"{token_id} is not an id of a window; ids are 0 to {MOST}")
    if values is not None and values.shape != batch.data.shape:
        raise ValueError(f"values of the shape {values.shape} for {len(batch.data)} bytes")
    options = batch.options
    each = [options] if isinstance(options, EncodeOptions) else options
    if any(option.max_length is not None for option in each):
        raise ValueError("max_length is not possible for rows that are cut into windows")


def _encode(
    resources: Resources,
    workspace: Workspace,
    resident: Resident,
    vocabulary: Vocabulary,
    batch: Batch,
) -> tuple[Int64s, dict[int, RowError]]:
    """Encode into the workspace; return the number of ids of each row, int64[B], and the errors."""
    options = row_options(vocabulary, batch, resident.family)
    pack(workspace, resident, batch, options, resources.processors, resources.staging)
    _launch_content(workspace, resident, batch, options, resources.processors)
    errors = row_errors(vocabulary, batch, options, refused_rows(workspace, len(batch)))
    counts = np.diff(fetch(workspace, "id_offsets", np.int64, len(batch) + 1))
    counts[list(errors)] = 0
    return counts, errors


def _launch_content(
    workspace: Workspace, resident: Resident, batch: Batch, options: RowOptions, processors: int
) -> None:
    """Launch the kernels for the ids, and for their positions if these need a kernel."""
    validate = not (batch.has_texts or resident.family.takes_bytes)
    launch(workspace, first_kernels(workspace, resident, augmented=options.augmented), processors)
    fallback = int(status_of(workspace)[STATUS["FALLBACK"]])
    if fallback:
        others = fallback_kernels(workspace, resident, fallback, validate=validate, with_spans=True)
        launch(workspace, others, processors)
        status_of(workspace)


def _cut(workspace: Workspace, cells: int, processors: int) -> None:
    """Launch the kernel that writes `cells` cells of windows, and wait for it."""
    stream = workspace.stream
    stream.copy_in(workspace.device_job, workspace.job.ctypes.data, workspace.job.nbytes)
    blocks = num_blocks("cut_windows", cells, processors)
    stream.launch("cut_windows", blocks, workspace.device_job)
    stream.synchronize()


def _send(workspace: Workspace, field: str, array: NDArray[Item]) -> None:
    """Copy an array to its field on the device."""
    array = np.ascontiguousarray(array)
    workspace.reserve(field, max(1, array.nbytes))
    workspace.job[0][field] = workspace.fields[field]
    workspace.stream.copy_in(workspace.fields[field], array.ctypes.data, array.nbytes)
    workspace.stream.synchronize()


def _allocate(
    device: Device, workspace: Workspace, rows: Int64s, columns: int, errors: dict[int, RowError]
) -> DeviceWindows:
    """Allocate the arrays of the windows and write their addresses into the Job."""
    windows, job = int(rows[-1]), workspace.job[0]
    shape = windows, columns
    specs: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
        "window_ids": (shape, np.int32),
        "window_mask": (shape, np.int8),
        "window_positions": (shape, np.int64),
        "window_starts": ((windows,), np.int64),
    }
    if job["channel"]:
        specs["window_values"] = shape, np.float32
    places, size = {}, 0
    for name, (dimensions, kind) in specs.items():
        places[name] = size
        items = int(np.prod(dimensions)) + 4  # The kernel writes groups of four items.
        size += -(-items * np.dtype(kind).itemsize // ALIGNMENT) * ALIGNMENT
    block = _Block(device, size)
    arrays = {}
    for name, (dimensions, kind) in specs.items():
        address = block.address + places[name]
        job[name] = address
        arrays[name] = DeviceArray(address, dimensions, np.dtype(kind), block)
    return DeviceWindows(
        arrays["window_ids"],
        arrays["window_mask"],
        arrays["window_positions"],
        arrays.get("window_values"),
        arrays["window_starts"],
        rows,
        errors,
    )
