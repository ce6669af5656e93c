"""Memory of joined strings stays theirs until the device has read it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from gpu.embedding.inputs import as_batch
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch, join_in_python

pytestmark = pytest.mark.torch
torch_or_skip()
from gpu.embedding.pinned_text import TextMemory  # noqa: E402


class Event:
    def __init__(self) -> None:
        self.is_done = False

    def query(self) -> bool:
        return self.is_done


def part_of(memory: TextMemory):
    """A row of memory that was taken, and what tells whether the memory is still held."""
    data = memory.take(4096)
    batch = as_batch((data, np.arange(0, 4097, 512)))
    return batch.part(1, 3).data, weakref.ref(data)


def test_memory_is_kept_until_the_event_has_passed_even_of_a_part():
    memory, event = TextMemory(lambda n: np.empty(n, np.uint8)), Event()
    part, held = part_of(memory)
    memory.keep(part, event)
    del part
    memory.take(1)
    gc.collect()
    assert held() is not None
    event.is_done = True
    memory.take(1)
    gc.collect()
    assert held() is None


def test_memory_of_others_is_held_until_the_event_has_passed():
    memory, event = TextMemory(lambda n: np.empty(n, np.uint8)), Event()
    own = np.zeros(1 << 20, np.uint8)
    held = weakref.ref(own)
    memory.hold(own[5:], event)
    del own
    memory.take(1)
    gc.collect()
    assert held() is not None
    event.is_done = True
    memory.take(1)
    gc.collect()
    assert held() is None


def test_memory_of_others_is_not_kept():
    memory, own = TextMemory(lambda n: np.empty(n, np.uint8)), np.zeros(1 << 20, np.uint8)
    held = weakref.ref(own)
    memory.keep(own[5:], Event())
    del own
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("form", [list, Batch])
def test_strings_are_joined_in_the_memory_that_is_given(monkeypatch, form):
    given = np.zeros(12, np.uint8)

    def join(texts, memory, copy):
        joined, offsets = join_in_python(texts)
        data = memory(len(joined))
        data[:] = joined
        return data, offsets

    monkeypatch.setattr("vocabularies.batch.batch.join_texts", join)
    batch = as_batch(form(["ACGT", "", "CCGGTTAA"]), lambda num_bytes: given[:num_bytes])
    assert np.shares_memory(batch.data, given)
    assert given.tobytes() == b"ACGTCCGGTTAA"
    assert batch.offsets.tolist() == [0, 4, 4, 12]
