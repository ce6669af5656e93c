"""Packs a batch into a workspace, launches its kernels and fetches their report.

Only this module knows the layout of a batch in a workspace; its callers choose the kernels.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.batch.row_options import RowOptions
from gpu.errors import DescendingOffsets, DeviceFault, NotCovered
from gpu.host.copy_pool import Copy, CopyPool
from gpu.kernels.catalog import KERNELS, num_blocks
from gpu.kernels.job import STATUS, WORD
from gpu.kmers.equal_length_rows import set_even_rows
from gpu.memory.workspace import Workspace
from gpu.runtime.device import Stream
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.batch.shared_rows import SharedText
from vocabularies.sequences.augmentation import Augmentation

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
Item = TypeVar("Item", bound=np.generic)
_NOT_COVERED, _FAULT = STATUS["NOT_COVERED"], STATUS["FAULT"]
_NUM_BYTES, _NUM_ROWS, _ID_BITS = WORD["num_bytes"], WORD["num_rows"], WORD["id_bits"]
_HOST_TEXT, _SENT_TEXT, _NUM_CLEARED = WORD["host_text"], WORD["sent_text"], WORD["num_cleared"]
RECORD_AFTER = 2  # Launches of a sequence of kernels before it is recorded.
TAKE_IN_BYTES = 1 << 19  # Up to here a kernel reads the batch; above, the copy engine copies it.
ROW_BYTES = 64  # A row counts as so many bytes of text, because it costs as much work.


def launch(workspace: Workspace, kernels: tuple[str, ...], processors: int) -> None:
    """Launch kernels; from the third time on, as one recording (a CUDA graph).

    Kernels read sizes from the Job, so one recording serves all batches of its size class.
    """
    if workspace.clock is not None:
        launch_each(workspace, kernels, processors)
        workspace.clock.leave()
        return
    recordings, key = workspace.recordings, (kernels, _size(workspace))
    times = recordings.setdefault(key, 0)
    if isinstance(times, int) and times < RECORD_AFTER:
        recordings[key] = times + 1
        launch_each(workspace, kernels, processors)
        return
    if isinstance(times, int):
        workspace.stream.begin_capture()
        launch_each(workspace, kernels, processors)
        recordings[key] = workspace.stream.end_capture()
    workspace.stream.replay(recordings[key])


def _size(workspace: Workspace) -> int:
    """Return the size class of the batch: the workspace's capacity, halved up to four times."""
    capacity, words = workspace.capacity, workspace.words
    most = max(capacity.num_bytes, ROW_BYTES * capacity.num_rows)
    size = max(words[_NUM_BYTES], ROW_BYTES * words[_NUM_ROWS])
    return next((most >> n for n in (4, 3, 2, 1) if size <= most >> n), most)


def launch_each(workspace: Workspace, kernels: tuple[str, ...], processors: int) -> None:
    """Launch kernels one by one."""
    size = _size(workspace)
    for name in kernels:
        if workspace.clock is not None:
            workspace.clock.enter(KERNELS[name].stage)
        workspace.stream.launch(name, num_blocks(name, size, processors), workspace.device_job)


def pack(
    workspace: Workspace,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    processors: int,
    staging: CopyPool,
) -> None:
    """Copy a small batch and its options to the device; pinned text is copied without staging."""
    data, stream, host_text, copy = batch.data, workspace.stream, 0, None
    if len(data) <= TAKE_IN_BYTES:
        workspace.text[: len(data)] = data
        if options.augmented:
            stream.copy_in(workspace.fields["text"], workspace.text_place, len(data))
        else:
            host_text = workspace.text_place
    elif workspace.device.is_pinned(data):
        # The copy runs while the rest is prepared.
        stream.copy_in(workspace.fields["text"], data.ctypes.data, len(data))
    else:
        copy = staging.start(workspace.text, data)
    put_batch(workspace, resident, len(data), batch.offsets, options, host_text=host_text)
    _take_in(workspace, resident, batch.offsets, processors)
    if copy is not None:
        _send_staged(workspace, data, copy)


