"""Fused kernels: they run all stages of a small batch in one launch, from and to pinned memory.

This module chooses the fused kernel of a batch. For a batch that needs only ids, the host makes one
call of C++ (host/native/fast_launch.cpp). All other small batches go through `call.SmallCall`, and
so does a batch whose kernel could not finish it in that call.

The stages take only some microseconds (cuda/text/fused/stages.cuh, cuda/dna/parts/part.cuh), so the
time of the host matters. Nothing is allocated, and only the fields of the Job that differ between
batches are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.batch.resources import Resources
from gpu.batch.row_options import WITHOUT_TEMPLATE, RowOptions
from gpu.batch.transfer import ROW_BYTES, TAKE_IN_BYTES, set_fields
from gpu.errors import OutOfMemory
from gpu.host.arrays import address_of
from gpu.host.copy_pool import Copy, CopyPool
from gpu.host.fast_launch import COPIED, IN_PLACE, MORE_TO_DO, STAGED
from gpu.kernels.catalog import num_blocks
from gpu.kernels.families import Family
from gpu.kernels.job import STATUS, constant
from gpu.memory.output_buffer import OutputBuffer
from gpu.memory.workspace import Workspace
from gpu.memory.workspace_layout import SMALL_BYTES
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch, Encoded

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
Ids = NDArray[Any]
_FALLBACK = STATUS["FALLBACK"]
ONE_BLOCK_BYTES, CLUSTER_BYTES, GRID_BYTES = 1 << 12, 1 << 17, SMALL_BYTES
"""The most text that a fused kernel of one block, a cluster or a grid encodes."""
FALLBACK_RUNS, FALLBACK_PIECES = constant("FALLBACK_RUNS"), constant("FALLBACK_PIECES")
GOES_ON_FROM = {FALLBACK_RUNS: "pretokenize", FALLBACK_PIECES: "windows"}
"""The kernel from which on single launches go on where a grid stops, by FALLBACK_*."""
FIXED_BLOCKS = {kernel: num_blocks(kernel, 1, 1) for kernel in ("encode_block", "encode_cluster")}
"""The fused kernels with a fixed number of blocks, one block or a cluster, and that number."""
CAN_FALL_BACK = frozenset(
    (*FIXED_BLOCKS, "encode_dna_parts", "encode_dna_parts_copied", "encode_grid")
)
"""The fused kernels that may need fallback kernels to finish a batch."""
ALIGNMENT = 16  # Of text that a kernel reads in place.
PARTS_SKIPS = 15  # Batches that skip the kernel of DNA parts after it could not finish one.


@dataclass(frozen=True, slots=True)
class HostText:
    """The text of a small batch in pinned memory.

    Attributes:
        address: its address; 0 if the text is being copied to the device.
        copy: the copy that is still writing it; None if it is complete.
    """

    address: int
    copy: Copy | None = None


def size_of(num_bytes: int, num_rows: int) -> int:
    """Return the size of a batch: the bytes of its text, or ROW_BYTES a row if that is more."""
    return max(num_bytes, ROW_BYTES * num_rows)


def fused_kernel(family: Family, size: int) -> str:
    """Return the fused kernel of a family for a batch of up to GRID_BYTES; "" if there is none."""
    if not family.fused:
        return family.parts
    one_block, cluster, grid = family.fused
    if size <= ONE_BLOCK_BYTES:
        return one_block
    return cluster if size <= CLUSTER_BYTES else grid


def kernel_for(resources: Resources, resident: Resident, size: int) -> str:
    """Return the fused kernel for a batch of the given size; "" if there is none."""
    if not resident.is_fused or size > resources.fused_bytes:
        return ""
    return fused_kernel(resident.family, size)


def is_for_one_call(kernel: str, batch: Batch, options: RowOptions) -> bool:
    """Return whether one call of C++ may encode a batch: its rows need only ids."""
    return kernel in FIXED_BLOCKS and (options.is_default or batch.options == WITHOUT_TEMPLATE)


def blocks_of(kernel: str, size: int, processors: int) -> int:
    """Return the number of blocks of a fused launch."""
    return FIXED_BLOCKS.get(kernel) or num_blocks(kernel, size, processors)


def staged_text(workspace: Workspace, batch: Batch) -> HostText:
    """Copy the text into the workspace's pinned memory, where a block or cluster reads it."""
    data = batch.data
    workspace.text[: len(data)] = data
    return HostText(workspace.text_place)


