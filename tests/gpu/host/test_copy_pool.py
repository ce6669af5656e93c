"""Copies by several threads: all bytes, nothing beside them, and threads that sleep and end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.host.copy_pool import CopyPool
from tests.support.compiled import extension
from tests.support.data_files import ROOT
from tests.support.thread_times import cpu_seconds
from tests.support.waiting import GIVEN_UP_S, wait_until
from vocabularies.batch.batch import JOINED_BY, LARGE_BYTES, Batch, join_in_python

PIECE_BYTES = 1 << 17
SIZES = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 9 * PIECE_BYTES + 5]
SIZES += [(1 << 15) - 1, (1 << 15) + 1, 1 << 19, (1 << 19) + 1]  # Small pieces, and up to where.


@pytest.fixture(scope="module")
def built():
    return extension(ROOT / "gpu/host/native/copy_pool.cpp", "_copy_pool")


@pytest.fixture(params=[3, 0], ids="{} threads".format)
def staging(request):
    staging = CopyPool(request.param)
    yield staging
    staging.close()


def random_bytes(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_is_copied_and_no_other_written(staging, size):
    source, target = random_bytes(size), np.full(size + 100, 7, np.uint8)
    copy = staging.start(target, source)
    copy.wait(size)
    copy.wait(size)
    assert (target[:size] == source).all()
    assert (target[size:] == 7).all()
    assert copy.seconds > 0 or size == 0


@pytest.mark.parametrize("size", SIZES)
def test_a_shared_copy_is_complete_when_it_returns(staging, size):
    source, target = random_bytes(size), np.full(size + 100, 7, np.uint8)
    staging.share(target, source)
    assert (target[:size] == source).all()
    assert (target[size:] == 7).all()


def test_the_first_bytes_are_there_when_they_were_waited_for(staging):
    source = random_bytes(40 * PIECE_BYTES + 5)
    target = np.zeros(len(source), np.uint8)
    copy = staging.start(target, source)
    for end in (0, 1, PIECE_BYTES, PIECE_BYTES + 1, 7 * PIECE_BYTES, len(source), 2 * len(source)):
        copy.wait(end)
        assert (target[:end] == source[:end]).all()


def test_copies_under_way_do_not_wait_for_each_other(staging):
    sources = [np.full(3 * PIECE_BYTES + i, i, np.uint8) for i in range(6)]
    targets = [np.zeros(len(source), np.uint8) for source in sources]
    copies = [staging.start(t, s) for t, s in zip(targets, sources, strict=True)]
    for i in reversed(range(6)):
        copies[i].wait(len(sources[i]))
        assert (targets[i] == sources[i]).all()


def test_a_copy_without_waiters_is_complete_when_it_is_collected(staging):
    source = random_bytes(9 * PIECE_BYTES)
    target = np.zeros(len(source), np.uint8)
    held = sys.getrefcount(source), sys.getrefcount(target)
    for _ in range(20):
        target[:] = 0
        staging.start(target, source)
        assert (target == source).all()
        assert (sys.getrefcount(source), sys.getrefcount(target)) == held


COPIES = st.lists(
    st.tuples(st.integers(0, 5 * PIECE_BYTES), st.integers(0, 63), st.integers(0, 63)), max_size=6
)


@settings(deadline=None)
@given(copies=COPIES, num_threads=st.integers(0, 4), waits=st.randoms(use_true_random=False))
def test_random_copies_at_once_at_random_places(built, copies, num_threads, waits):
    staging = CopyPool(num_threads)
    begun = []
    for size, source_place, target_place in copies:
        source = random_bytes(size + source_place)[source_place:]
        target = np.full(size + target_place + 64, 7, np.uint8)
        begun.append((staging.start(target[target_place:], source), source, target, target_place))
    waits.shuffle(begun)
    for copy, source, target, place in begun:
        end = waits.randint(0, len(source))
        copy.wait(end)
        assert (target[place : place + end] == source[:end]).all()
    for copy, source, target, place in begun:
        copy.wait(len(source))
        assert (target[place : place + len(source)] == source).all()
        assert (target[:place] == 7).all() and (target[place + len(source) :] == 7).all()
    staging.close()


@pytest.fixture(scope="module")
def measure():
    """Where strings begin as UTF-8, int64[B + 1]; CPython keeps the UTF-8 of each."""
    texts = extension(ROOT / "vocabularies/batch/string_join.cpp", "_string_join")

    def measured(strings: Sequence[str]) -> np.ndarray:
        offsets = np.zeros(len(strings) + 1, np.int64)
        texts.measure(strings, offsets)
        return offsets

    return measured


TEXTS = st.lists(st.text(max_size=50) | st.text("ACGT", max_size=50), max_size=40)


@settings(deadline=None)
@given(texts=TEXTS, times=st.sampled_from([1, 1, 7, 20_000]), num_threads=st.integers(0, 3))
def test_strings_are_gathered_as_python_joins_them(built, measure, texts, times, num_threads):
    staging = CopyPool(num_threads)
    texts = tuple(text * times for text in texts)
    expected, offsets = join_in_python(texts)
    assert measure(texts).tolist() == offsets.tolist()
    target = np.full(len(expected) + 9, 7, np.uint8)
    staging.gather(texts, offsets, target[: len(expected)])
    assert (target[: len(expected)] == expected).all()
    assert (target[len(expected) :] == 7).all()
    staging.close()


def test_other_strings_than_were_measured_are_refused(built):
    staging, memory = CopyPool(1), np.full(120, 7, np.uint8)
    target = memory[10:110]
    for texts, offsets in (
        (("ab", "c"), [0, 2]),
        (("ab", "c"), [0, 1, 3]),
        (("ab", "c"), [0, 2, 4]),
        (("ab", "c"), [0, 3, 2]),
        (("ab", "c"), [0, -1, 3]),
        (("ab", "c"), [1, 3, 4]),
        (("ab", "c"), [0, 2, -1]),
        ((), [1]),
        (("a", b"b"), [0, 1, 2]),
        (("a", chr(233) + chr(234)), [0, 1, 5]),  # Nobody has asked for its UTF-8.
        (("a", "\ud800"), [0, 1, 4]),
    ):
        with pytest.raises(ValueError, match="measured"):
            staging.gather(texts, np.array(offsets), target)
    with pytest.raises(ValueError, match="too short"):
        staging.gather(("a" * 101,), np.array([0, 101]), target)
    assert (memory[:10] == 7).all() and (memory[110:] == 7).all()


def test_other_strings_are_noticed_wherever_they_are(built):
    size = 3 * PIECE_BYTES // 100
    texts, offsets = ["a" * 100] * size, np.arange(size + 1) * 100
    target = np.zeros(100 * size, np.uint8)
    texts[size // 2] = "b" * 99
    copy = built.Pool(2).gather(target, texts, offsets)
    with pytest.raises(ValueError, match="measured"):
        copy.wait(len(target))


def test_strings_stay_until_they_are_copied(built):
    pool, texts = built.Pool(2), [chr(97 + i) * PIECE_BYTES for i in range(20)]
    expected, offsets = join_in_python(texts)
    target = np.zeros(len(expected), np.uint8)
    copy = pool.gather(target, texts, offsets)
    texts.clear()
    copy.wait(len(target))
    assert (target == expected).all()


def test_strings_of_a_list_that_changes_meanwhile_are_those_that_were_measured(built):
    texts, staging = ["é" * LARGE_BYTES, "b"], CopyPool(2)
    expected = "".join(texts).encode()

    def memory(num_bytes: int) -> np.ndarray:
        texts[:] = ["c"]  # By another thread, say.
        return np.zeros(num_bytes, np.uint8)

    batch = Batch(texts)
    batch.join_in(memory, staging.gather)
    assert batch.data.tobytes() == expected


def test_large_lists_of_strings_are_joined_by_the_threads(built):
    staging, called = CopyPool(2), []

    def gather(*arguments: object) -> None:
        called.append(arguments)
        staging.gather(*arguments)

    for size in (100, LARGE_BYTES):
        batch = Batch(["a" * (size - 1), "b"])
        batch.join_in(lambda num_bytes: np.zeros(num_bytes, np.uint8), gather)
        assert batch.data.tobytes() == b"a" * (size - 1) + b"b"
    assert len(called) == (JOINED_BY == "C++")


def test_many_callers_at_once(built):
    staging, wrong = CopyPool(3), []

    def call(number: int) -> None:
        for turn in range(60):
            source = np.full((number + turn) % 5 * PIECE_BYTES + turn, number, np.uint8)
            target = np.zeros(len(source), np.uint8)
            staging.share(target, source)
            if not (target == number).all():
                wrong.append((number, turn))

    callers = [threading.Thread(target=call, args=(number,)) for number in range(1, 6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    staging.close()
    assert wrong == []


def test_what_does_not_fit_is_refused(built):
    staging = CopyPool(1)
    with pytest.raises(ValueError, match="too short"):
        staging.start(np.zeros(5, np.uint8), np.zeros(6, np.uint8))
    read_only = np.zeros(9, np.uint8)
    read_only.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        staging.start(read_only, np.zeros(6, np.uint8))


def threads() -> set[Path]:
    """Those of C++ in this process; a joined thread may be listed for a moment yet."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # It ended meanwhile.
            if (task / "comm").read_text().startswith("staging-"):
                found.add(task)
    return found


