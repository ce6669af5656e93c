"""The GPU engine: a batch through the stages, all on one screen.

    pack          texts joined in pinned host memory, with what each row asks for
    take in       to the device, hard bits where texts begin, rows that are not UTF-8 noted
    special       hard bits around special tokens
    pretokenize   a start bit for every pretoken
    cut           start bits inside pretokens, at borders of their own encoding
    look up       the id of every piece that is a token; lists of the others
    merge         the ids of the others
    compact       ids one after another, and where each row's begin
    frame         begin and end tokens, truncation, spans
    answer        to host memory

Computes ids and nothing else: self-tests, fallbacks and routing are the service's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.batches import NO_BYTE, RowOptions, row_errors, row_options
from gpu.device import Device
from gpu.job import constant
from gpu.kernels import DECODE, RARE_KERNELS, encode_kernels, frame_kernels, num_blocks
from gpu.memory import Workspace, Workspaces
from gpu.prepared import prepare
from gpu.residents import Resident, Residents
from gpu.tables import NotCovered
from vocabularies.batch import Batch, Encoded, RowError
from vocabularies.framing import offsets_of, ragged
from vocabularies.vocabulary import Vocabulary

__all__ = ["DeviceFault", "Flight", "GpuEngine", "NotCovered"]

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
STATUS = {
    name: constant(f"STATUS_{name}") for name in ("NUM_IDS", "FAULT", "CUT", "NUM_FRAMED", "RARE")
}
RECORD_AFTER = 2
TAKE_IN_BYTES = 1 << 20  # Up to here a kernel fetches a batch; above, the copy engine does.


class DeviceFault(RuntimeError):
    """A kernel met what cannot be; no id of the batch may be used."""


@dataclass(slots=True, eq=False)
class _Answer:
    """A batch's ids while they are still on the device: which fields hold them."""

    ids: str
    offsets: str
    num_ids: int


