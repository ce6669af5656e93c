"""The answers of a GPU worker that runs in this process."""

from __future__ import annotations

import mmap
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from service.engines.cpu.engine import CpuEngine
from service.multiprocess.gpu_workers.parent_memory import ParentMemory
from service.multiprocess.gpu_workers.worker_server import OwnGpu, WorkerServer
from service.multiprocess.link.batch_messages import make_texts_message
from service.multiprocess.link.frames import Message
from service.multiprocess.link.shared_memory import MIN_SHARED_BYTES
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.waiting import wait_until
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary

LONG_BYTES = 1000


def test_an_answer_that_is_a_view_of_the_call_is_copied():
    """The parent keeps the memory of a call only until the answer has come."""
    file = os.memfd_create("parent")
    os.truncate(file, 4 * MIN_SHARED_BYTES)
    gpu = FakeGpu(CpuEngine())
    memory = ParentMemory(file)
    server = WorkerServer(OwnGpu(gpu.device, gpu.opened()), memory, LONG_BYTES)
    view = memory.array(mmap.PAGESIZE, "|u1", (2 * MIN_SHARED_BYTES,))
    answer = server._place(Message("answer", {}, [view, view[:10]]))
    assert answer.places == [None, None]
    assert np.array_equal(answer.message.arrays[0], view)
    os.close(file)


@pytest.mark.parametrize("operation", ["encode", "decode"])
def test_two_long_batches_are_computed_at_once_and_short_ones_pass_them(tmp_path, operation):
    vocabulary = load("hyenadna")
    gpu = FakeGpu(CpuEngine())
    gpu.load(vocabulary)
    running: list[int] = []
    may_end = threading.Event()

    def wait_if_long(num_bytes: int) -> None:
        running.append(num_bytes)
        assert num_bytes <= LONG_BYTES or may_end.wait(60)

    def encode(vocabulary: Vocabulary, batch: Batch) -> Encoded:
        wait_if_long(batch.size)
        return gpu.cpu.encode(vocabulary, batch)

    def decode(vocabulary: Vocabulary, ids: np.ndarray, *others: Any) -> tuple[Any, ...]:
        wait_if_long(ids.nbytes)
        return ids.view(np.uint8), np.zeros(1, np.int64), {}

    gpu.encode, gpu.decode = encode, decode
    with (tmp_path / "parent").open("w+b") as file:
        file.truncate(MIN_SHARED_BYTES)
        memory = ParentMemory(file.fileno())
        server = WorkerServer(OwnGpu(gpu.device, gpu.opened()), memory, LONG_BYTES)
    server._vocabularies[vocabulary.digest] = vocabulary

    def call(num_bytes: int) -> int:
        if operation == "encode":
            batch = Batch.from_bytes([b"A" * num_bytes])
            message = make_texts_message("encode", vocabulary.digest, batch)
            return len(server._encode(message, []).arrays[0]) - 1  # A token is at the end.
        values = {"digest": vocabulary.digest, "skip_special_tokens": False}
        arrays = [np.zeros(num_bytes, np.uint8), np.array([0, num_bytes])]
        return len(server._decode(Message("decode", values, arrays), []).arrays[0])

    with ThreadPoolExecutor() as threads:
        try:
            long = [threads.submit(call, LONG_BYTES + 1) for _ in range(4)]
            wait_until(lambda: len(running) == 2)
            short = threads.submit(call, LONG_BYTES)
            assert short.result(60) == LONG_BYTES
            assert len(running) == 3
        finally:
            may_end.set()
        assert [each.result(60) for each in long] == 4 * [LONG_BYTES + 1]
