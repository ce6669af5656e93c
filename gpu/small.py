"""A tiny batch in one launch: from pinned host memory to pinned host memory (cuda/small.cuh).

Its stages take a few microseconds, so that what counts is everything around them: here nothing is
made anew and no field of the Job is written but those that differ from batch to batch.
"""

from __future__ import annotations

from gpu.batches import RowOptions
from gpu.job import WORD
from gpu.kernels import num_blocks
from gpu.launches import ROW_BYTES, STATUS, set_fields
from gpu.memory import Workspace
from gpu.residents import Resident
from gpu.stages import stage_of
from vocabularies.batch import Batch

__all__ = ["CLUSTER_BYTES", "ONE_BLOCK_BYTES", "launch_fused", "size_of"]

ONE_BLOCK_BYTES, CLUSTER_BYTES = 1 << 12, 1 << 17
"""Text that a kernel of one block, or of a cluster of blocks, encodes at most."""
_NUM_BYTES, _NUM_ROWS, _VALIDATES = WORD["num_bytes"], WORD["num_rows"], WORD["validates"]
_FLAGS, _LIMITS, _REFUSED = WORD["row_flags"], WORD["row_max_length"], WORD["row_refused"]
_RARE, _NOT_UTF8 = STATUS["RARE"], STATUS["NOT_UTF8"]


def size_of(batch: Batch) -> int:
    """Bytes of a batch's text, or of what its rows make up for."""
    return max(len(batch.data), ROW_BYTES * len(batch))


def launch_fused(
    workspace: Workspace, resident: Resident, batch: Batch, options: RowOptions
) -> bool:
    """Encode a tiny batch; its answer is in pinned memory then.

    Returns:
        Whether it is one: False where a long run or a long piece needs other kernels.
    """
    pack(workspace, resident, batch, options)
    kernel = "encode_block" if size_of(batch) <= ONE_BLOCK_BYTES else "encode_cluster"
    clock = workspace.clock
    if clock is not None:
        clock.enter(stage_of(kernel))
    workspace.stream.launch(kernel, num_blocks(kernel, 0, 0), workspace.host_job)
    if clock is not None:
        clock.leave()
    workspace.stream.synchronize()
    return not workspace.status[_RARE]


def pack(workspace: Workspace, resident: Resident, batch: Batch, options: RowOptions) -> None:
    """A batch and its options into pinned memory."""
    if workspace.resident is not resident:
        set_fields(workspace, resident)
    words, fields, data, rows = workspace.words, workspace.fields, batch.data, len(batch)
    workspace.text[: len(data)] = data
    workspace.row_begins[: rows + 1] = batch.offsets
    words[_NUM_BYTES], words[_NUM_ROWS] = len(data), rows
    words[_VALIDATES] = not batch.has_texts
    words[_REFUSED] = fields["row_refused"]
    words[_FLAGS] = words[_LIMITS] = 0
    if not options.is_default:
        workspace.row_flags[:rows] = options.flags
        words[_FLAGS] = fields["row_flags"]
    if options.max_length is not None:
        workspace.row_max_length[:rows] = options.max_length
        words[_LIMITS] = fields["row_max_length"]
    workspace.status[_NOT_UTF8] = 0
