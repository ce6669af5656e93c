"""The GPU engine: vocabularies on the device, a batch through the stages, all on one screen.

    pack          texts joined into pinned host memory
    take in       to the device, hard bits where texts begin
    pretokenize   a start bit for every pretoken
    cut           start bits inside long pretokens, at borders of their own encoding
    look up       the id of every piece that is a token; lists of the others
    merge         the ids of the others
    compact       ids one after another, and where each row's begin
    answer        to host memory

Computes ids and nothing else: self-tests, fallbacks and routing are the service's.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.automata import Automaton, automaton
from gpu.device import Device
from gpu.kernels import ENCODE, num_blocks
from gpu.memory import Workspace, Workspaces
from gpu.tables import (
    PAIRS_A_BUCKET,
    SHORT_A_BUCKET,
    BpeTables,
    NotCovered,
    bpe_tables,
    shift_of,
)
from vocabularies.vocabulary import Vocabulary

__all__ = ["GpuEngine", "NotCovered"]

Int64s = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class _Resident:
    """A vocabulary on the device.

    Attributes:
        fields: Job fields and what they hold.
        address: of its one block of device memory.
        num_bytes: of that block.
    """

    fields: dict[str, int]
    address: int
    num_bytes: int


class GpuEngine:
    """Encodes batches on one device.

    Args:
        device: the device.
        workspace_bytes: device memory for batches in flight.
    """

    def __init__(self, device: Device, workspace_bytes: int) -> None:
        self.device, self.processors = device, device.info.processors
        self.workspaces = Workspaces(device, workspace_bytes)
        self.seed = secrets.randbits(32)
        self._residents: dict[str, _Resident] = {}
        self._lock = threading.Lock()

    def load(self, vocabulary: Vocabulary) -> int:
        """Put a vocabulary on the device; returns its bytes there.

        Raises:
            NotCovered: the kernels cannot compute it.
            OutOfMemory: it does not fit.
        """
        with self._lock:
            resident = self._residents.get(vocabulary.digest)
            if resident is None:
                resident = self._residents[vocabulary.digest] = self._upload(vocabulary)
        return resident.num_bytes

    def _upload(self, vocabulary: Vocabulary) -> _Resident:
        arrays = _device_arrays(vocabulary, self.seed)
        places, size = {}, 0
        for name, array in arrays.arrays.items():
            places[name] = size
            size += -(-array.nbytes // 256) * 256 + 256
        address = self.device.allocate(size)
        stream = self.device.stream()
        for name, array in arrays.arrays.items():
            stream.copy_in(address + places[name], array.ctypes.data, array.nbytes)
        stream.synchronize()
        fields = arrays.numbers | {name: address + place for name, place in places.items()}
        return _Resident(fields, address, size)

    def unload(self, digest: str) -> None:
        """Forget a vocabulary."""
        with self._lock:
            resident = self._residents.pop(digest, None)
        if resident is not None:
            self.device.free(resident.address)

    def encode_ids(
        self, vocabulary: Vocabulary, data: NDArray[np.uint8], offsets: Int64s
    ) -> tuple[NDArray[np.int32], Int64s]:
        """The ids of rows, without begin and end tokens: int32[T] and offsets int64[B + 1]."""
        self.load(vocabulary)
        resident = self._residents[vocabulary.digest]
        num_bytes, num_rows = len(data), len(offsets) - 1
        with self.workspaces.lend(num_bytes, num_rows) as workspace:
            job = workspace.job[0]
            _set(job, resident.fields)
            job["num_bytes"], job["num_rows"] = num_bytes, num_rows
            job["cuts"] = workspace.fields["cuts"] if job["has_whole_only"] else 0
            workspace.text[:num_bytes] = data
            workspace.row_begins[: num_rows + 1] = offsets
            self._run(workspace)
            total = int(workspace.status[0])
            return workspace.ids[:total].copy(), workspace.id_offsets[: num_rows + 1].copy()

    def _run(self, workspace: Workspace) -> None:
        """All stages of the batch that is packed in a workspace, the answer in pinned memory."""
        stream, job, capacity = workspace.stream, workspace.job[0], workspace.capacity
        blocks = num_blocks("take_in", capacity.num_bytes, self.processors)
        stream.launch("take_in", blocks, workspace.job.ctypes.data)
        self.launch_encode(workspace, int(job["num_bytes"]))
        status = workspace.fields["status"]
        stream.copy_out(workspace.status.ctypes.data, status, 64)
        stream.synchronize()
        total, rows = int(workspace.status[0]), int(job["num_rows"])
        stream.copy_out(workspace.ids.ctypes.data, workspace.fields["ids"], 4 * total)
        stream.copy_out(
            workspace.id_offsets.ctypes.data, workspace.fields["id_offsets"], 8 * (rows + 1)
        )
        stream.synchronize()

    def launch_encode(self, workspace: Workspace, num_bytes: int) -> None:
        """The kernels from text on the device to ids on the device."""
        for name in ENCODE:
            blocks = num_blocks(name, num_bytes, self.processors)
            workspace.stream.launch(name, blocks, workspace.device_job)

    def close(self) -> None:
        """Give all memory back."""
        for digest in list(self._residents):
            self.unload(digest)
        self.workspaces.close()


@dataclass(slots=True, eq=False)
class _DeviceArrays:
    """What a vocabulary has on the device: arrays and numbers by the Job field they are for."""

    arrays: dict[str, NDArray[np.generic]]
    numbers: dict[str, int]


def _device_arrays(vocabulary: Vocabulary, seed: int) -> _DeviceArrays:
    if vocabulary.normalizers:
        raise NotCovered(f"the normalizer {vocabulary.normalizers[0].kind} rewrites the text")
    try:
        rule = automaton(vocabulary.pretokenizer)
    except ValueError as error:
        raise NotCovered(str(error)) from error
    tables = bpe_tables(vocabulary, seed)
    arrays: dict[str, NDArray[np.generic]] = {
        name: value
        for name in tables.__slots__
        if isinstance(value := getattr(tables, name), np.ndarray)
    }
    arrays["entries"] = rule.entries
    arrays["class_pages"], arrays["class_table"] = rule.pages, rule.page_rows
    return _DeviceArrays(arrays, _numbers(tables, rule))


def _numbers(tables: BpeTables, rule: Automaton) -> dict[str, int]:
    return {
        "short_shift": shift_of(tables.short_tokens, SHORT_A_BUCKET),
        "long_shift": shift_of(tables.long_tokens, 1),
        "pair_shift": shift_of(tables.pairs, PAIRS_A_BUCKET),
        "token_shift": shift_of(tables.token_places, 1),
        "num_ids": len(tables.token_begins) - 1,
        "max_token": tables.max_token,
        "ignore_merges": tables.ignore_merges,
        "has_whole_only": tables.has_whole_only,
        "seed": tables.seed,
        "num_states": rule.num_certain,
        "num_classes": rule.num_classes,
    }


def _set(job: np.void, fields: dict[str, int]) -> None:
    for name, value in fields.items():
        job[name] = value
