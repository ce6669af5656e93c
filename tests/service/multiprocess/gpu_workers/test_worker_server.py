"""The answers of a GPU worker that runs in this process."""

from __future__ import annotations

import mmap
import os

import numpy as np

from service.engines.cpu.engine import CpuEngine
from service.multiprocess.gpu_workers.parent_memory import ParentMemory
from service.multiprocess.gpu_workers.worker_server import OwnGpu, WorkerServer
from service.multiprocess.link.frames import Message
from service.multiprocess.link.shared_memory import MIN_SHARED_BYTES
from tests.support.gpus.fake_gpu import FakeGpu


def test_an_answer_that_is_a_view_of_the_call_is_copied():
    """The parent keeps the memory of a call only until the answer has come."""
    file = os.memfd_create("parent")
    os.truncate(file, 4 * MIN_SHARED_BYTES)
    gpu = FakeGpu(CpuEngine())
    memory = ParentMemory(file)
    server = WorkerServer(OwnGpu(gpu.device, gpu.opened()), memory)
    view = memory.array(mmap.PAGESIZE, "|u1", (2 * MIN_SHARED_BYTES,))
    answer = server._place(Message("answer", {}, [view, view[:10]]))
    assert [each.place for each in answer.placed] == [None, None]
    assert np.array_equal(answer.placed[0].array, view)
    os.close(file)
