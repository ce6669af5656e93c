"""A small batch in one launch: from pinned host memory to pinned host memory.

Here is which kernel does all of a batch, and the fast path: of batches that ask for ids and nothing
unusual all that the host does is one call of C++. Others, and such a batch where its kernel finds
that there is more to do, go by way of `call.SmallCall`.

The stages of such a kernel take some microseconds (cuda/text/one_launch/stages.cuh,
cuda/dna/parts/part.cuh), so that what counts is everything around them:
nothing is made anew, no field of the Job is written but those that differ from batch to batch, and
every function that is called counts.
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
from gpu.runtime.device import DeviceInfo
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch, Encoded

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
Ids = NDArray[Any]
_FALLBACK = STATUS["FALLBACK"]
ONE_BLOCK_BYTES, CLUSTER_BYTES, GRID_BYTES = 1 << 12, 1 << 17, SMALL_BYTES
"""Text that a kernel of one block, of a cluster, or of a grid encodes at most."""
FALLBACK_RUNS, FALLBACK_PIECES = constant("FALLBACK_RUNS"), constant("FALLBACK_PIECES")
GOES_ON_FROM = {FALLBACK_RUNS: "pretokenize", FALLBACK_PIECES: "windows"}
"""The kernel from which on single launches go on where a grid stops, by FALLBACK_*."""
FAST_BLOCKS = {kernel: num_blocks(kernel, 1, 1) for kernel in ("encode_block", "encode_cluster")}
"""The kernels of the fast path, one block or cluster each, and their blocks, whatever the batch."""
CAN_FALL_BACK = frozenset((*FAST_BLOCKS, "encode_bases", "encode_bases_copied", "encode_grid"))
"""Kernels after which others may have to run."""
ALIGNMENT = 16  # Of text that a kernel reads from where it lies.
BASES_SKIPS = 15  # Batches behind one with others than bases that are taken for such, too.


@dataclass(frozen=True, slots=True)
class HostText:
    """The text of a small batch in pinned memory.

    Attributes:
        address: where it lies; 0: it is on its way to the device.
        copy: what still writes it; None: it is there.
    """

    address: int
    copy: Copy | None = None


def size_of(num_bytes: int, num_rows: int) -> int:
    """Bytes of a batch's text, or of what its rows make up for."""
    return max(num_bytes, ROW_BYTES * num_rows)


def fused_kernel(family: Family, size: int) -> str:
    """A family's for a batch of a size that is GRID_BYTES at most."""
    if not family.fused:
        return family.bases
    one_block, cluster, grid = family.fused
    if size <= ONE_BLOCK_BYTES:
        return one_block
    return cluster if size <= CLUSTER_BYTES else grid


def most_fused_bytes(info: DeviceInfo) -> int:
    """Text of the largest batch whose stages are one launch on a device."""
    return GRID_BYTES if info.has_clusters else ONE_BLOCK_BYTES


def kernel_for(resources: Resources, resident: Resident, size: int) -> str:
    """The kernel that does all of a batch of a size; "" where there is none."""
    if not resident.is_fused or size > resources.fused_bytes:
        return ""
    return fused_kernel(resident.family, size)


def is_fast(kernel: str, batch: Batch, options: RowOptions) -> bool:
    """Whether a kernel does all of a batch in one call of C++: its rows ask for ids alone."""
    return kernel in FAST_BLOCKS and (options.is_default or batch.options == WITHOUT_TEMPLATE)


def blocks_of(kernel: str, size: int, processors: int) -> int:
    """Blocks of the launch that encodes a small batch."""
    return FAST_BLOCKS.get(kernel) or num_blocks(kernel, size, processors)


def staged_text(workspace: Workspace, batch: Batch) -> HostText:
    """Where a block or a cluster finds the text: in the workspace's pinned memory."""
    data = batch.data
    workspace.text[: len(data)] = data
    return HostText(workspace.text_place)


