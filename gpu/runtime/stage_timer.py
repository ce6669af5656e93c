"""Measures the time of each stage for one batch in TIMED_EVERY, by events between kernels.

The kernels of a timed batch are launched one by one instead of as a recording. Stages have the
names of the service's metrics:

    stage            the host copies text to pinned memory
    copy_to_device   the batch is copied to the device, and counters are cleared
    pretokenize      hard bits, special tokens, start bits and splits; packing of DNA letters
    merge            the ids of pieces
    compact          ids one after another, and post-processing
    copy_to_host     the report and the ids are copied
    fused            a small batch in one launch
"""

from __future__ import annotations

from collections import deque
from typing import Any

from gpu.runtime.device import Stream

STAGES = ("stage", "copy_to_device", "pretokenize", "merge", "compact", "copy_to_host", "fused")
TIMED_EVERY = 128
KEPT = 4096


class Clock:
    """The clock of one timed batch, which marks its stream between stages."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._stage = ""
        self._begin: Any = None
        self._spans: list[tuple[str, Any, Any]] = []
        self._on_host: list[tuple[str, float]] = []

    def enter(self, stage: str) -> None:
        """Count work that is queued from now on under a stage."""
        if stage != self._stage:
            mark = self._stream.mark()
            self._end(mark)
            self._stage, self._begin = stage, mark

    def leave(self) -> None:
        """Count work that is queued from now on under no stage, as the host may wait meanwhile."""
        if self._stage:
            self._end(self._stream.mark())
            self._stage = ""

    def _end(self, mark: Any) -> None:
        if self._stage:
            self._spans.append((self._stage, self._begin, mark))

    def add(self, stage: str, seconds: float) -> None:
        """Add time of the host to a stage."""
        self._on_host.append((stage, seconds))

    def read(self) -> dict[str, float]:
        """Return the seconds of each stage; all work on the stream must be done."""
        seconds: dict[str, float] = {}
        for stage, begin, end in self._spans:
            seconds[stage] = seconds.get(stage, 0.0) + self._stream.seconds(begin, end)
        for stage, duration in self._on_host:
            seconds[stage] = seconds.get(stage, 0.0) + duration
        return seconds


class StageTimes:
    """Chooses the batches that are timed, and stores their times; thread-safe.

    Args:
        every: the last one of every `every` batches is timed.

    Attributes:
        num_untimed: batches before the next one that is timed. A batch without a clock decrements
            it; two threads may do so at once, and the next batch is timed later.
    """

    def __init__(self, every: int = TIMED_EVERY) -> None:
        self.time_every(every)
        self._measured: deque[tuple[str, float]] = deque(maxlen=KEPT)

    def time_every(self, every: int) -> None:
        """From now on, time the last one of every `every` batches."""
        self.every = every
        self.num_untimed = every - 1

    def clock(self, stream: Stream) -> Clock | None:
        """Return the clock of the next batch; None if it is not timed."""
        if self.num_untimed > 0:
            self.num_untimed -= 1
            return None
        self.num_untimed = self.every - 1
        return Clock(stream)

    def add(self, clock: Clock) -> None:
        """Store the times of a batch that is done."""
        self._measured.extend(clock.read().items())

    def take(self) -> list[tuple[str, float]]:
        """Return the stages and seconds measured since the last call, at most KEPT."""
        measured = []
        while self._measured:
            measured.append(self._measured.popleft())
        return measured
