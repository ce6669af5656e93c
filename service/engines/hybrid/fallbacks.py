"""Falls back from the GPU to the CPU, counts that by reason, and logs each reason once a minute.

After MAX_FAILURES failures in a row the GPU rests for REST_S seconds, as a circuit breaker. Knows
no engine, and of a batch only its number of rows.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered, OutOfMemory
from service.engines.hybrid.selftest import Gpu
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
Output = TypeVar("Output")
MAX_HALVINGS = 64  # Of one batch: enough for some rows that do not fit, too few for 65,536.
REST_S = 60.0
MAX_FAILURES = 3
LOG_PERIOD_S = 60.0


class Fallbacks:
    """Counts of fallbacks by reason, and the circuit breaker of the GPU.

    Several threads may call it at once.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[float, int]] = {}
        self._num_failures = 0
        self._rests_until = float("-inf")
        self._lock = threading.Lock()

    def add(self, reason: str, message: str) -> None:
        """Count a fallback, and log its message if none of this reason was logged for a minute."""
        with self._lock:
            self._counts[reason] += 1
            count, now = self._counts[reason], self._clock()
            logged_at, before = self._logged.get(reason, (float("-inf"), 0))
            if now - logged_at < LOG_PERIOD_S:
                return
            self._logged[reason] = now, count
        logger.warning("fallback %s (%d since the last line): %s", reason, count - before, message)

    def counts(self) -> dict[str, int]:
        """Return the number of fallbacks by reason."""
        with self._lock:
            return dict(self._counts)

    def failed(self) -> None:
        """Note that the GPU failed on a batch; after MAX_FAILURES in a row it rests."""
        with self._lock:
            self._num_failures += 1
            if self._num_failures >= MAX_FAILURES:
                self._rests_until = self._clock() + REST_S

    def succeeded(self) -> None:
        """Note that the GPU computed a batch."""
        if self._num_failures:
            with self._lock:
                self._num_failures = 0

    @property
    def is_resting(self) -> bool:
        """Whether the GPU gets no batches now; after its rest one failure makes it rest again."""
        return self._clock() < self._rests_until

    def run(
        self,
        num_rows: int,
        gpu: Callable[[int, int], Output],
        cpu: Callable[[int, int], Output],
        join: Callable[[Sequence[Output]], Output],
    ) -> Output:
        """Compute all rows of a batch on the GPU, and those that it cannot compute on the CPU.

        Args:
            num_rows: the number of rows.
            gpu: computes the rows from begin to end on the GPU, or raises.
            cpu: computes them on the CPU.
            join: joins the outputs of consecutive rows.
        """
        try:
            parts = self._run_in_halves(num_rows, gpu)
        except NotCovered as error:
            self.add("option", f"the GPU does not cover the options of a row: {error}")
            return cpu(0, num_rows)
        except Exception as error:
            self.add("device_error", f"the GPU failed on a batch: {error!r}")
            self.failed()
            return cpu(0, num_rows)
        self.succeeded()
        outputs = [cpu(begin, end) if output is None else output for begin, end, output in parts]
        return outputs[0] if len(outputs) == 1 else join(outputs)

    def _run_in_halves(
        self, num_rows: int, gpu: Callable[[int, int], Output]
    ) -> list[tuple[int, int, Output | None]]:
        """Compute parts that fit the GPU, in order: begin, end and output, None if it does not."""
        waiting = [(0, num_rows)]
        num_halvings = 0
        parts: list[tuple[int, int, Output | None]] = []
        while waiting:
            begin, end = waiting.pop()
            try:
                parts.append((begin, end, gpu(begin, end)))
            except OutOfMemory as error:
                num_halvings += 1
                self.add("out_of_memory", f"{end - begin} rows do not fit: {error}")
                if end - begin > 1 and num_halvings <= MAX_HALVINGS:
                    middle = (begin + end) // 2
                    waiting += [(middle, end), (begin, middle)]
                else:
                    parts.append((begin, end, None))
        return parts


def share_host(
    gpu: Gpu, fallbacks: Fallbacks, file: int, offset: int, num_bytes: int
) -> SharedMemory | None:
    """Page-lock a part of a memory file; None: it cannot be, which counts as a fallback.

    Raises:
        ValueError: the file is shorter.
    """
    try:
        return gpu.share_host(file, offset, num_bytes)
    except (OutOfMemory, OSError) as error:
        fallbacks.add("out_of_memory", str(error))
        return None


def encode_shared(
    gpu: Gpu, fallbacks: Fallbacks, vocabulary: Vocabulary, rows: SharedRows
) -> NDArray[np.int64] | None:
    """Encode texts in shared memory; return offsets int64[B + 1], or None: the host has to."""
    try:
        offsets = gpu.encode_shared(vocabulary, rows)
    except NotCovered as error:
        fallbacks.add("option", f"shared texts need the host: {error}")
        return None
    except (ValueError, IndexError) as error:
        # The host reports to the client what is wrong.
        fallbacks.add("shared_memory", f"shared memory cannot be used: {error}")
        return None
    except OutOfMemory as error:
        fallbacks.add("out_of_memory", f"shared texts do not fit: {error}")
        return None
    except Exception as error:
        fallbacks.add("device_error", f"the GPU failed on shared texts: {error!r}")
        fallbacks.failed()
        return None
    fallbacks.succeeded()
    return offsets
