"""What happened when the GPU could not answer: counted, logged once a minute, and given a rest.

Knows no engine and no batch.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic

__all__ = ["REST_S", "Fallbacks"]

logger = logging.getLogger(__name__)
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
