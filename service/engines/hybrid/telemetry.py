"""Reads the stage times and the memory of a GPU, for the metrics."""

from __future__ import annotations

import copy
import logging
import threading

from gpu.runtime.stage_timer import STAGES
from service.core.counters import STAGE_SECONDS, Histogram
from service.engines.hybrid.selftest import Gpu

logger = logging.getLogger(__name__)


class GpuTelemetry:
    """The stage times and memory of one GPU; several threads may call it at once."""

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self._stages = {stage: Histogram(STAGE_SECONDS) for stage in STAGES}

    def stages(self, gpu: Gpu) -> dict[str, Histogram]:
        """Return the seconds in each stage of all batches that were timed so far."""
        with self._adding:
            for stage, seconds in gpu.stage_times.take():
                self._stages[stage].add(seconds)
            return copy.deepcopy(self._stages)

    def memory(self, gpu: Gpu) -> dict[str, int]:
        """Return the device's bytes by their purpose; {} if it fails, so metrics still work."""
        try:
            return gpu.memory()
        except Exception as error:
            logger.warning("the memory of the GPU cannot be read: %r", error)
            return {}