def _send_staged(workspace: Workspace, data: Bytes, copy: Copy) -> None:
    """Copy text that is still being staged to the device, one piece after another."""
    place, at = workspace.fields["text"], workspace.text_place
    for begin in range(0, len(data), TAKE_IN_BYTES):
        copy.wait(end := min(begin + TAKE_IN_BYTES, len(data)))
        workspace.stream.copy_in(place + begin, at + begin, end - begin)


def pack_augmented(
    workspace: Workspace,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    augmentation: Augmentation,
    processors: int,
) -> None:
    """Copy a batch as `pack` does, for rows that the kernel augment_rows augments."""
    data, sent, stream = batch.data, batch.offsets, workspace.stream
    workspace.text[: len(data)] = data
    stream.copy_in(workspace.fields["text"], workspace.text_place, len(data))
    place = workspace.fields["sent_begins"]
    workspace.row_begins[: len(sent)] = sent
    stream.copy_in(place, workspace.row_begins.ctypes.data, 8 * len(sent))
    stream.synchronize()
    offsets = offsets_from_lengths(augmentation.sizes(np.diff(sent)))
    put_batch(workspace, resident, int(offsets[-1]), offsets, options)
    job = workspace.job[0]
    job["sent_begins"], job["random_seed"] = place, augmentation.seed
    job["first_row"], job["substitution_rate"] = augmentation.first_row, augmentation.rate
    _take_in(workspace, resident, offsets, processors)


def pack_rows(
    workspace: Workspace,
    resident: Resident,
    data: Bytes | SharedText,
    offsets: Int64s,
    processors: int,
    *,
    options: RowOptions | None = None,
    id_bits: int = 32,
    inward: Stream | None = None,
) -> None:
    """Copy rows to the device without staging; copies from pinned memory overlap with other work.

    Args:
        workspace: the workspace that receives the rows.
        resident: the vocabulary.
        data: the text of the rows, joined.
        offsets: int64[B + 1], where each row begins.
        processors: the number of the device's multiprocessors.
        options: the options of the rows; None: special tokens are matched, nothing is added or
            truncated.
        id_bits: the bits of an id in the answer, see cuda/batch/narrow_ids.cuh.
        inward: a stream for the copy of the text, for which the workspace's stream waits; None: the
            workspace's stream.
    """
    # The copy is queued first, so that PCIe is busy while the host does the rest.
    address = data.address if isinstance(data, SharedText) else data.ctypes.data
    (inward or workspace.stream).copy_in(workspace.fields["text"], address, len(data))
    workspace.words[_ID_BITS] = id_bits
    put_batch(workspace, resident, len(data), offsets, options)
    _take_in(workspace, resident, offsets, processors)
    if inward is not None:
        workspace.stream.follow(inward)


def put_batch(
    workspace: Workspace,
    resident: Resident,
    num_bytes: int,
    offsets: Int64s,
    options: RowOptions | None,
    *,
    host_text: int = 0,
    validates: bool = False,
    planned_fallback: int = 0,
) -> None:
    """Write the rows of a batch, their options and the Job's words for them to pinned memory.

    Args:
        workspace: the workspace that receives the rows.
        resident: the vocabulary.
        num_bytes: the number of bytes of the text.
        offsets: int64[B + 1], from 0 on.
        options: the options of the rows; None: special tokens are matched, nothing is added or
            truncated.
        host_text: the text's address in pinned memory; 0: the text is copied to the device.
        validates: whether a fused kernel checks rows for UTF-8.
        planned_fallback: the FALLBACK_* bit at which a grid always stops; 0: it stops only if it
            must.

    Raises:
        DescendingOffsets: a row ends before it begins.
    """
    if workspace.resident is not resident:
        set_fields(workspace, resident)
    has_flags = options is not None and not options.is_default
    max_length = None if options is None else options.max_length
    if options is not None and has_flags:
        workspace.row_flags[: len(offsets) - 1] = options.flags
    if max_length is not None:
        workspace.row_max_length[: len(offsets) - 1] = max_length
    row = workspace.launcher.put_batch(
        np.ascontiguousarray(offsets),
        host_text=host_text,
        num_bytes=num_bytes,
        has_flags=has_flags,
        has_limits=max_length is not None,
        is_augmented=options is not None and options.augmented,
        validates=validates,
        planned_fallback=planned_fallback,
    )
    if row is not None:
        raise DescendingOffsets(row, int(offsets[row]), int(offsets[row + 1]))


