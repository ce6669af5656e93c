"""A fake GPU with the CPU engine's answers, on which tests make calls fail."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpu.errors import NotCovered, OutOfMemory
from gpu.memory.ipc import SharedDeviceMemory, SharedHostMemory
from gpu.runtime.stage_timer import StageTimes
from service.engines.base import Engine
from service.engines.hybrid.residency import OpenedGpu
from tests.support.emulation.device import EmulatedDevice
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.batch.shared_rows import SharedRows
from vocabularies.model.vocabulary import Vocabulary


class FakeGpu:
    """A GPU engine with the answers of `cpu`.

    Attributes:
        max_rows: more rows than this are out of memory.
        heavy: a row that contains it does not fit into memory even alone.
        failing: how many of the next calls fail.
        wrong: changes an answer before it is returned.
        uncovered: digests that the kernels do not cover.
        room: how many vocabularies fit; the least recently used is unloaded.
        gate: while it is cleared, loading waits.
        num_shared, failing_shared: calls whose ids were put into shared memory; how many of the
            next fail.
        calls, answered: the rows of every call, and of every call that did not fail, in order.
    """

    def __init__(self, cpu: Engine) -> None:
        self.cpu = cpu
        self.max_rows, self.heavy, self.failing, self.room = 1 << 30, "\0heavy", 0, 99
        self.wrong: Callable[[Encoded], None] = lambda encoded: None
        self.uncovered: set[str] = set()
        self.permanent: set[str] = set()
        self.residents: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.load_error: Exception | None = None
        self.calls: list[int] = []
        self.answered: list[int] = []
        self.num_loads = self.num_shared = self.failing_shared = 0
        self.is_closed = False
        self.device = EmulatedDevice()
        self.lent: list[np.ndarray] = []
        self.stage_times = StageTimes()

    def opened(self) -> OpenedGpu:
        """Return the GPU as `HybridEngine` opens it."""
        return OpenedGpu(self, {"name": "fake", "total_bytes": 1})

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> int:
        """Make a vocabulary resident; beyond `room` of them unload the least recently used."""
        assert self.gate.wait(60)
        self.num_loads += 1
        if self.load_error is not None:
            raise self.load_error
        if vocabulary.digest in self.uncovered:
            raise NotCovered("a vocabulary in `uncovered`")
        if permanent:
            self.permanent.add(vocabulary.digest)
        self.unload(vocabulary.digest)
        self.residents.append(vocabulary.digest)
        while len(self.residents) > self.room:
            self.residents.remove(next(d for d in self.residents if d not in self.permanent))
        return 1000

    def unload(self, digest: str) -> None:
        """Make a vocabulary not resident."""
        if digest in self.residents:
            self.residents.remove(digest)

    def is_resident(self, digest: str) -> bool:
        """Return whether a vocabulary is resident."""
        return digest in self.residents

    def _call(self, vocabulary: Vocabulary, num_rows: int) -> None:
        assert self.is_resident(vocabulary.digest)
        self.calls.append(num_rows)
        if self.failing:
            self.failing -= 1
            raise RuntimeError("told to fail")
        if num_rows > self.max_rows:
            raise OutOfMemory(f"{num_rows} rows, more than `max_rows`")

    def _check(self, batch: Batch) -> None:
        if any(self.heavy.encode() in batch.row_bytes(row) for row in range(len(batch))):
            raise OutOfMemory("a row with `heavy`")
        options = batch.options
        each = [options] if isinstance(options, EncodeOptions) else options
        if any(one.reverse_complement for one in each):
            raise NotCovered("no other strands")

    def host_memory(self, num_bytes: int) -> np.ndarray | None:
        """Allocate memory; None if `room` is 0."""
        if not self.room:
            return None
        self.lent.append(np.empty(num_bytes, np.uint8))
        return self.lent[-1]

    def open_shared(self, handle: bytes, num_bytes: int) -> SharedDeviceMemory:
        """Open memory of an emulated device."""
        return SharedDeviceMemory(self.device, handle, num_bytes)

    @property
    def page_locked_bytes(self) -> int:
        """The page-locked bytes of the emulated device."""
        return self.device.page_locked_bytes

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedHostMemory:
        """Map a part of a file."""
        return SharedHostMemory(self.device, file, offset, num_bytes)

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> np.ndarray:
        """Write the CPU engine's ids into the shared memory."""
        assert self.is_resident(vocabulary.digest)
        if self.failing_shared:
            self.failing_shared -= 1
            raise RuntimeError("told to fail")
        text = np.empty(len(rows.text), np.uint8)
        rows.text.memory.read(rows.text.begin, text)
        batch = Batch(data=text, offsets=rows.offsets, options=rows.options)
        encoded = self.cpu.encode(vocabulary, batch)
        ids = encoded.ids.astype(f"<u{rows.id_bytes}")
        if encoded.errors:
            raise NotCovered("refused rows are the host's")
        if ids.nbytes > rows.out_bytes:
            raise ValueError("no room")
        ctypes.memmove(rows.out.address + rows.out_begin, ids.ctypes.data, ids.nbytes)
        self.num_shared += 1
        return encoded.offsets

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Return the CPU engine's ids."""
        self._call(vocabulary, len(batch))
        self._check(batch)
        encoded = replace(self.cpu.encode(vocabulary, batch), engine="gpu")
        self.wrong(encoded)
        self.answered.append(len(batch))
        return encoded

    def count(self, vocabulary: Vocabulary, batch: Batch) -> tuple[np.ndarray, dict[int, RowError]]:
        """Return the CPU engine's counts."""
        self._call(vocabulary, len(batch))
        self._check(batch)
        counted = self.cpu.count(vocabulary, batch)
        return counted.counts, counted.errors

    def decode(
        self, vocabulary: Vocabulary, ids: np.ndarray, offsets: np.ndarray, skip: bool
    ) -> tuple[Any, ...]:
        """Return the CPU engine's bytes."""
        self._call(vocabulary, len(offsets) - 1)
        decoded = self.cpu.decode(vocabulary, ids, offsets, skip)
        return decoded.data, decoded.offsets, decoded.errors

    def memory(self) -> dict[str, int]:
        """Return made-up sizes of memory."""
        return {"total": 10_000, "free": 4_000, "workspaces": 2_000, "vocabularies": 1_000}

    def close(self) -> None:
        """Note that the GPU was closed."""
        self.is_closed = True
