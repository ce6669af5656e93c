"""A device with gaps between all fields, so that a write outside a field is detected.

A batch has a workspace of exactly its size. Its fields, also those that share memory elsewhere, and
the tables of vocabularies have gaps between them. An address sanitizer (compiled.EMULATION_FLAGS)
sees what is read or written there; without one only writes are seen, when memory is given back.

    with redzones() as device:
        engine = GpuEngine(device, 1 << 28)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu.kernels.job import JOB
from gpu.memory import workspace as memory
from gpu.memory import workspace_layout as layout
from gpu.memory.workspace import Workspace
from gpu.memory.workspace_layout import BYTES_A_ROW, TILE, Capacity
from gpu.memory.workspace_pool import WorkspacePool
from gpu.runtime.device import Bytes
from gpu.vocabulary.cache import Resident, VocabularyCache
from gpu.vocabulary.device_tables import DeviceTables
from tests.support.emulation.device import EmulatedDevice, EmulatedStream

GAP, ALIGNMENT, VECTOR = 4096, 256, 16
UNTOUCHED = 0xA5
BEHIND = {
    "misses0": ("misses", "merged_counts"),
    "letters": ("letters", "letter_places"),
    "base_words": tuple(layout.LAYOUTS["dna"].scratch(TILE, 1))[:-1],
}
"""Fields that others share together with those behind them, by how the names of all begin."""


def _sanitizer(name: str) -> Callable[[int, int], object] | None:
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return function


_poison, _unpoison = map(
    _sanitizer, ("__asan_poison_memory_region", "__asan_unpoison_memory_region")
)


class Gaps(dict[int, int]):
    """Memory that no kernel may access, as {begin: end}."""

    def add(self, begin: int, end: int) -> None:
        self[begin] = end
        if _poison is None:
            ctypes.memset(begin, UNTOUCHED, end - begin)
        else:
            _poison(begin, end - begin)

    def end(self, begin: int, end: int) -> None:
        """Forget the gaps in this memory."""
        for gap in [gap for gap in self if begin <= gap < end]:
            size = self.pop(gap) - gap
            if _unpoison is not None:
                _unpoison(gap, size)
            else:
                written = np.frombuffer(ctypes.string_at(gap, size), np.uint8) != UNTOUCHED
                assert not written.any(), f"byte {written.argmax()} behind a field was written"


class RedzoneStream(EmulatedStream):
    """A stream that clears fields, but not the gaps between them."""

    device: RedzoneDevice

    def _do(self, name: str, *arguments: Any) -> None:
        if self.recording is not None:
            super()._do(name, *arguments)
        elif name == "clear":
            begin, end = arguments[0], sum(arguments)
            for gap, behind in sorted(self.device.gaps.items()):
                if begin <= gap < end:
                    ctypes.memset(begin, 0, gap - begin)
                    begin = behind
            ctypes.memset(begin, 0, max(0, end - begin))
        elif name == "launch" and (
            arguments[0] == "load_batch" or arguments[0].startswith("encode_")
        ):
            record = (ctypes.c_uint8 * JOB.itemsize).from_address(arguments[2])
            job = np.frombuffer(record, JOB)
            count = int(job["num_cleared"][0])
            self._do("clear", int(job["cleared"][0]), 8 * count)
            job["num_cleared"] = 0
            super()._do(name, *arguments)
            job["num_cleared"] = count
        else:
            super()._do(name, *arguments)


class RedzoneDevice(EmulatedDevice):
    """A device with a gap around each allocation; see gpu.runtime.device.Device."""

    def __init__(self) -> None:
        super().__init__()
        self.gaps = Gaps()

    def _memory(self, num_bytes: int) -> Bytes:
        whole = super()._memory(num_bytes + 2 * GAP)
        begin, end = GAP, GAP + -(-num_bytes // VECTOR) * VECTOR  # A load may end in the last one.
        place = whole.ctypes.data
        self.gaps.add(place, place + begin)
        self.gaps.add(place + end, place + len(whole))
        return whole[begin : begin + num_bytes]

    def free(self, address: int) -> None:
        self.gaps.end(address - GAP, address + len(self.blocks[address]) + GAP)
        super().free(address)

    def free_pinned(self, memory: Bytes) -> None:
        place = memory.ctypes.data
        self.gaps.end(place - GAP, place + memory.nbytes + GAP)
        super().free_pinned(memory)

    def stream(self) -> RedzoneStream:
        return RedzoneStream(self)


class _Layouts(dict[str, layout.Layout]):
    """Layouts in which aliases have memory of their own."""

    def __missing__(self, name: str) -> layout.Layout:
        aliases = _LAYOUTS[name].aliases

        def scratch(n: int, rows: int) -> dict[str, int]:
            fields = _LAYOUTS[name].scratch(n, rows)
            sizes = layout._cleared(n, rows) | layout._scratch(n, rows) | fields
            return fields | {field: _size(sizes, other) for field, other in aliases.items()}

        return replace(_LAYOUTS[name], scratch=scratch, aliases={})


_LAYOUTS = layout.LAYOUTS


def _size(sizes: Mapping[str, int], field: str) -> int:
    begins = BEHIND.get(field)
    return sum(sizes[n] for n in sizes if n.startswith(begins)) if begins else sizes[field]


@contextmanager
def redzones() -> Iterator[RedzoneDevice]:
    """Yield a device on which engines made in the block have gaps between their fields."""
    device, fields = RedzoneDevice(), list[tuple[int, int]]()
    make = Workspace.__init__

    def cut(sizes: dict[str, int], begin: int) -> tuple[dict[str, int], int]:
        places = {}
        for name, size in sizes.items():
            places[name] = begin
            fields.append((begin + size, begin + size + GAP))
            begin = -(-(begin + size + GAP) // ALIGNMENT) * ALIGNMENT
        return places, begin

    def make_workspace(self: Workspace, device: RedzoneDevice, capacity: Capacity) -> None:
        fields.clear()
        make(self, device, capacity)
        block, last = self.block, 0
        for begin, end in fields:  # Those of the device, then those of pinned memory.
            block = block if begin > last else self.pinned.ctypes.data
            last = begin
            device.gaps.add(block + begin, block + end)

    def take(
        self: WorkspacePool, num_bytes: int, num_rows: int, layout: str = "text", *, wait: bool
    ) -> Workspace:
        size = max(TILE, num_bytes, BYTES_A_ROW * num_rows)
        return Workspace(self.device, Capacity(size, max(1, num_rows), layout))

    def upload(self: VocabularyCache, prepared: DeviceTables) -> Resident:
        fields.clear()
        places, size = cut({name: array.nbytes for name, array in prepared.arrays.items()}, 0)
        address = self._allocate(size)
        for name, array in prepared.arrays.items():
            ctypes.memmove(address + places[name], array.ctypes.data, array.nbytes)
        for begin, end in fields:
            device.gaps.add(address + begin, address + end)
        whole_only, rounds = bool(prepared.numbers.get("has_whole_only")), prepared.num_rounds
        values = {**prepared.numbers, **{name: address + at for name, at in places.items()}}
        return Resident(prepared.family, values, rounds, whole_only, address, size, users=1)

    with pytest.MonkeyPatch.context() as patch:
        for module in (layout, memory):
            patch.setattr(module, "cut", cut)
        patch.setattr(layout, "LAYOUTS", _Layouts())
        patch.setattr(Workspace, "__init__", make_workspace)
        patch.setattr(WorkspacePool, "_take", take)
        patch.setattr(WorkspacePool, "give", lambda self, workspace: workspace.close())
        patch.setattr(VocabularyCache, "_upload", upload)
        layout.device_bytes.cache_clear()
        yield device
    layout.device_bytes.cache_clear()