def grid_text(
    workspace: Workspace, batch: Batch, staging: CopyPool, *, in_place: bool = False
) -> HostText:
    """Copy the text to the memory from which a grid reads it.

    With `in_place`, pinned text of any size is read where it is: the kernel computes while it
    reads.
    """
    data = batch.data
    place, is_pinned = address_of(data), workspace.device.is_pinned(data)
    if is_pinned and place % ALIGNMENT == 0 and (in_place or len(data) <= TAKE_IN_BYTES):
        return HostText(place)
    if len(data) <= CLUSTER_BYTES:
        return staged_text(workspace, batch)
    if is_pinned and len(data) > TAKE_IN_BYTES:
        workspace.stream.copy_in(workspace.fields["text"], place, len(data))
        return HostText(0)
    return HostText(workspace.text_place, staging.start(workspace.text, data))


@dataclass(frozen=True, slots=True)
class _Launch:
    """A fused launch.

    Attributes:
        kernel: the name of the kernel.
        source: where the kernel reads the text: STAGED, IN_PLACE or COPIED.
        size: the size of the batch, see `size_of`.
    """

    kernel: str
    source: int
    size: int


def encode_ids(
    resources: Resources, digest: str, data: Bytes, offsets: Int64s
) -> tuple[Ids, Int64s] | str | None:
    """Try to encode as `GpuEngine.encode_ids` does, by one call of C++.

    Returns:
        The ids and offsets; or the name of a kernel as `encode` returns it; or None if one
        call of C++ does not suffice and nothing was launched.
    """
    if not are_arrays(data, offsets):
        return None
    size = size_of(len(data), len(offsets) - 1)
    if size > CLUSTER_BYTES:
        return None
    resident = resources.residents.take(digest)
    if resident is None:
        return None
    try:
        kernel = kernel_for(resources, resident, size)
        if kernel not in FIXED_BLOCKS:
            return None
        return encode(resources, resident, kernel, data, offsets)
    finally:
        resources.residents.give(resident)


def encode_batch(
    resources: Resources,
    resident: Resident,
    kernel: str,
    batch: Batch,
    options: RowOptions,
    validate: bool,
) -> Encoded | str:
    """Encode a batch for which `is_for_one_call` is true; or return a kernel as `encode` does."""
    answer = encode(
        resources,
        resident,
        kernel,
        batch.data,
        batch.offsets,
        post_processed=options.post_processed,
        validate=validate,
        id_dtype=batch.id_dtype,
    )
    if isinstance(answer, str):
        return answer
    ids, offsets = answer
    return Encoded(ids, offsets, engine="gpu")


def encode(
    resources: Resources,
    resident: Resident,
    kernel: str,
    data: Bytes,
    offsets: Int64s,
    *,
    post_processed: bool = False,
    validate: bool = False,
    id_dtype: type[np.integer[Any]] = np.int32,
) -> tuple[Ids, Int64s] | str:
    """Encode rows by a kernel of FIXED_BLOCKS.

    Returns:
        The ids int32[T] (or of `id_dtype`) and the offsets int64[B + 1]. Where the batch must be
        encoded by `SmallCall` instead, the fused kernel that it tries first: `kernel`, or "" if
        that kernel has just been launched and could not finish the batch.
    """
    if resources.stage_times.num_untimed <= 0:
        return kernel
    rows = len(offsets) - 1
    try:
        workspace = resources.workspaces.take(len(data), rows)
    except OutOfMemory:
        return kernel
    try:
        if workspace.resident is not resident:
            set_fields(workspace, resident)
        ids: Ids = workspace.ids
        if id_dtype is not np.int32:
            ids = ids.view(id_dtype)
        num_ids = workspace.launcher.encode(
            workspace.stream.kernels[kernel],
            FIXED_BLOCKS[kernel],
            data,
            STAGED,
            offsets,
            post_processed,
            validate,
            8 * ids.itemsize,
            workspace.ids_place,
        )
        if num_ids >= 0:
            resources.stage_times.num_untimed -= 1
            return ids[:num_ids].copy(), workspace.offsets[: rows + 1].copy()
        return "" if num_ids == MORE_TO_DO and workspace.reported[_FALLBACK] else kernel
    finally:
        resources.workspaces.give(workspace)


