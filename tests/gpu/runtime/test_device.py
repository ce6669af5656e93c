"""The answers of a CUDA device that need no call of its driver."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from gpu.runtime.cuda_device import PINNED, CudaDevice


@pytest.fixture
def device():
    """A device without CUDA; `asked` has the addresses that its driver was asked for."""
    made = object.__new__(CudaDevice)
    made.asked, made.foreign, made._page_locked = [], {}, {}

    def attributes(address):
        made.asked.append(address)
        return SimpleNamespace(type=made.foreign.get(address, 0))

    made._runtime, made.number = SimpleNamespace(pointerGetAttributes=attributes), 0
    made._cupy = SimpleNamespace(cuda=SimpleNamespace(Device=contextlib.nullcontext))
    return made


def test_the_driver_is_not_asked_whether_memory_that_the_device_gave_is_pinned(device):
    """This does not hold for memory beyond the block, or for a freed block."""
    memory = np.zeros(16, np.uint8)
    device._page_locked[memory.ctypes.data] = 10
    assert device.is_pinned(memory[:10]) and device.is_pinned(memory[:3])
    assert not device.is_pinned(memory[:10:2])
    assert device.asked == []
    assert not device.is_pinned(memory[:11]) and not device.is_pinned(memory[1:3])
    device.free_pinned(memory)
    assert not device.is_pinned(memory[:10])
    assert device.asked == [memory.ctypes.data, memory.ctypes.data + 1, memory.ctypes.data]


def test_the_driver_says_of_other_memory_whether_both_ends_are_pinned(device):
    memory = np.zeros(16, np.uint8)
    device.foreign[memory.ctypes.data] = PINNED
    assert not device.is_pinned(memory)
    device.foreign[memory.ctypes.data + 15] = PINNED
    assert device.is_pinned(memory)