def read_letters(workspace: Workspace, rewritten: bool) -> None:
    """Write into the Job where the letters of a batch are, and clear the counters of kernels.

    `rewritten`: whether the letters are in the field `letters`; otherwise they are the bytes of the
    text. Fallback kernels may run after this call.
    """
    job, fields = workspace.job[0], workspace.fields
    job["letters"] = fields["letters"] if rewritten else 0
    job["letter_rows"] = fields["letter_rows" if rewritten else "row_begins"]
    send_job(workspace)
    workspace.stream.clear(fields["status"], 8 * int(job["num_cleared"]))


def send_job(workspace: Workspace) -> None:
    """Copy the Job to the device again, because it has changed since the batch was packed."""
    workspace.stream.copy_in(workspace.device_job, workspace.host_job, workspace.job.nbytes)


def _take_in(workspace: Workspace, resident: Resident, offsets: Int64s, processors: int) -> None:
    """Launch the kernel that reads rows, and text in pinned memory, and clears counters."""
    words, stream, rows = workspace.words, workspace.stream, len(offsets) - 1
    set_even_rows(workspace.job[0], resident.family, workspace.row_flags, offsets)
    if words[_SENT_TEXT]:
        stream.clear(workspace.fields["row_not_ascii"], 4 * rows)
    text_items = words[_NUM_BYTES] // 16 if words[_HOST_TEXT] else 0
    items = max(text_items, rows, words[_NUM_CLEARED])
    stream.launch(
        "load_batch", num_blocks("load_batch", 16 * items, processors), workspace.host_job
    )


def set_fields(workspace: Workspace, resident: Resident) -> None:
    """Write the fields of a vocabulary into the Job."""
    job = workspace.job[0]
    workspace.job.view(np.uint64)[resident.words] = resident.values
    job["num_rounds"] = resident.num_rounds
    job["splits"] = workspace.fields["splits"] if resident.has_whole_only else 0
    workspace.resident = resident


def fetch(workspace: Workspace, field: str, dtype: type[Item], count: int) -> NDArray[Item]:
    """Copy a field of the device into a new array, and wait for it."""
    array = np.empty(count, dtype)
    workspace.stream.copy_out(array.ctypes.data, workspace.fields[field], array.nbytes)
    workspace.stream.synchronize()
    return array


def status_of(workspace: Workspace) -> NDArray[np.uint64]:
    """Wait for the kernels, and return the status that they report, uint64[8].

    Raises:
        DeviceFault, NotCovered: as `checked`.
    """
    stream = workspace.stream
    stream.copy_out(workspace.status.ctypes.data, workspace.fields["status"], 64)
    stream.synchronize()
    return checked(workspace)


def checked(workspace: Workspace) -> NDArray[np.uint64]:
    """Return the status in pinned memory, uint64[8], unless it reports an error.

    Raises:
        DeviceFault: a kernel detected an inconsistency; no id may be used.
        NotCovered: a character that the kernels do not support, or a long piece whose merges only
            one thread could make in order.
    """
    if workspace.reported[_NOT_COVERED]:
        raise NotCovered(
            "a character has no id or is longer in upper case, or NFC may join characters, or a "
            "long piece merges out of order"
        )
    if workspace.reported[_FAULT]:
        raise DeviceFault(
            "a long piece is not a token, or letters have no path; please report the text"
        )
    return workspace.status
