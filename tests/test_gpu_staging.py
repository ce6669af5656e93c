"""Copies by several threads: all bytes, nothing beside them, and threads that end."""

from __future__ import annotations

import sys
import threading
from collections import deque
from queue import SimpleQueue

import numpy as np
import pytest

from gpu.staging import PIECE_BYTES, SHARED_BYTES, Staging

SIZES = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 9 * PIECE_BYTES + 5]


@pytest.fixture
def staging():
    staging = Staging(3)
    yield staging
    staging.close()


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_is_copied_and_no_other_written(staging, size):
    source = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    target = np.full(size + 100, 7, np.uint8)
    copy = staging.start(target, source)
    copy.wait()
    copy.wait()
    assert (target[:size] == source).all()
    assert (target[size:] == 7).all()


def test_copies_under_way_do_not_wait_for_each_other(staging):
    sources = [np.full(3 * PIECE_BYTES + i, i, np.uint8) for i in range(6)]
    targets = [np.zeros(len(source), np.uint8) for source in sources]
    copies = [staging.start(t, s) for t, s in zip(targets, sources, strict=True)]
    for i in reversed(range(6)):
        copies[i].wait()
        assert (targets[i] == sources[i]).all()


@pytest.mark.parametrize("size", [0, 1, SHARED_BYTES, SHARED_BYTES + 1, 9 * SHARED_BYTES + 5])
def test_a_shared_copy_is_complete_when_it_returns(staging, size):
    source = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    target = np.full(size + 100, 7, np.uint8)
    staging.share(target, source)
    assert (target[:size] == source).all()
    assert (target[size:] == 7).all()


def test_a_shared_copy_does_not_wait_for_threads_that_are_busy():
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        def __setitem__(self, place: object, source: object) -> None:
            begun.set()
            go_on.wait()

    staging = Staging(1)
    staging._send(deque([(Slow(), None, SimpleQueue())]), 1)
    begun.wait()
    target, source = np.zeros(9 * SHARED_BYTES, np.uint8), np.ones(9 * SHARED_BYTES, np.uint8)
    staging.share(target, source)
    assert target.all()
    go_on.set()
    staging.close()


def test_a_copy_that_is_complete_holds_no_memory(staging):
    source = np.ones(9 * PIECE_BYTES, np.uint8)
    target = np.zeros(len(source), np.uint8)
    held = sys.getrefcount(source), sys.getrefcount(target)
    for _ in range(20):
        staging.start(target, source).wait()
        assert (sys.getrefcount(source), sys.getrefcount(target)) == held
        staging.share(target, source)
        assert (sys.getrefcount(source), sys.getrefcount(target)) == held


def copy(staging: Staging, size: int) -> None:
    target = np.zeros(size, np.uint8)
    staging.start(target, np.ones(size, np.uint8)).wait()
    assert target.all()


def test_threads_start_with_the_first_large_copy_and_end_with_close():
    others, staging = {*threading.enumerate()}, Staging(3)
    copy(staging, 10)
    assert {*threading.enumerate()} <= others
    copy(staging, 2 * PIECE_BYTES)
    assert len({*threading.enumerate()} - others) == 3
    staging.close()
    assert {*threading.enumerate()} <= others
    copy(staging, 2 * PIECE_BYTES)  # They start again.
    staging.close()