def wait_until_gone(ended: set[Path]) -> None:
    """Return when the system has removed them all."""
    wait_until(lambda: not ended & threads(), "the end of its threads")


def copy(staging: CopyPool, size: int = 2 * PIECE_BYTES) -> None:
    target = np.zeros(size, np.uint8)
    staging.share(target, np.ones(size, np.uint8))
    assert target.all()


def test_threads_start_with_the_first_copy_and_end_with_close(built):
    before, staging = threads(), CopyPool(3)
    assert threads() <= before
    copy(staging)
    started = threads() - before
    assert len(started) == 3
    staging.close()
    wait_until_gone(started)
    copy(staging)  # They start again.
    started = threads() - before
    assert len(started) == 3
    del staging
    wait_until_gone(started)


def test_no_signal_reaches_the_threads(built):
    before, staging = threads(), CopyPool(2)
    copy(staging)
    started = threads() - before
    assert len(started) == 2
    for thread in started:
        blocked = dict(line.split(":\t") for line in (thread / "status").read_text().splitlines())
        for signal in (1, 2, 15):  # SIGHUP, SIGINT and SIGTERM are Python's.
            assert int(blocked["SigBlk"], 16) >> (signal - 1) & 1
    staging.close()


def test_threads_without_work_sleep(built):
    before, staging = threads(), CopyPool(4)
    for _ in range(9):  # Which come so soon that the threads look for more.
        copy(staging, 99 * PIECE_BYTES)
    started = [int(thread.name) for thread in threads() - before]
    assert len(started) == 4
    begin_s = cpu_seconds(started)
    time.sleep(0.5)
    assert cpu_seconds(started) - begin_s < 0.1
    staging.close()


