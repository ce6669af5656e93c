"""Threads with long turns: what the kernel says of them afterwards."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from queue import SimpleQueue

import pytest

from service.batching.lanes import make_lanes
from service.runtime.scheduler_slice import ATTRIBUTES, SLICE_NS
from service.runtime.spinning_executor import AwakeThreads

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def asked_for() -> tuple[int, int, int]:
    """Policy, nice value and slice in ns of this thread."""
    answer = ctypes.create_string_buffer(ATTRIBUTES.size)
    number = SCHED_GETATTR[platform.machine()]
    if ctypes.CDLL(None).syscall(number, 0, answer, ATTRIBUTES.size, 0):
        pytest.skip("the kernel, or what filters its calls, does not tell")
    _, policy, _, nice, _, slice_ns, _, _ = ATTRIBUTES.unpack(answer)
    return policy, nice, slice_ns


def said_by(threads: AwakeThreads) -> tuple[int, int, int]:
    """The same of a thread of these."""
    said: SimpleQueue[object] = SimpleQueue()

    def say() -> None:
        try:
            said.put(asked_for())
        except BaseException as error:  # pytest.skip's among them.
            said.put(error)

    threads.submit(say)
    answer = said.get()
    if isinstance(answer, BaseException):
        raise answer
    return answer


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in SCHED_GETATTR, reason="Linux only"
)
def test_only_the_lane_of_long_requests_takes_long_turns_with_the_priority_it_had():
    lanes = make_lanes(1, is_gpu=False)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    threads = {is_long: lane.threads for is_long, lane in lanes.items()}
    before = said_by(threads[False])
    assert before[:2] == (os.SCHED_OTHER, nice)
    policy, nice_then, slice_ns = said_by(threads[True])
    assert (policy, nice_then) == before[:2]
    assert before[2] != SLICE_NS
    assert slice_ns in (SLICE_NS, before[2])  # Linux before 6.12 has one slice for all.
    for each in threads.values():
        each.shutdown()
