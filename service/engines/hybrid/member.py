"""Manages the state of one of several GPUs: its failures, and when it is tried again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal, Protocol, TypeVar

from gpu.errors import DeviceLost
from service.engines.base import DeviceActivity
from service.engines.hybrid.device_threads import DeviceThreads
from service.engines.hybrid.gpu_selftest import Gpu
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

MAX_FAILURES = 3  # In a row, after which a GPU rests.
REST_S = 60.0
MIN_RESTART_S = 1.0  # Before the second start of a process; then it doubles up to REST_S.
STEADY_S = 60.0  # A process that ran for so long is started again at once.
PATIENCE_S = 120.0  # The longest wait for an upload, which may have kernels to compile.
REVIVAL_S = 600.0  # The longest time in which a GPU loads what the others have.
State = Literal["ready", "resting", "hanging"]
Output = TypeVar("Output")


class Hangs(RuntimeError):
    """A call on a GPU has not returned in time."""


class GpuProcess(Protocol):
    """The separate process of a GPU."""

    @property
    def is_alive(self) -> bool:
        """Return whether the process can be called."""

    def kill(self) -> None:
        """Kill the process; calls that wait for it get a DeviceLost."""

    def restart(self) -> None:
        """Start another process as a replacement, and wait until it has opened the device."""

    def open_regions(self) -> None:
        """Open the regions of host memory that other GPUs have opened."""

    def begin_encode(
        self, vocabulary: Vocabulary, batch: Batch, done: Callable[[Encoded | Exception], None]
    ) -> bool:
        """Begin to encode joined texts on the running event loop, which calls `done` later.

        Returns:
            Whether the call has begun; otherwise `done` is never called.
        """

    def refresh(self) -> None:
        """Read the counts of the process; if this does not return in time, the GPU is hanging."""


@dataclass(slots=True, eq=False)
class Member:
    """One of several GPUs.

    Attributes:
        gpu: the engine of the GPU.
        number: the number of the device, as this process sees it.
        label: the unique name of the GPU in metrics.
        threads: the threads that run its calls.
        process: the separate process of the GPU; None: this process uses it.
        state: "ready"; "resting" after failures; "hanging" while calls do not return.
        bytes_in_flight: the bytes of the batches that it is computing.
        last_used: the number of the last call for which it was chosen.
        ready_since: the monotonic time from which on it is ready.
        retry_at: the monotonic time from which on a resting one is tested.
        refused: the digests of vocabularies that failed the self-test on this GPU.
        loading: the digests of missing vocabularies, and the monotonic time of the next attempt.
        reviving: the running test or upload, or None.
        reviving_since: the monotonic time at which it began.
        refreshing: the last reading of counts, or None.
        refreshing_since: the monotonic time at which it began.
    """

    gpu: Gpu
    number: int
    label: str
    threads: DeviceThreads
    process: GpuProcess | None = None
    state: State = "ready"
    bytes_in_flight: int = 0
    last_used: int = 0
    num_batches: int = 0
    num_bytes: int = 0
    num_failures: int = 0
    failures_in_row: int = 0
    num_hanging: int = 0
    ready_since: float = field(default_factory=monotonic)
    retry_at: float = float("-inf")
    refused: set[str] = field(default_factory=set)
    loading: dict[str, float] = field(default_factory=dict)
    reviving: Future[None] | None = None
    reviving_since: float = float("-inf")
    refreshing: Future[None] | None = None
    refreshing_since: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)
    _restart_delay_s: float = 0.0
    _ends: list[float] = field(default_factory=list)  # Of the batches that are being computed.
    _is_late: bool = False  # One of them had not returned in time at the last look.

    def watch(self, timeout_s: float) -> float:
        """Let `kill_if_late` kill the process after this time; return what `unwatch` needs."""
        end = monotonic() + timeout_s
        self._ends.append(end)
        return end

    def unwatch(self, end: float) -> None:
        """Note that a watched batch has returned."""
        self._ends.remove(end)

    def kill_if_late(self, now: float) -> None:
        """Kill the process if a batch has not returned in time; its caller gets a DeviceLost.

        The log has one line when this begins, and one when the batch has returned.
        """
        if self.process is None:
            return
        was_late, self._is_late = self._is_late, any([now > end for end in list(self._ends)])
        if self._is_late:
            if not was_late:
                logger.error("%s hangs: a batch has not returned in time", self.label)
            self.process.kill()
        elif was_late:
            logger.warning("%s does not hang any more: the late batch has ended", self.label)

    def wait_for(self, future: Future[Output], timeout_s: float) -> Output:
        """Wait for a call of this GPU.

        Raises:
            Hangs: the call has not returned in time; the GPU is excluded until it does.
        """
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():  # The call raised it, or has just returned.
                return future.result()
            self.hang(future)
            raise Hangs(f"{self.label} has not answered in time") from None
        finally:
            del future  # The error's traceback leads to this frame.

    def hang(self, future: Future[Any]) -> None:
        """Exclude the GPU until a call returns; kill its process, so that the call returns."""
        with self.lock:
            self._forgive_if_steady()
            self.state = "hanging"
            self.num_hanging += 1
            self.num_failures += 1
        logger.error("%s hangs: a call has not returned in time", self.label)
        if self.process is not None:
            self.process.kill()
        future.add_done_callback(self._has_returned)

    def _has_returned(self, _: Future[Any]) -> None:
        with self.lock:
            self.num_hanging -= 1
            if not self.num_hanging:
                self.state = "resting"
                self.retry_at = monotonic()
                if self.process is not None:
                    self.retry_at += self._next_restart_delay_s()
        logger.warning("%s answers again and will be tested", self.label)

    def fail(self, error: BaseException, *, at_once: bool = False) -> None:
        """Record a failure; exclude the GPU for a time, after MAX_FAILURES or immediately.

        If its process has ended, it is excluded immediately, until the process may start again.
        """
        if isinstance(error, Hangs):
            return
        is_lost = isinstance(error, DeviceLost)
        with self.lock:
            self.num_failures += 1
            self.failures_in_row += 1
            is_out = at_once or is_lost or self.failures_in_row >= MAX_FAILURES
            if is_out and self.state == "ready":
                self._forgive_if_steady()
                rest_s = self._next_restart_delay_s() if is_lost else REST_S
                self.state, self.retry_at = "resting", monotonic() + rest_s
        # The error itself would keep the texts of its batch in the record.
        text = "%s failed and rests: %s" if is_out else "%s failed: %s"
        logger.error(text, self.label, repr(error))

    def fail_to_revive(self, error: BaseException) -> None:
        """Record that the GPU failed its test; the next test uses a new process."""
        with self.lock:
            self.retry_at = monotonic() + REST_S
            if self.process is not None:
                self.process.kill()
                self.retry_at = monotonic() + self._next_restart_delay_s()
        logger.warning("%s still fails: %s", self.label, repr(error))

    def revive(self) -> None:
        """Use the GPU again, unless calls still hang."""
        with self.lock:
            if self.num_hanging:
                return
            self.state, self.failures_in_row = "ready", 0
            self.ready_since = monotonic()
        logger.warning("%s is back", self.label)

    def _forgive_if_steady(self) -> None:
        """Allow an immediate restart of the process if it has been ready for a long time."""
        if self.state == "ready" and monotonic() - self.ready_since > STEADY_S:
            self._restart_delay_s = 0.0

    def _next_restart_delay_s(self) -> float:
        """Return the time until the next start of the process, and lengthen the following one."""
        delay_s = self._restart_delay_s
        self._restart_delay_s = min(max(2 * delay_s, MIN_RESTART_S), REST_S)
        return delay_s

    def activity(self) -> DeviceActivity:
        """Return the state and the counts so far."""
        return DeviceActivity(
            self.state, self.num_batches, self.num_bytes, self.num_failures, self.bytes_in_flight
        )
