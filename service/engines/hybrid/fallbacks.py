"""Fallbacks from the GPU to the CPU: counted, logged once a minute; after failures the GPU rests.

Knows no engine; of a batch only how many rows it has.
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
Answer = TypeVar("Answer")
MAX_HALVINGS = 64  # In one batch: a few rows that do not fit, not each of 65,536.
REST_S = 60.0
MAX_FAILURES = 3
LOG_PERIOD_S = 60.0


class Fallbacks:
    """Counts of fallbacks by reason, and whether the GPU rests after failures in a row.

    Several threads may call at once.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[float, int]] = {}
        self._num_failures = 0
        self._rests_until = float("-inf")
        self._lock = threading.Lock()

    def add(self, reason: str, message: str) -> None:
        """One more fallback; its message is logged unless one of this reason was, a minute ago."""
        with self._lock:
            self._counts[reason] += 1
            count, now = self._counts[reason], self._clock()
            logged_at, before = self._logged.get(reason, (float("-inf"), 0))
            if now - logged_at < LOG_PERIOD_S:
                return
            self._logged[reason] = now, count
        logger.warning("fallback %s (%d since the last line): %s", reason, count - before, message)

    def counts(self) -> dict[str, int]:
        """How many there were, by reason."""
        with self._lock:
            return dict(self._counts)

    def failed(self) -> None:
        """The GPU failed on a batch; after MAX_FAILURES in a row it rests."""
        with self._lock:
            self._num_failures += 1
            if self._num_failures >= MAX_FAILURES:
                self._rests_until = self._clock() + REST_S

    def succeeded(self) -> None:
        """The GPU answered."""
        if self._num_failures:
            with self._lock:
                self._num_failures = 0

    @property
    def is_resting(self) -> bool:
        """Whether the GPU is not to be asked now; after its rest one failure is enough again."""
        return self._clock() < self._rests_until

    def ask(
        self,
        num_rows: int,
        gpu: Callable[[int, int], Answer],
        cpu: Callable[[int, int], Answer],
        join: Callable[[Sequence[Answer]], Answer],
    ) -> Answer:
        """The answer of the GPU to all rows of a batch, and of the CPU where the GPU has none.

        Args:
            num_rows: of the batch.
            gpu: gives the answer to the rows begin to end, or raises what is counted here.
            cpu: gives it, too.
            join: makes one answer of those to neighbouring rows.
        """
        try:
            parts = self._ask_in_halves(num_rows, gpu)
        except NotCovered as error:
            self.add("option", f"a row asks for what the GPU does not do: {error}")
            return cpu(0, num_rows)
        except Exception as error:
            self.add("device_error", f"the GPU failed on a batch: {error!r}")
            self.failed()
            return cpu(0, num_rows)
        self.succeeded()
        answers = [cpu(begin, end) if own is None else own for begin, end, own in parts]
        return answers[0] if len(answers) == 1 else join(answers)

    def _ask_in_halves(
        self, num_rows: int, gpu: Callable[[int, int], Answer]
    ) -> list[tuple[int, int, Answer | None]]:
        """The GPU's answers to parts as large as fit, in order; None to those that do not."""
        waiting, num_halvings = [(0, num_rows)], 0
        parts: list[tuple[int, int, Answer | None]] = []
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
    """A part of a file of memory, page-locked; None where it cannot be.

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
    """The ids where they are wanted, int64[B + 1]; None where the host is needed."""
    try:
        offsets = gpu.encode_shared(vocabulary, rows)
    except NotCovered as error:
        fallbacks.add("option", f"shared texts need the host: {error}")
        return None
    except (ValueError, IndexError) as error:
        # The way through the host says to the client what is wrong.
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
