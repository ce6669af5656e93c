"""Ids back to bytes: the stages of cuda/decode.cuh in a workspace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.batches import NO_BYTE
from gpu.kernels import num_blocks
from gpu.launches import ROW_BYTES, fetch, set_fields
from gpu.memory import Workspace
from gpu.residents import Resident
from gpu.workspaces import Workspaces
from vocabularies.batch import RowError

__all__ = ["decode_rows"]

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
ID_BYTES = 4  # A workspace has room for so many bytes of text in the place of each id.


def decode_rows(
    workspaces: Workspaces,
    resident: Resident,
    num_ids: int,
    ids: Int64s,
    offsets: Int64s,
    skip_special_tokens: bool,
    processors: int,
) -> tuple[Bytes, Int64s, dict[int, RowError]]:
    """The bytes of ids int64[T] in rows offsets int64[B + 1]: uint8[N], int64[B + 1], errors.

    The vocabulary has `num_ids` ids. Where tokens are long, a first run only says how large a
    workspace must be.
    """
    rows, capacity = len(offsets) - 1, 2 * len(ids)
    while True:
        with workspaces.lend(capacity, rows, resident.family.layout) as workspace:
            _launch(workspace, resident, ids, offsets, skip_special_tokens, processors)
            ends = fetch(workspace, "decoded_offsets", np.int64, rows + 1)
            total = int(ends[-1])
            if total <= ID_BYTES * workspace.capacity.num_bytes:
                data = fetch(workspace, "decoded", np.uint8, total)
                places = fetch(workspace, "row_errors", np.uint32, rows)
                return data, ends, _errors(num_ids, ids, offsets, places)
        capacity = -(-total // ID_BYTES)


def _launch(
    workspace: Workspace,
    resident: Resident,
    ids: Int64s,
    offsets: Int64s,
    skip_special_tokens: bool,
    processors: int,
) -> None:
    job, stream, rows = workspace.job[0], workspace.stream, len(offsets) - 1
    set_fields(workspace, resident)
    job["num_bytes"], job["num_rows"], job["num_decode_ids"] = 0, rows, len(ids)
    job["decode_wide"], job["skip_special"] = 1, skip_special_tokens
    job["decoded_capacity"] = ID_BYTES * workspace.capacity.num_bytes
    job["row_refused"] = 0
    stream.copy_in(workspace.device_job, workspace.job.ctypes.data, workspace.job.nbytes)
    stream.clear(workspace.fields["status"], 8 * int(job["num_cleared"]))
    wide, begins = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(offsets, np.int64)
    stream.copy_in(workspace.fields["decode_ids"], wide.ctypes.data, wide.nbytes)
    stream.copy_in(workspace.fields["decode_offsets"], begins.ctypes.data, begins.nbytes)
    size = max(ID_BYTES * len(ids), ROW_BYTES * rows)
    for name in ("clear_faults", *resident.family.decode):
        stream.launch(name, num_blocks(name, size, processors), workspace.device_job)
    stream.synchronize()  # The caller's arrays were copied from.


def _errors(
    num_ids: int, ids: Int64s, offsets: Int64s, places: NDArray[np.uint32]
) -> dict[int, RowError]:
    """Rows with an id that means nothing; `places` holds the first one's place in the batch."""
    errors = {}
    for row in np.flatnonzero(places != NO_BYTE).tolist():
        place = int(places[row])
        message = f"id {ids[place]} means nothing in a vocabulary of {num_ids} ids"
        errors[row] = RowError("id_out_of_range", message, f"ids[{place - int(offsets[row])}]")
    return errors