PROGRAM = """
import os, sys
import numpy as np
from gpu.host.copy_pool import CopyPool
staging = CopyPool(2)
source = np.arange(50 << 18, dtype=np.uint32).view(np.uint8)
target = np.zeros(len(source), np.uint8)
under_way = staging.start(target, source)
"""
FORK = """
child = os.fork()
if not child:
    under_way.wait(len(source))
    assert (target == source).all()
    again = np.zeros(len(source), np.uint8)
    staging.share(again, source)
    assert (again == source).all()
    staging.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
under_way.wait(len(source))
assert (target == source).all()
"""


def run(more: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GIVEN_UP_S,
    )
    assert done.returncode == 0, done.stderr


def test_the_interpreter_ends_while_a_copy_is_under_way():
    run("")


def test_a_child_of_fork_copies_without_its_parents_threads():
    run(FORK)


def test_without_the_extensions_the_package_is_imported_and_their_use_says_what_to_install():
    program = (
        "import sys; sys.modules['gpu.host._copy_pool'] = None\n"
        "import gpu.engine, gpu.runtime.cuda_device, gpu.streaming\n"
        "from gpu.host.copy_pool import CopyPool\n"
        "for use in (CopyPool, gpu.runtime.cuda_device.CudaDevice):\n"
        "    try: use()\n"
        "    except gpu.errors.DeviceUnavailable as error: assert 'install g++' in str(error)\n"
        "    else: sys.exit(f'{use} went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
