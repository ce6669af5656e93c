"""Several GPUs that work together, as `HybridEngine` opens them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from service.engines.hybrid.device_threads import DeviceThreads
from service.engines.hybrid.gpu_selftest import Gpu
from service.engines.hybrid.member import Member
from service.engines.hybrid.opening import OpenedGpus
from service.engines.hybrid.residency import OpenedGpu
from service.engines.hybrid.several_gpus import SeveralGpus
from tests.support.gpus.fake_gpu import FakeGpu
from vocabularies.model.vocabulary import Vocabulary


class HangingGpu(FakeGpu):
    """A fake GPU whose calls wait while `answers` is cleared."""

    def __init__(self, cpu) -> None:
        super().__init__(cpu)
        self.answers = threading.Event()
        self.answers.set()
        self.num_waiting = 0

    def _call(self, vocabulary: Vocabulary, num_rows: int) -> None:
        self.num_waiting += 1
        assert self.answers.wait(60)
        self.num_waiting -= 1
        super()._call(vocabulary, num_rows)


def open_together(*gpus: Gpu, name: str = "fake") -> Callable[[], OpenedGpus]:
    """Return a function that opens several GPUs as one."""

    def open_gpus() -> OpenedGpus:
        members = [
            Member(gpu, number, f"{name} #{number}", DeviceThreads(f"gpu-{number}"))
            for number, gpu in enumerate(gpus)
        ]
        each = [OpenedGpu(gpu, {"name": name, "number": n}) for n, gpu in enumerate(gpus)]
        several = SeveralGpus(members)
        return OpenedGpus(several, {"name": f"{len(gpus)} GPUs"}, several, each)

    return open_gpus
