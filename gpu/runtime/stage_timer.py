"""How long a batch is in each stage: one in so many is timed, by events between its kernels.

A batch that is timed launches its kernels one by one instead of as a recording; all others pay a
comparison. Stages have the names of the service's metrics:

    stage            into pinned memory, by the host
    copy_to_device   and what kernels count in cleared
    pretokenize      hard bits, special tokens, start bits, cuts; letters of DNA
    merge            the ids of pieces
    compact          ids one after another; frames
    copy_to_host     the report, and the ids
    fused            a small batch, all of it one launch
"""

from __future__ import annotations

from collections import deque
from typing import Any

from gpu.runtime.device import Stream

STAGES = ("stage", "copy_to_device", "pretokenize", "merge", "compact", "copy_to_host", "fused")
TIMED_EVERY = 128
KEPT = 4096


class Clock:
    """Marks on the stream of one batch; read once all of it is done."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._stage = ""
        self._begin: Any = None
        self._spans: list[tuple[str, Any, Any]] = []
        self._on_host: list[tuple[str, float]] = []

    def enter(self, stage: str) -> None:
        """What is queued from now on is of a stage."""
        if stage != self._stage:
            mark = self._stream.mark()
            self._end(mark)
            self._stage, self._begin = stage, mark

    def leave(self) -> None:
        """What is queued from now on is of no stage: the host may wait meanwhile."""
        if self._stage:
            self._end(self._stream.mark())
            self._stage = ""

    def _end(self, mark: Any) -> None:
        if self._stage:
            self._spans.append((self._stage, self._begin, mark))

    def add(self, stage: str, seconds: float) -> None:
        """Time that the host took."""
        self._on_host.append((stage, seconds))

    def read(self) -> dict[str, float]:
        """Seconds in each stage; everything on the stream must be done."""
        seconds: dict[str, float] = {}
        for stage, begin, end in self._spans:
            seconds[stage] = seconds.get(stage, 0.0) + self._stream.seconds(begin, end)
        for stage, taken in self._on_host:
            seconds[stage] = seconds.get(stage, 0.0) + taken
        return seconds


class StageTimes:
    """Which batches are timed, and what was measured; several threads may call at once.

    Args:
        every: so many batches have one that is timed, the last of them.

    Attributes:
        num_untimed: batches before the next one that is timed. A batch that needs no clock takes
            one off; two threads may take off the same one, and the next is timed later.
    """

    def __init__(self, every: int = TIMED_EVERY) -> None:
        self.time_every(every)
        self._measured: deque[tuple[str, float]] = deque(maxlen=KEPT)

    def time_every(self, every: int) -> None:
        """Time the last one of so many batches from now on."""
        self.every = every
        self.num_untimed = every - 1

    def clock(self, stream: Stream) -> Clock | None:
        """For the next batch; None where it is not timed."""
        if self.num_untimed > 0:
            self.num_untimed -= 1
            return None
        self.num_untimed = self.every - 1
        return Clock(stream)

    def add(self, clock: Clock) -> None:
        """Keep what a clock says of a batch that is done."""
        self._measured.extend(clock.read().items())

    def take(self) -> list[tuple[str, float]]:
        """Stage and seconds of what was measured since the last call, KEPT at most."""
        taken = []
        while self._measured:
            taken.append(self._measured.popleft())
        return taken