def grid_text(
    workspace: Workspace, batch: Batch, staging: CopyPool, *, in_place: bool = False
) -> HostText:
    """Where a grid finds the text.

    `in_place`: the grid goes on while it reads, so that pinned text of any size stays where it is.
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
    """A kernel that does all of a batch.

    Attributes:
        kernel: its name.
        source: where it finds the text: STAGED, IN_PLACE or COPIED.
        size: of the batch, see `size_of`.
    """

    kernel: str
    source: int
    size: int


def encode_ids(
    resources: Resources, digest: str, data: Bytes, offsets: Int64s
) -> tuple[Ids, Int64s] | str | None:
    """As `GpuEngine.encode_ids`; or a kernel, as from `encode`; None: nothing was tried."""
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
        if kernel not in FAST_BLOCKS:
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
    """The answer to a batch that `is_fast` says yes to; or a kernel, as `encode`."""
    answer = encode(
        resources,
        resident,
        kernel,
        batch.data,
        batch.offsets,
        framed=options.framed,
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
    framed: bool = False,
    validate: bool = False,
    id_dtype: type[np.integer[Any]] = np.int32,
) -> tuple[Ids, Int64s] | str:
    """Ids of rows and where each row's begin, by a kernel of FAST_BLOCKS.

    Or the kernel that the usual way begins with: "" where this one was launched and left the
    batch to single launches.
    """
    if resources.stage_times.is_next:
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
            workspace.stream.kernel(kernel),
            FAST_BLOCKS[kernel],
            data,
            STAGED,
            offsets,
            framed,
            validate,
            8 * ids.itemsize,
            workspace.ids_place,
        )
        if num_ids >= 0:
            resources.stage_times.count()
            return ids[:num_ids].copy(), workspace.offsets[: rows + 1].copy()
        return "" if num_ids == MORE_TO_DO and workspace.reported[_FALLBACK] else kernel
    finally:
        resources.workspaces.give(workspace)


def encode_to(
    resources: Resources, digest: str, data: Bytes, offsets: Int64s, out: OutputBuffer
) -> Int64s | str | None:
    """Ids of rows to memory that kernels reach; int64[B + 1], where each row's begin.

    Or, where there is more to do, "" if a kernel of FAST_BLOCKS left it to single
    launches, else None; what lies there then may not be used.
    """
    if not are_arrays(data, offsets):
        return None
    num_bytes, num_rows = len(data), len(offsets) - 1
    has_room = num_bytes * out.item_bytes <= out.num_bytes
    if not has_room or out.is_ordinary or not resources.workspaces.is_small(num_bytes, num_rows):
        return None
    resident = resources.residents.take(digest)
    if resident is None:
        return None
    try:
        size = size_of(num_bytes, num_rows)
        launch = _launch_for(resources, resident, data, size)
        if launch is None or resources.stage_times.is_next:
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
    """One that does all of a batch; None where there is none."""
    family, device = resident.family, resources.device
    kernel = kernel_for(resources, resident, size)
    if not kernel:
        return None
    if family.bases and not resident.bases_skips:
        is_there = device.is_pinned(data) and not address_of(data) % ALIGNMENT
        return _Launch(family.bases, IN_PLACE, size) if is_there else None
    if FAST_BLOCKS.keys().isdisjoint(family.fused):
        return None
    if kernel in FAST_BLOCKS:
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
        workspace.stream.kernel(launch.kernel),
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
        resources.stage_times.count()
        return workspace.offsets[: len(offsets)].copy()
    fallback = workspace.reported[_FALLBACK] if num_ids == MORE_TO_DO else 0
    return _note_fallback(resident, launch.kernel, fallback)


def _note_fallback(resident: Resident, kernel: str, fallback: int) -> str | None:
    """Note for later batches why a kernel fell back; this batch goes on by single launches."""
    if not fallback:
        return None
    if kernel in FAST_BLOCKS:
        return ""
    if kernel == resident.family.bases:
        resident.bases_skips = BASES_SKIPS + 1  # SmallCall.encode_bases counts this batch.
    else:
        resident.planned_fallback = fallback & FALLBACK_RUNS or fallback
    return None


def are_arrays(data: object, offsets: object) -> bool:
    """Whether both are NumPy's; of which kind, C++ looks."""
    return isinstance(data, np.ndarray) and isinstance(offsets, np.ndarray)
