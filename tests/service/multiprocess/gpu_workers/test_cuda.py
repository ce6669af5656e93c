"""Workers on the CUDA devices of this machine, if it has several."""

from __future__ import annotations

import os
import signal

import pytest

from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import HybridEngine
from service.engines.hybrid.opening import OpenedGpus, list_visible_gpus
from service.multiprocess.gpu_workers.opening import open_gpus
from service.multiprocess.gpu_workers.remote_gpu import RemoteGpu
from tests.support.gpus.device_counts import TWO_GPUS
from tests.support.waiting import wait_until
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def test_ids_are_right_on_each_device_also_after_a_worker_was_killed():
    if len(list_visible_gpus()) < 2:
        pytest.skip(TWO_GPUS)
    cpu, gpt2 = CpuEngine(), load("gpt2")
    engine = HybridEngine(cpu, lambda: open_gpus(Settings()), 0)
    engine.settle()
    assert engine.load(gpt2).engine == "gpu"
    opened = engine.vocabularies.opened
    assert isinstance(opened, OpenedGpus)
    members = opened.several.members
    texts = ["It's one of several devices. " * 5000, "北京 now", "", "x" * 300]
    right = cpu.encode(gpt2, Batch(texts)).ids.tolist()

    def check() -> None:
        before = [member.num_batches for member in members]
        for _ in members:
            encoded = engine.encode(gpt2, Batch(texts))
            assert encoded.engine == "gpu" and encoded.ids.tolist() == right
        assert [member.num_batches - n for member, n in zip(members, before, strict=True)] == [
            1 for _ in members
        ]

    check()
    first = members[0].gpu
    assert isinstance(first, RemoteGpu)
    os.kill(first.process_id, signal.SIGKILL)
    wait_until(lambda: members[0].state == "resting")
    assert engine.encode(gpt2, Batch(texts)).ids.tolist() == right
    wait_until(lambda: members[0].state == "ready")
    check()
    engine.close()
