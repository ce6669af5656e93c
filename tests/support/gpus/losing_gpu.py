"""A fake GPU that loses its CUDA context at a certain text, and programs that serve with it.

The arguments of the program are "single", or "engine" and the path of a listening Unix socket; the
settings come from the environment.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import service.engines.hybrid.device_loss as device_loss
from service.core.settings import Settings, read_settings
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.residency import OpenedGpu
from tests.support.gpus.fake_gpu import FakeGpu
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

DEADLY = b"DEADLY"
ILLEGAL_ADDRESS = 700


class CudaError(RuntimeError):
    """An error of CUDA, as CuPy raises it."""

    status = ILLEGAL_ADDRESS


class LosingGpu(FakeGpu):
    """A fake GPU whose context is lost from the first batch with DEADLY on.

    Attributes:
        num_lost_calls: the calls after the context was lost, and the one that lost it.
    """

    def __init__(self, cpu: Any) -> None:
        super().__init__(cpu)
        self.num_lost_calls = 0

    def _check(self, batch: Batch) -> None:
        if self.num_lost_calls or DEADLY in batch.data.tobytes():
            self.num_lost_calls += 1
            raise CudaError("cudaErrorIllegalAddress")
        super()._check(batch)

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> int:
        if self.num_lost_calls:
            self.num_lost_calls += 1
            raise CudaError("cudaErrorIllegalAddress")
        return super().load(vocabulary, permanent)

    def close(self) -> None:
        if self.num_lost_calls:
            raise CudaError("cudaErrorIllegalAddress")


def open_gpus(settings: Settings, memory: object = None) -> OpenedGpu:
    """Open the fake GPU; if it is lost, the process ends, even directly after the start."""
    device_loss.MIN_USE_S = 0.0
    return LosingGpu(CpuEngine()).opened()


def run_single() -> int:
    """Run a service in one process."""
    from service.server.uvicorn_server import serve

    return serve(read_settings(), open_gpus)


def run_engine_process(path: str) -> int:
    """Run the engine process of a service with front ends."""
    import service.multiprocess.engine_process as engine_process

    engine_process._open_gpus = open_gpus
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(8)
    sys.stdin = open(os.devnull)
    return engine_process.run_engine(read_settings(), listening)


if __name__ == "__main__":
    from service.observability.logging import configure

    configure(read_settings())
    sys.exit(run_single() if sys.argv[1] == "single" else run_engine_process(sys.argv[2]))
