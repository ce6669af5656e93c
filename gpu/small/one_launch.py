"""A small batch in one launch: from pinned host memory to pinned host memory.

What its kernels do: cuda/one_launch.cuh, text/one_launch/stages.cuh and dna/parts/part.cuh.

Its stages take some microseconds, so that what counts is everything around them: here nothing is
made anew and no field of the Job is written but those that differ from batch to batch.
"""

from __future__ import annotations

from gpu.batch.transfer import ROW_BYTES, TAKE_IN_BYTES
from gpu.host.arrays import address_of
from gpu.host.copy_pool import Copy, Staging
from gpu.kernels.catalog import num_blocks
from gpu.kernels.families import Family
from gpu.kernels.job import constant
from gpu.memory.workspace import Workspace
from gpu.memory.workspace_layout import SMALL_BYTES
from vocabularies.batch.batch import Batch

ONE_BLOCK_BYTES, CLUSTER_BYTES, GRID_BYTES = 1 << 12, 1 << 17, SMALL_BYTES
"""Text that a kernel of one block, of a cluster, or of a grid encodes at most."""
RARE_RUNS, RARE_PIECES = constant("RARE_RUNS"), constant("RARE_PIECES")
GOES_ON_FROM = {RARE_RUNS: "pretokenize", RARE_PIECES: "windows"}
"""The kernel from which on single launches do what a grid has left."""
FEW = frozenset(("encode_block", "encode_cluster"))  # Of few threads; they stage the text.
FEW_BLOCKS = {kernel: num_blocks(kernel, 1, 1) for kernel in FEW}  # Whatever the batch.
LEAVES_RARE = frozenset((*FEW, "encode_bases", "encode_bases_copied", "encode_grid"))
"""Kernels after which others may have to run."""
ALIGNMENT = 16  # Of text that a kernel reads from where it lies.


def size_of(batch: Batch) -> int:
    """Bytes of a batch's text, or of what its rows make up for."""
    return max(len(batch.data), ROW_BYTES * len(batch))


def fused_kernel(family: Family, size: int) -> str:
    """A family's for a batch of a size that is GRID_BYTES at most."""
    if not family.fused:
        return family.bases
    one_block, cluster, grid = family.fused
    if size <= ONE_BLOCK_BYTES:
        return one_block
    return cluster if size <= CLUSTER_BYTES else grid


def blocks_of(kernel: str, batch: Batch, processors: int) -> int:
    """Blocks of the launch that encodes a small batch."""
    return FEW_BLOCKS.get(kernel) or num_blocks(kernel, size_of(batch), processors)


def few_text(workspace: Workspace, batch: Batch) -> int:
    """Where a block or a cluster finds the text: its address in pinned memory."""
    data = batch.data
    workspace.text[: len(data)] = data
    return workspace.text_place


def grid_text(
    workspace: Workspace, batch: Batch, staging: Staging, *, in_place: bool = False
) -> tuple[int, Copy | None]:
    """Where a grid finds the text, and what is still at work on it, or None.

    Its address in pinned memory; 0: it is on its way to the device. `in_place`: the grid goes on
    while it reads, so that pinned text of any size stays where it is.
    """
    data = batch.data
    place, is_pinned = address_of(data), workspace.device.is_pinned(data)
    if is_pinned and place % ALIGNMENT == 0 and (in_place or len(data) <= TAKE_IN_BYTES):
        return place, None
    if len(data) <= CLUSTER_BYTES:
        return few_text(workspace, batch), None
    if is_pinned and len(data) > TAKE_IN_BYTES:
        workspace.stream.copy_in(workspace.fields["text"], place, len(data))
        return 0, None
    return workspace.text_place, staging.start(workspace.text, data)