class GpuEngine:
    """Encodes and decodes batches on one device; every method may be called from several threads.

    Args:
        device: the device.
        workspace_bytes: device memory for batches in flight.
        vocabulary_bytes: device memory for vocabularies.
    """

    def __init__(
        self, device: Device, workspace_bytes: int, vocabulary_bytes: int | None = None
    ) -> None:
        self.device, self.processors = device, device.info.processors
        self.workspaces = Workspaces(device, workspace_bytes)
        self.residents = Residents(device, vocabulary_bytes or workspace_bytes, prepare)

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> int:
        """Put a vocabulary on the device, pinned if it is never to make room for another.

        Returns:
            Its bytes there.

        Raises:
            NotCovered: the kernels cannot compute it.
            OutOfMemory: it does not fit.
        """
        return self.residents.load(vocabulary, pinned)

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that are running finish on it."""
        self.residents.unload(digest)

    def is_resident(self, digest: str) -> bool:
        """Whether a vocabulary is on the device now."""
        return digest in self.residents

    def close(self) -> None:
        """Give all memory back."""
        self.residents.close()
        self.workspaces.close()

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of each row; a row that cannot be encoded is refused alone.

        Raises:
            NotCovered: the kernels cannot compute this vocabulary, or what a row asks for.
            OutOfMemory: the batch does not fit.
            DeviceFault: a kernel found itself wrong.
        """
        options = row_options(vocabulary, batch)
        with (
            self.residents.using(vocabulary) as resident,
            self.workspaces.lend(len(batch.data), len(batch)) as workspace,
        ):
            framed = options.framed or options.spans is not None
            workspace.answer_in(framed)
            self._pack(workspace, resident, batch, options)
            if workspace.is_small and options.spans is None:
                return self._encode_small(vocabulary, workspace, resident, batch, options, framed)
            self._launch(workspace, self._encode_kernels(resident, batch))
            if options.spans is not None:
                workspace.reserve_spans(self._most_ids(workspace, resident))
            if framed:
                self._launch(workspace, frame_kernels(spans=options.spans is not None))
            return self._answer(vocabulary, workspace, batch, options, framed)

    def _encode_small(
        self,
        vocabulary: Vocabulary,
        workspace: Workspace,
        resident: Resident,
        batch: Batch,
        options: RowOptions,
        framed: bool,
    ) -> Encoded:
        """All stages as one recording, the answer in pinned memory when it ends."""
        frame = (*(frame_kernels(spans=False) if framed else ()), "put_out")
        kernels = self._encode_kernels(resident, batch)
        # Long runs and long pieces are rare: the kernels for them run when one was found.
        self._launch(workspace, tuple(k for k in kernels if k not in RARE_KERNELS) + frame)
        workspace.stream.synchronize()
        if workspace.status[STATUS["RARE"]]:
            self._pack(workspace, resident, batch, options)
            self._launch(workspace, kernels + frame)
            workspace.stream.synchronize()
        status, rows = self._checked(workspace), len(batch)
        offsets = workspace.offsets[: rows + 1].copy()
        encoded = Encoded(workspace.ids[: int(offsets[-1])].copy(), offsets, engine="gpu")
        self._add_cuts(workspace, encoded, rows, bool(status[STATUS["CUT"]]))
        errors = workspace.errors[:rows]
        if options.refuses or options.max_length is not None or (errors != NO_BYTE).any():
            encoded.errors = self._errors(vocabulary, workspace, batch, options)
        if encoded.errors and not framed:
            _drop_rows(encoded)
        return encoded

    def count(
        self, vocabulary: Vocabulary, batch: Batch
    ) -> tuple[Int64s, dict[int, RowError]]:
        """int64[B]: how many ids `encode` would give each row; and the refused rows."""
        options = row_options(vocabulary, batch)
        with (
            self.residents.using(vocabulary) as resident,
            self.workspaces.lend(len(batch.data), len(batch)) as workspace,
        ):
            self._pack(workspace, resident, batch, options)
            self._launch(workspace, self._encode_kernels(resident, batch, count_only=True))
            self._launch(workspace, frame_kernels(spans=False, count_only=True))
            self._status(workspace)
            offsets = self._fetch(workspace, "framed_offsets", np.int64, len(batch) + 1)
            return np.diff(offsets), self._errors(vocabulary, workspace, batch, options)

    def encode_ids(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s
    ) -> tuple[NDArray[np.int32], Int64s]:
        """int32[T] and int64[B + 1]: ids of UTF-8 rows, special tokens matched, nothing added.

        What `encode` does without options and errors, for bulk: the bytes are taken as they are.
        """
        with (
            self.residents.using(vocabulary) as resident,
            self.workspaces.lend(len(data), len(offsets) - 1) as workspace,
        ):
            self._pack_rows(workspace, resident, data, offsets)
            self._launch(workspace, encode_kernels(num_rounds=resident.num_rounds))
            status = self._status(workspace)
            ids = self._fetch(workspace, "ids", np.int32, int(status[STATUS["NUM_IDS"]]))
            return ids, self._fetch(workspace, "id_offsets", np.int64, len(offsets))

    def decode(
        self, vocabulary: Vocabulary, ids: Int64s, offsets: Int64s, skip_special_tokens: bool
    ) -> tuple[Bytes, Int64s, dict[int, RowError]]:
        """The bytes of ids int64[T] in rows offsets int64[B + 1]: uint8[N], int64[B + 1], errors."""
        rows, capacity = len(offsets) - 1, 2 * len(ids)
        with self.residents.using(vocabulary) as resident:
            while True:
                with self.workspaces.lend(capacity, rows) as workspace:
                    total = self._decode(workspace, resident, ids, offsets, skip_special_tokens)
                    room = 4 * workspace.capacity.num_bytes
                    if total <= room:
                        data = self._fetch(workspace, "decoded", np.uint8, total)
                        ends = self._fetch(workspace, "decoded_offsets", np.int64, rows + 1)
                        places = self._fetch(workspace, "row_errors", np.uint32, rows)
                        return data, ends, _id_errors(vocabulary, ids, offsets, places)
                capacity = -(-total // 4)

    def start(
        self, resident: Resident, data: Bytes, begins: Int64s, id_bits: int = 32
    ) -> Flight | None:
        """Begin to encode UTF-8 rows, int64[B + 1] begins; the ids come when the flight lands.

        None where all workspaces of the size are in flight.

        Args:
            resident: the vocabulary, in use until then.
            data: copied from where it lies, which must stay as it is until then; pinned memory
                overlaps with other flights.
            id_bits: of an id in the answer, see cuda/pack.cuh.
        """
        workspace = self.workspaces.try_take(len(data), len(begins) - 1)
        if workspace is None:
            return None
        try:
            self._pack_rows(workspace, resident, data, begins, staged=False, id_bits=id_bits)
            kernels = encode_kernels(num_rounds=resident.num_rounds)
            self._launch(workspace, kernels if id_bits == 32 else (*kernels, "pack"))
            status = workspace.fields["status"]
            workspace.stream.copy_out(workspace.status.ctypes.data, status, 64)
        except BaseException:
            workspace.stream.synchronize()
            self.workspaces.give(workspace)
            raise
        return Flight(self, workspace, len(begins) - 1, id_bits)

    def _decode(
        self, workspace: Workspace, resident: Resident, ids: Int64s, offsets: Int64s, skip: bool
    ) -> int:
        """All stages of decoding; returns how many bytes the ids stand for."""
        job, stream, rows = workspace.job[0], workspace.stream, len(offsets) - 1
        _set(job, resident.fields)
        workspace.resident = resident
        job["num_bytes"], job["num_rows"], job["num_decode_ids"] = 0, rows, len(ids)
        job["decode_wide"], job["skip_special"] = 1, skip
        job["decoded_capacity"] = 4 * workspace.capacity.num_bytes
        job["row_refused"] = 0
        stream.copy_in(workspace.device_job, workspace.job.ctypes.data, workspace.job.nbytes)
        stream.clear(workspace.fields["status"], 8 * int(job["num_cleared"]))
        wide, begins = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(offsets, np.int64)
        stream.copy_in(workspace.fields["decode_ids"], wide.ctypes.data, wide.nbytes)
        stream.copy_in(workspace.fields["decode_offsets"], begins.ctypes.data, begins.nbytes)
        size = max(4 * len(ids), 64 * rows)
        for name in ("clear_faults", *DECODE):
            blocks = num_blocks(name, size, self.processors)
            stream.launch(name, blocks, workspace.device_job)
        return int(self._fetch(workspace, "decoded_offsets", np.int64, rows + 1)[-1])

    def _encode_kernels(
        self, resident: Resident, batch: Batch, *, count_only: bool = False
    ) -> tuple[str, ...]:
        return encode_kernels(
            num_rounds=resident.num_rounds, validate=not batch.has_texts, count_only=count_only
        )

    def _pack(
        self, workspace: Workspace, resident: Resident, batch: Batch, options: RowOptions
    ) -> None:
        """A batch and its options to the device."""
        rows, job = len(batch), workspace.job[0]
        job["row_flags"] = job["row_max_length"] = 0
        if not options.is_default:
            workspace.row_flags[:rows] = options.flags
            job["row_flags"] = place = workspace.fields["row_flags"]
            workspace.stream.copy_in(place, workspace.row_flags.ctypes.data, rows)
        if options.max_length is not None:
            workspace.row_max_length[:rows] = options.max_length
            job["row_max_length"] = place = workspace.fields["row_max_length"]
            workspace.stream.copy_in(place, workspace.row_max_length.ctypes.data, 4 * rows)
        self._pack_rows(workspace, resident, batch.data, batch.offsets, keep_options=True)

    def _pack_rows(
        self,
        workspace: Workspace,
        resident: Resident,
        data: Bytes,
        offsets: Int64s,
        *,
        keep_options: bool = False,
        staged: bool = True,
        id_bits: int = 32,
    ) -> None:
        """Rows to the device, and what the kernels count in set to zero.

        Not staged, the bytes are copied from where they lie.
        """
        job, stream, num_bytes, rows = workspace.job[0], workspace.stream, len(data), len(offsets) - 1
        if workspace.resident is not resident:
            _set(job, resident.fields)
            job["cuts"] = workspace.fields["cuts"] if resident.has_whole_only else 0
            workspace.resident = resident
        job["num_bytes"], job["num_rows"] = num_bytes, rows
        job["row_refused"] = workspace.fields["row_refused"]
        if not keep_options:
            job["row_flags"] = job["row_max_length"] = 0
        job["id_bits"] = id_bits
        workspace.row_begins[: rows + 1] = offsets
        source = workspace.text if staged else data
        if staged:
            workspace.text[:num_bytes] = data
        if staged and num_bytes <= TAKE_IN_BYTES:
            blocks = num_blocks("take_in", max(num_bytes, 8 * rows), self.processors)
            stream.launch("take_in", blocks, workspace.job.ctypes.data)
            return
        fields = workspace.fields
        stream.clear(fields["status"], 8 * int(job["num_cleared"]))
        stream.copy_in(workspace.device_job, workspace.job.ctypes.data, workspace.job.nbytes)
        stream.copy_in(fields["row_begins"], workspace.row_begins.ctypes.data, 8 * (rows + 1))
        stream.copy_in(fields["text"], source.ctypes.data, num_bytes)

    def _launch(self, workspace: Workspace, kernels: tuple[str, ...]) -> None:
        """Run kernels; from the third time on as one recording, which is launched as a whole.

        Kernels read sizes from the job, so that a recording serves every batch of the workspace.
        """
        recordings = workspace.recordings
        times = recordings.setdefault(kernels, 0)
        if isinstance(times, int) and times < RECORD_AFTER:
            recordings[kernels] = times + 1
            self._launch_each(workspace, kernels)
            return
        if isinstance(times, int):
            workspace.stream.begin_capture()
            self._launch_each(workspace, kernels)
            recordings[kernels] = workspace.stream.end_capture()
        workspace.stream.replay(recordings[kernels])

    def _launch_each(self, workspace: Workspace, kernels: tuple[str, ...]) -> None:
        capacity = workspace.capacity
        size = max(capacity.num_bytes, 64 * capacity.num_rows)
        for name in kernels:
            workspace.stream.launch(
                name, num_blocks(name, size, self.processors), workspace.device_job
            )

    def _most_ids(self, workspace: Workspace, resident: Resident) -> int:
        """Ids of the answer at most, begin and end tokens included; waits for the count."""
        added = int(resident.fields["num_prefix"]) + int(resident.fields["num_suffix"])
        num_ids = int(self._status(workspace)[STATUS["NUM_IDS"]])
        return num_ids + added * int(workspace.job[0]["num_rows"])

    def _status(self, workspace: Workspace) -> NDArray[np.uint64]:
        """What the kernels report, once all before is done.

        Raises:
            DeviceFault: a kernel found itself wrong.
        """
        stream = workspace.stream
        stream.copy_out(workspace.status.ctypes.data, workspace.fields["status"], 64)
        stream.synchronize()
        return self._checked(workspace)

    @staticmethod
    def _checked(workspace: Workspace) -> NDArray[np.uint64]:
        if workspace.status[STATUS["FAULT"]]:
            raise DeviceFault("a piece was neither short nor a token; please report the text")
        return workspace.status

    def _fetch(
        self, workspace: Workspace, field: str, dtype: type[np.generic], count: int
    ) -> NDArray[np.generic]:
        """A field of the device in an array of the caller's."""
        array = np.empty(count, dtype)
        workspace.stream.copy_out(array.ctypes.data, workspace.fields[field], array.nbytes)
        workspace.stream.synchronize()
        return array

    def _answer(
        self,
        vocabulary: Vocabulary,
        workspace: Workspace,
        batch: Batch,
        options: RowOptions,
        framed: bool,
    ) -> Encoded:
        """The answer in host memory, refused rows without ids."""
        status, rows = self._status(workspace), len(batch)
        errors = self._errors(vocabulary, workspace, batch, options)
        if errors and not framed:
            self._launch(workspace, frame_kernels(spans=False))  # Takes the refused rows' ids away.
            status, framed = self._status(workspace), True
        total = int(status[STATUS["NUM_FRAMED" if framed else "NUM_IDS"]])
        was_cut = bool(status[STATUS["CUT"]])
        ids = self._fetch(workspace, "framed_ids" if framed else "ids", np.int32, total)
        name = "framed_offsets" if framed else "id_offsets"
        encoded = Encoded(ids, self._fetch(workspace, name, np.int64, rows + 1), engine="gpu")
        if options.spans is not None:
            encoded.spans = self._fetch(workspace, "spans", np.int64, 2 * total).reshape(-1, 2)
            if not options.spans.all():
                encoded.spans[np.repeat(~options.spans, np.diff(encoded.offsets))] = 0
        self._add_cuts(workspace, encoded, rows, was_cut)
        encoded.errors = errors
        return encoded

    def _add_cuts(self, workspace: Workspace, encoded: Encoded, rows: int, was_cut: bool) -> None:
        """What truncation left of each row, where any was cut."""
        if was_cut:
            encoded.num_tokens = self._fetch(workspace, "num_tokens", np.int64, rows)
            encoded.kept = self._fetch(workspace, "kept", np.int64, 2 * rows).reshape(-1, 2)

    def _errors(
        self, vocabulary: Vocabulary, workspace: Workspace, batch: Batch, options: RowOptions
    ) -> dict[int, RowError]:
        """The refused rows; asks the device only where a row could have been refused."""
        rows = len(batch)
        none = np.full(rows, NO_BYTE, np.uint32)
        bad, refused = none, none
        if not batch.has_texts:
            bad = self._fetch(workspace, "row_errors", np.uint32, rows)
        if options.refuses:
            refused = self._fetch(workspace, "row_refused", np.uint32, rows)
        return row_errors(vocabulary, batch, options, bad, refused)


class Flight:
    """A batch on its way through the device; see GpuEngine.start."""

    def __init__(self, engine: GpuEngine, workspace: Workspace, rows: int, id_bits: int) -> None:
        self._engine, self._workspace, self._rows, self._bits = engine, workspace, rows, id_bits
        self._field = "ids" if id_bits == 32 else "packed"

    def num_ids(self) -> int:
        """How many ids there are; waits for the kernels.

        Raises:
            DeviceFault: a kernel found itself wrong.
        """
        self._workspace.stream.synchronize()
        if self._workspace.status[STATUS["FAULT"]]:
            raise DeviceFault("a piece was neither short nor a token; please report the text")
        return int(self._workspace.status[STATUS["NUM_IDS"]])

    def land(self, out: NDArray[np.generic]) -> Int64s:
        """Copy the ids to the front of `out` and return int64[B + 1] where each row's begin.

        The copy runs on: `out` is complete when `finish` returns.
        """
        num_ids, stream = self.num_ids(), self._workspace.stream
        num_bytes = (num_ids * self._bits + 31) // 32 * 4 if self._bits != 16 else 2 * num_ids
        stream.copy_out(out.ctypes.data, self._workspace.fields[self._field], num_bytes)
        offsets = np.empty(self._rows + 1, np.int64)
        place = self._workspace.fields["id_offsets"]
        stream.copy_out(offsets.ctypes.data, place, offsets.nbytes)
        return offsets

    def finish(self) -> None:
        """Wait until everything is copied and give the workspace back; also after a failure."""
        self._workspace.stream.synchronize()
        self._engine.workspaces.give(self._workspace)


def _set(job: np.void, fields: object) -> None:
    for name, value in fields.items():  # type: ignore[attr-defined]
        job[name] = value


def _drop_rows(encoded: Encoded) -> None:
    """Take the ids of refused rows out of an answer."""
    sizes = np.diff(encoded.offsets)
    begins = encoded.offsets[:-1].copy()
    sizes[list(encoded.errors)] = 0
    encoded.ids = encoded.ids[ragged(begins, sizes)]
    encoded.offsets = offsets_of(sizes)


def _id_errors(
    vocabulary: Vocabulary, ids: Int64s, offsets: Int64s, places: NDArray[np.uint32]
) -> dict[int, RowError]:
    """Rows with an id that means nothing; `places` holds the first one's place in the batch."""
    errors = {}
    for row in np.flatnonzero(places != NO_BYTE).tolist():
        place, size = int(places[row]), len(vocabulary)
        message = f"id {ids[place]} means nothing in a vocabulary of {size} ids"
        errors[row] = RowError("id_out_of_range", message, f"ids[{place - int(offsets[row])}]")
    return errors
