"""The device, memory and threads that all calls of one engine share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.host.copy_pool import CopyPool
from gpu.memory.pinned_pool import PinnedPool
from gpu.memory.workspace_pool import WorkspacePool
from gpu.runtime.device import Device
from gpu.runtime.stage_timer import StageTimes
from gpu.vocabulary.cache import VocabularyCache


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """The device, its memory and the threads of one engine.

    Attributes:
        device: the device.
        processors: the number of its multiprocessors.
        fused_bytes: the size of the largest batch that a fused kernel can encode, in bytes.
        residents: the vocabularies on the device.
        workspaces: memory and streams for batches.
        staging: threads that copy into pinned memory.
        leases: pinned memory for answers.
        stage_times: the measured times of stages.
    """

    device: Device
    processors: int
    fused_bytes: int
    residents: VocabularyCache
    workspaces: WorkspacePool
    staging: CopyPool
    leases: PinnedPool
    stage_times: StageTimes

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8] | None:
        """Lease pinned memory for text, uint8[num_bytes]; None if it would exceed the limit."""
        block = self.leases.take(num_bytes)
        return None if block is None else block[:num_bytes]

    def close(self) -> None:
        """Free all memory and end the threads."""
        self.residents.close()
        self.workspaces.close()
        self.leases.close()
        self.staging.close()