def encode_to(
    resources: Resources, digest: str, data: Bytes, offsets: Int64s, out: OutputBuffer
) -> Int64s | str | None:
    """Encode rows into memory that kernels can write, by one fused launch.

    Returns:
        The offsets int64[B + 1]. Otherwise the content of `out` is undefined, and the batch must be
        encoded in another way; the result is "" if a kernel of FIXED_BLOCKS could not finish it,
        else None.
    """
    if not are_arrays(data, offsets):
        return None
    num_bytes, num_rows = len(data), len(offsets) - 1
    has_room = num_bytes * out.item_bytes <= out.num_bytes
    if not has_room or out.is_pageable or not resources.workspaces.is_small(num_bytes, num_rows):
        return None
    resident = resources.residents.take(digest)
    if resident is None:
        return None
    try:
        size = size_of(num_bytes, num_rows)
        launch = _launch_for(resources, resident, data, size)
        if launch is None or resources.stage_times.num_untimed <= 0:
            return None
        workspace = resources.workspaces.take(num_bytes, num_rows, resident.family.layout)
        try:
            return _encode_to(resources, workspace, resident, launch, data, offsets, out)
        finally:
            resources.workspaces.give(workspace)
    except OutOfMemory:
        return None  # Smaller chunks may fit.
    finally:
        resources.residents.give(resident)


def _launch_for(resources: Resources, resident: Resident, data: Bytes, size: int) -> _Launch | None:
    """Choose the fused launch of a batch; None if there is none."""
    family, device = resident.family, resources.device
    kernel = kernel_for(resources, resident, size)
    if not kernel:
        return None
    if family.parts and not resident.parts_skips:
        can_read = device.is_pinned(data) and not address_of(data) % ALIGNMENT
        return _Launch(family.parts, IN_PLACE, size) if can_read else None
    if FIXED_BLOCKS.keys().isdisjoint(family.fused):
        return None
    if kernel in FIXED_BLOCKS:
        return _Launch(kernel, STAGED, size)
    if resident.planned_fallback or not device.is_pinned(data):
        return None
    if len(data) > TAKE_IN_BYTES:
        return _Launch(kernel, COPIED, size)
    return None if address_of(data) % ALIGNMENT else _Launch(kernel, IN_PLACE, size)


def _encode_to(
    resources: Resources,
    workspace: Workspace,
    resident: Resident,
    launch: _Launch,
    data: Bytes,
    offsets: Int64s,
    out: OutputBuffer,
) -> Int64s | str | None:
    if workspace.resident is not resident:
        set_fields(workspace, resident)
    num_ids = workspace.launcher.encode(
        workspace.stream.kernels[launch.kernel],
        blocks_of(launch.kernel, launch.size, resources.processors),
        data,
        launch.source,
        offsets,
        False,
        False,
        8 * out.item_bytes,
        out.address,
    )
    if num_ids >= 0:
        resources.stage_times.num_untimed -= 1
        return workspace.offsets[: len(offsets)].copy()
    fallback = workspace.reported[_FALLBACK] if num_ids == MORE_TO_DO else 0
    return _note_fallback(resident, launch.kernel, fallback)


def _note_fallback(resident: Resident, kernel: str, fallback: int) -> str | None:
    """Record for later batches why a kernel fell back; single launches finish this batch."""
    if not fallback:
        return None
    if kernel in FIXED_BLOCKS:
        return ""
    if kernel == resident.family.parts:
        resident.parts_skips = PARTS_SKIPS + 1  # SmallCall.encode_parts counts this batch.
    else:
        resident.planned_fallback = fallback & FALLBACK_RUNS or fallback
    return None


def are_arrays(data: object, offsets: object) -> bool:
    """Return whether both are NumPy arrays; C++ checks their dtypes and shapes."""
    return isinstance(data, np.ndarray) and isinstance(offsets, np.ndarray)
