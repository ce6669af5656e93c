"""Detects that this process has lost its GPU, for example after an illegal address.

CUDA then refuses every later call of the process on any device. Only another process can use the
GPU again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from gpu.errors import find_lost_context

logger = logging.getLogger(__name__)
MIN_USE_S = 60.0
"""If a GPU is lost sooner than this after opening, a restart would probably not help."""


class DeviceLoss:
    """Records whether the GPU is lost; it is thread-safe.

    Attributes:
        is_lost: whether the GPU is lost to this process.
        on_lost: called once, on any thread, if the process should end because the GPU is lost.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.is_lost = False
        self.on_lost: Callable[[], None] = lambda: None
        self._clock = clock
        self._opened_at = clock()
        self._lock = threading.Lock()

    def note_opened(self) -> None:
        """Record that the GPU is open from now on."""
        self._opened_at = self._clock()

    def note_error(self, error: BaseException) -> None:
        """Record an error of the GPU, which may mean that the GPU is lost."""
        reason = find_lost_context(error)
        if not reason:
            return
        with self._lock:
            if self.is_lost:
                return
            self.is_lost = True
        is_of_use = self._clock() - self._opened_at >= MIN_USE_S
        outcome = "" if is_of_use else "; it was lost so soon that the process does not end for it"
        logger.critical("the GPU is lost to this process by %s; the CPU answers%s", reason, outcome)
        if is_of_use:
            self.on_lost()
