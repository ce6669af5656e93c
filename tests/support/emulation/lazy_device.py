"""An emulated device whose streams do their work at any time, as those of a real one may.

    stream 0    copy  copy       copy           what is queued runs when a stream is waited for,
    stream 1          └─ follow  kernel         or when chance says so, in each stream's order

Work that is not queued behind the work it depends on runs too early, or reads overwritten data.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

import numpy as np

from gpu.kernels.catalog import KERNELS
from gpu.kernels.job import JOB
from tests.support.emulation.device import EmulatedDevice, EmulatedStream


class LazyStream(EmulatedStream):
    """A stream that delays its work; see gpu.runtime.device.Stream.

    Attributes:
        queued: the work that has not run yet.
        num_queued, num_done: the number of works that were queued, and that have run.
    """

    def __init__(self, device: LazyDevice) -> None:
        super().__init__(device)
        self.lazy = device
        self.queued: deque[tuple[str, tuple[Any, ...]]] = deque()
        self.num_queued = self.num_done = 0

    def _do(self, name: str, *arguments: Any) -> None:
        if self.recording is None and name == "launch" and KERNELS[arguments[0]].takes_job:
            job = ctypes.string_at(arguments[2], JOB.itemsize)  # As it is now.
            arguments = (*arguments[:2], np.frombuffer(job, np.uint8).copy())
        if self.recording is not None:
            super()._do(name, *arguments)
            return
        self.queued.append((name, arguments))
        self.num_queued += 1
        self.lazy.let_some_run()

    def run_one(self) -> None:
        """Run the first queued work, after the work that it follows."""
        name, arguments = self.queued.popleft()
        if name == "follow":
            other, count = arguments
            while other.num_done < count:
                other.run_one()
        elif name == "launch" and isinstance(arguments[2], np.ndarray):
            super()._do(name, *arguments[:2], int(arguments[2].ctypes.data))
        else:
            super()._do(name, *arguments)
        self.num_done += 1

    def follow(self, other: EmulatedStream) -> None:
        assert isinstance(other, LazyStream)
        self._do("follow", other, other.num_queued)

    def synchronize(self) -> None:
        while self.queued:
            self.run_one()


class LazyDevice(EmulatedDevice):
    """A device whose streams delay their work; see gpu.runtime.device.Device."""

    def __init__(self, seed: int) -> None:
        super().__init__(1 << 32)
        self.chance = np.random.default_rng(seed)
        self.streams: list[LazyStream] = []

    def stream(self) -> LazyStream:
        self.streams.append(LazyStream(self))
        return self.streams[-1]

    def let_some_run(self) -> None:
        """Run some queued work of some streams, chosen at random."""
        for stream in self.streams:
            for _ in range(int(self.chance.integers(6)) if self.chance.random() < 0.2 else 0):
                if stream.queued:
                    stream.run_one()
