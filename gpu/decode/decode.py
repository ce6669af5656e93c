"""Decodes ids to bytes by the kernels of cuda/decode/spell_ids.cuh.

A large batch is decoded in chunks (`chunks`) if possible. All other batches are decoded in one
workspace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.batch.resources import Resources
from gpu.batch.row_options import NO_BYTE
from gpu.batch.transfer import ROW_BYTES, fetch, set_fields
from gpu.decode.chunks import ID_BYTES, DecodedRows, Ids, decode_in_chunks, set_decode_job
from gpu.kernels.catalog import num_blocks
from gpu.large.pipeline import Pipeline
from gpu.memory.workspace import Workspace
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import RowError
from vocabularies.model.vocabulary import Vocabulary

Int64s = NDArray[np.int64]
Decoded = tuple[NDArray[np.uint8], Int64s, dict[int, RowError]]
SMALL_BYTES = 1 << 17  # Up to this number of bytes of ids, a batch is decoded in one workspace.


def decode_rows(
    pipeline: Pipeline,
    vocabulary: Vocabulary,
    ids: Ids,
    offsets: Int64s,
    skip_special_tokens: bool,
) -> Decoded:
    """Decode rows of ids as `GpuEngine.decode` does."""
    dtype: type[Any] = np.int32 if ids.dtype == np.int32 else np.int64
    ids, decoded = np.ascontiguousarray(ids, dtype), None
    resources = pipeline.resources
    with resources.residents.using(vocabulary) as resident:
        if ids.nbytes > SMALL_BYTES and offsets[0] == 0 and offsets[-1] == len(ids):
            decoded = decode_in_chunks(pipeline, resident, ids, offsets, skip_special_tokens)
        if decoded is None:
            decoded = _decode_at_once(resources, resident, ids, offsets, skip_special_tokens)
    errors = _errors(len(vocabulary), ids, offsets, decoded.unknown)
    return decoded.data, decoded.offsets, errors


def _decode_at_once(
    resources: Resources, resident: Resident, ids: Ids, offsets: Int64s, skip_special_tokens: bool
) -> DecodedRows:
    """Decode in one workspace; if it is too small for the bytes, decode again in a larger one."""
    rows, capacity = len(offsets) - 1, 2 * len(ids)
    while True:
        with resources.workspaces.lend(capacity, rows, resident.family.layout) as workspace:
            _launch(workspace, resident, ids, offsets, skip_special_tokens, resources.processors)
            ends = fetch(workspace, "decoded_offsets", np.int64, rows + 1)
            total = int(ends[-1])
            if total <= ID_BYTES * workspace.capacity.num_bytes:
                data = fetch(workspace, "decoded", np.uint8, total)
                places = fetch(workspace, "row_errors", np.uint32, rows)
                return DecodedRows(data, ends, places.astype(np.int64))
        capacity = -(-total // ID_BYTES)


def _launch(
    workspace: Workspace,
    resident: Resident,
    ids: Ids,
    offsets: Int64s,
    skip_special_tokens: bool,
    processors: int,
) -> None:
    job, stream, rows = workspace.job[0], workspace.stream, len(offsets) - 1
    set_fields(workspace, resident)
    set_decode_job(workspace, workspace.fields["decode_ids"], ids.itemsize, len(ids))
    job["num_bytes"], job["num_rows"] = 0, rows
    job["skip_special"], job["row_refused"] = skip_special_tokens, 0
    stream.copy_in(workspace.device_job, workspace.job.ctypes.data, workspace.job.nbytes)
    stream.clear(workspace.fields["status"], 8 * int(job["num_cleared"]))
    begins = np.ascontiguousarray(offsets, np.int64)
    stream.copy_in(workspace.fields["decode_ids"], ids.ctypes.data, ids.nbytes)
    stream.copy_in(workspace.fields["decode_offsets"], begins.ctypes.data, begins.nbytes)
    size = max(ID_BYTES * len(ids), ROW_BYTES * rows)
    for name in ("clear_faults", *resident.family.decode):
        stream.launch(name, num_blocks(name, size, processors), workspace.device_job)
    stream.synchronize()  # The device may read the caller's arrays until here.


def _errors(
    num_ids: int, ids: Ids, offsets: Int64s, places: NDArray[np.int64]
) -> dict[int, RowError]:
    """Return the errors of rows with an unknown id; `places` has the place of the first one."""
    errors = {}
    for row in np.flatnonzero(places != NO_BYTE).tolist():
        place = int(places[row])
        message = f"id {ids[place]} is not an id of this vocabulary of {num_ids} ids"
        errors[row] = RowError("id_out_of_range", message, f"ids[{place - int(offsets[row])}]")
    return errors
