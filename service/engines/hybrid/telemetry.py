"""What is seen of a GPU: how long the stages of some batches took, and who has its memory."""

from __future__ import annotations

import copy
import logging
import threading

from gpu.runtime.stage_timer import STAGES
from service.core.counters import STAGE_SECONDS, Histogram
from service.engines.hybrid.selftest import Gpu

logger = logging.getLogger(__name__)


class GpuTelemetry:
    """Adds up what one GPU tells; several threads may call at once."""

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self._stages = {stage: Histogram(STAGE_SECONDS) for stage in STAGES}

    def stages(self, gpu: Gpu) -> dict[str, Histogram]:
        """Seconds in each stage of all batches that were timed until now."""
        with self._adding:
            for stage, seconds in gpu.stage_times.take():
                self._stages[stage].add(seconds)
            return copy.deepcopy(self._stages)

    def memory(self, gpu: Gpu) -> dict[str, int]:
        """Bytes by what they are for; nothing of a device that does not answer: all else counts."""
        try:
            return gpu.memory()
        except Exception as error:
            logger.warning("the GPU does not say how much memory it has: %r", error)
            return {}
