"""A small batch in one launch: from pinned host memory to pinned host memory.

What its kernels do: common/one_launch.cuh, text/one_launch/stages.cuh and dna/parts/part.cuh.

Its stages take some microseconds, so that what counts is everything around them: here nothing is
made anew and no field of the Job is written but those that differ from batch to batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu.batch.resources import Resources
from gpu.batch.row_options import WITHOUT_TEMPLATE, RowOptions
from gpu.batch.transfer import ROW_BYTES, TAKE_IN_BYTES
from gpu.host.arrays import address_of
from gpu.host.copy_pool import Copy, CopyPool
from gpu.kernels.catalog import num_blocks
from gpu.kernels.families import Family
from gpu.kernels.job import constant
from gpu.memory.workspace import Workspace
from gpu.memory.workspace_layout import SMALL_BYTES
from gpu.runtime.device import DeviceInfo
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch

ONE_BLOCK_BYTES, CLUSTER_BYTES, GRID_BYTES = 1 << 12, 1 << 17, SMALL_BYTES
"""Text that a kernel of one block, of a cluster, or of a grid encodes at most."""
RARE_RUNS, RARE_PIECES = constant("RARE_RUNS"), constant("RARE_PIECES")
GOES_ON_FROM = {RARE_RUNS: "pretokenize", RARE_PIECES: "windows"}
"""The kernel from which on single launches do what a grid has left."""
FAST_BLOCKS = {kernel: num_blocks(kernel, 1, 1) for kernel in ("encode_block", "encode_cluster")}
"""The kernels of the fast path, one block or cluster each, and their blocks, whatever the batch."""
LEAVES_RARE = frozenset((*FAST_BLOCKS, "encode_bases", "encode_bases_copied", "encode_grid"))
"""Kernels after which others may have to run."""
ALIGNMENT = 16  # Of text that a kernel reads from where it lies.


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
