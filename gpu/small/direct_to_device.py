"""Encodes a batch of characters or k-mers directly into the caller's device memory.

The host waits once, and ids are not copied. A batch that needs fallback kernels
(STATUS_FALLBACK), or that has a refused row, is encoded in another way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.batch.kernel_choice import first_kernels
from gpu.batch.resources import Resources
from gpu.batch.row_options import NOTHING_ADDED
from gpu.batch.transfer import checked, launch, pack
from gpu.kernels.job import STATUS, WORD
from gpu.memory.workspace_layout import BYTES_A_ROW
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch

Int64s = NDArray[np.int64]
ALIGNMENT = 16  # Of ids.
MOST_BYTES = 1 << 24  # Larger batches are faster in chunks, whose copies overlap with kernels.


def encode_direct(
    resources: Resources, resident: Resident, batch: Batch, address: int, id_bits: int
) -> Int64s | None:
    """Encode rows into device memory that has room for one id a byte.

    Special tokens are matched, and nothing is added.

    Returns:
        The offsets int64[B + 1]; None if the batch must be encoded in another way. The content of
        the memory is then undefined.

    Raises:
        OutOfMemory: no workspace for the whole batch fits into memory.
        DeviceFault: a kernel detected an inconsistency.
    """
    size = len(batch.data), len(batch)
    is_plain = resident.family.plain and not resident.had_breaks
    if not is_plain or address % ALIGNMENT or max(size[0], BYTES_A_ROW * size[1]) > MOST_BYTES:
        return None
    with resources.workspaces.lend(*size, resident.family.layout) as workspace:
        words, ids = workspace.words, WORD["ids" if id_bits == 32 else "narrow_ids"]
        own, words[ids], words[WORD["id_bits"]] = words[ids], address, id_bits
        try:
            workspace.answer_in(False)
            workspace.reported[STATUS["NOT_UTF8"]] = 0
            pack(workspace, resident, batch, NOTHING_ADDED, resources.processors, resources.staging)
            kernels = (*first_kernels(workspace, resident, id_bits=id_bits), "report")
            launch(workspace, kernels, resources.processors)
            workspace.stream.synchronize()
        finally:
            words[ids] = own
        status = checked(workspace)
        if status[STATUS["FALLBACK"]] or status[STATUS["NOT_UTF8"]]:
            return None
        return workspace.offsets[: len(batch) + 1].copy()
