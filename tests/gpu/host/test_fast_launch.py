"""The calls of the driver and the words of the Job that C++ makes for a small batch."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import pytest

from gpu.errors import LaunchFailed
from gpu.host.fast_launch import (
    COPIED,
    IN_PLACE,
    MORE_TO_DO,
    NOT_LAUNCHED,
    STAGED,
)
from gpu.kernels.job import JOB, STATUS, WORD, constant
from tests.support.compiled import extension
from tests.support.data_files import ROOT

CONTEXT, STREAM, FUNCTION, IDS = 0xC0, 0x57, 0xF00D, 0x1D5
OTHER_CONTEXT = 0xBAD  # The caller's, until a call makes CONTEXT current.
FIELDS = {
    "ids": 101,
    "post_processed_ids": 102,
    "id_offsets": 103,
    "post_processed_offsets": 104,
    "row_refused": 105,
    "text": 106,
    "augmented_text": 107,
    "row_begins": 108,
    "row_flags": 109,
    "row_max_length": 110,
}
SHAPE = {
    "function": FUNCTION,
    "threads": 512,
    "shared_bytes": 55_296,
    "max_blocks": 0,
    "takes_job": True,
}
BLOCK = SHAPE | {"is_grid": False, "is_dependent": False}
GRID = BLOCK | {"threads": 1024, "shared_bytes": 200_000, "is_grid": True}
ROWS = np.array([0, 3, 3, 10])
TEXT = np.frombuffer(b"abcdefghij", np.uint8)


@pytest.fixture(scope="module")
def built():
    return extension(ROOT / "gpu/host/native/fast_launch.cpp", "_fast_launch")


class Driver:
    """A driver that notes its calls; its kernel answers with 7 ids and words of a status."""

    def __init__(self, answers: FakeMemory, errors: tuple[int, ...] = (0, 0, 0, 0)) -> None:
        self.asked: list[str] = []
        self.seen: dict[str, Any] = {}
        self.status: dict[int, int] = {}
        self.memory, self.errors = answers, errors
        self.current = OTHER_CONTEXT
        types = [ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * n) for n in (1, 1, 4, 4, 1)]
        methods = self.get_context, self.set_context, self.copy_in, self.launch, self.synchronize
        self.calls = [kind(method) for kind, method in zip(types, methods, strict=True)]
        names = "get_context", "set_context", "copy_in", "launch", "synchronize"
        places = (ctypes.cast(call, ctypes.c_void_p).value for call in self.calls)
        self.addresses = dict(zip(names, places, strict=True))
        self.addresses |= {"context": CONTEXT, "stream": STREAM}

    def get_context(self, place: int) -> int:
        ctypes.c_void_p.from_address(place).value = self.current
        return 0

    def set_context(self, context: int) -> int:
        self.current = context
        if context != OTHER_CONTEXT:
            self.asked.append(f"context {context:x}")
        return self.errors[0]

    def copy_in(self, device: int, host: int, num_bytes: int, stream: int) -> int:
        self.asked.append(f"copy {num_bytes} from {host} to {device} on {stream:x}")
        return self.errors[1]

    def launch(self, config: int, function: int, arguments: int, extra: int | None) -> int:
        words = np.frombuffer(ctypes.string_at(config, 56), np.uint32)
        stream, attribute = np.frombuffer(ctypes.string_at(config + 32, 16), np.uint64).tolist()
        places = [attribute + 72 * i for i in range(words[12])]
        all_attributes = [np.frombuffer(ctypes.string_at(at, 12), np.uint32) for at in places]
        argument = ctypes.c_void_p.from_address(arguments).value or 0
        job = self.memory.job.ctypes.data
        if argument != job:  # The address of what the kernel takes: the Job's.
            argument = ctypes.c_uint64.from_address(argument).value
        self.asked.append(f"launch {function:x} on {stream:x}")
        self.seen = {
            "shape": words[:7].tolist(),
            "all_attributes": [found.tolist() for found in all_attributes],
            "argument": argument,
            "job": np.frombuffer(ctypes.string_at(job, JOB.itemsize), np.uint64),
        }
        assert extra is None
        for word, value in self.status.items():
            self.memory.status[word] = value
        self.memory.offsets[:] = range(4, 4 + len(self.memory.offsets))
        return self.errors[2]

    def synchronize(self, stream: int) -> int:
        self.asked.append(f"wait for {stream:x}")
        return self.errors[3]


class FakeMemory:
    """Memory of a workspace, all of it filled."""

    def __init__(self) -> None:
        self.job = np.full(JOB.itemsize, 0xAA, np.uint8).view(JOB)
        self.job["host_ids"] = 77
        self.text, self.begins = np.full(64, 7, np.uint8), np.full(5, 9, np.int64)
        self.status, self.offsets = np.full(8, 3, np.uint64), np.zeros(5, np.int64)

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "job": self.job,
            "text": self.text,
            "row_begins": self.begins,
            "status": self.status,
            "offsets": self.offsets,
        }


@pytest.fixture
def memory():
    return FakeMemory()


def launcher_of(built, memory, driver):
    return built.Launcher(built.Driver(**driver.addresses), WORD, STATUS, FIELDS, **memory.arrays())


@pytest.fixture
def ask(built):
    """Encodes three rows by a kernel."""

    def encode(launcher, kernel=BLOCK, source=STAGED, rows=ROWS, post_processed=False):
        spec = built.LaunchSpec(**kernel)
        return launcher.encode(spec, 3, TEXT, source, rows, post_processed, True, 16, IDS)

    return encode


def test_the_driver_is_asked_for_context_kernel_and_end_in_turn(built, memory, ask):
    driver = Driver(memory)
    assert ask(launcher_of(built, memory, driver)) == 7  # offsets[3]
    assert driver.asked == ["context c0", "launch f00d on 57", "wait for 57"]
    assert driver.seen["shape"] == [3, 1, 1, 512, 1, 1, 55_296]
    assert driver.seen["all_attributes"] == []


def test_text_is_copied_to_the_device_in_front_of_the_kernel(built, memory, ask):
    driver = Driver(memory)
    assert ask(launcher_of(built, memory, driver), source=COPIED) == 7
    assert driver.asked == [
        "context c0",
        f"copy 10 from {TEXT.ctypes.data} to 106 on 57",
        "launch f00d on 57",
        "wait for 57",
    ]


def test_a_grid_is_launched_so_that_all_blocks_run_at_a_time(built, memory, ask):
    driver = Driver(memory)
    ask(launcher_of(built, memory, driver), GRID)
    assert driver.seen["shape"] == [3, 1, 1, 1024, 1, 1, 200_000]
    assert driver.seen["all_attributes"] == [[2, 0, 1]]


@pytest.mark.parametrize(
    ("flags", "attributes"),
    [
        ({}, []),
        ({"is_grid": True}, [[2, 0, 1]]),
        ({"is_dependent": True}, [[6, 0, 1]]),
        ({"is_grid": True, "is_dependent": True}, [[2, 0, 1], [6, 0, 1]]),
    ],
)
def test_a_launch_is_normal_cooperative_or_dependent(built, memory, flags, attributes):
    driver = Driver(memory)
    spec, job = built.LaunchSpec(**(BLOCK | flags)), memory.job.ctypes.data
    built.Driver(**driver.addresses).launch(spec, 132, job)
    assert driver.asked == ["context c0", "launch f00d on 57"]
    assert driver.seen["shape"] == [132, 1, 1, 512, 1, 1, 55_296]
    assert driver.seen["all_attributes"] == attributes
    assert (driver.seen["job"] == memory.job.view(np.uint64)).all()


def test_a_kernel_that_does_not_take_the_job_gets_its_address(built, memory):
    driver = Driver(memory)
    spec = built.LaunchSpec(**(BLOCK | {"takes_job": False}))
    built.Driver(**driver.addresses).launch(spec, 1, memory.job.ctypes.data)
    assert driver.seen["argument"] == memory.job.ctypes.data


@pytest.mark.parametrize("errors", [(1, 0, 0, 0), (0, 0, 719, 0)])
def test_a_launch_that_the_driver_refuses_is_an_error(built, memory, errors):
    driver = Driver(memory, errors)
    with pytest.raises(LaunchFailed, match=f"CUDA error {max(errors)}"):
        built.Driver(**driver.addresses).launch(
            built.LaunchSpec(**BLOCK), 1, memory.job.ctypes.data
        )


def test_a_batch_is_written_with_its_options(built, memory):
    driver, before = Driver(memory), memory.job.copy()
    launcher = launcher_of(built, memory, driver)
    assert launcher.put_batch(ROWS, host_text=5, num_bytes=10) is None
    job = memory.job[0]
    assert (job["host_text"], job["num_bytes"], job["num_rows"]) == (5, 10, 3)
    assert (job["row_flags"], job["row_max_length"], job["validates"], job["planned_fallback"]) == (
        0,
    ) * 4
    assert (job["text"], job["sent_text"], job["sent_begins"]) == (106, 0, 108)
    launcher.put_batch(
        ROWS,
        host_text=0,
        num_bytes=10,
        has_flags=True,
        has_limits=True,
        is_augmented=True,
        validates=True,
        planned_fallback=2,
    )
    assert (job["row_flags"], job["row_max_length"], job["validates"], job["planned_fallback"]) == (
        109,
        110,
        1,
        2,
    )
    assert (job["text"], job["sent_text"]) == (107, 106)
    for post_processed in (True, False):
        launcher.answer_in(post_processed)
        assert (job["post_processed"], job["answer_ids"]) == (
            post_processed,
            102 if post_processed else 101,
        )
        assert job["answer_offsets"] == (104 if post_processed else 103)
    assert job["host_ids"] == before[0]["host_ids"] and driver.asked == []


def test_the_first_row_that_ends_before_it_begins_is_named_and_nothing_else_written(built, memory):
    launcher, before = launcher_of(built, memory, Driver(memory)), memory.job.copy()
    assert launcher.put_batch(np.array([0, 3, 2, 1]), host_text=5, num_bytes=10) == 1
    assert (memory.job == before).all()
    with pytest.raises(TypeError, match="int64"):
        launcher.put_batch(np.array([0, 3], np.int32), host_text=5, num_bytes=3)
    with pytest.raises(ValueError, match="no room"):
        launcher.put_batch(np.arange(6), host_text=5, num_bytes=5)


@pytest.mark.parametrize("post_processed", [False, True])
@pytest.mark.parametrize("source", [STAGED, IN_PLACE, COPIED])
def test_the_job_says_all_of_the_batch_and_nothing_else_changes(
    built, memory, post_processed, source, ask
):
    driver, before = Driver(memory), memory.job.copy()
    ask(launcher_of(built, memory, driver), source=source, post_processed=post_processed)
    expected = {
        "host_text": [memory.text.ctypes.data, TEXT.ctypes.data, 0][source],
        "num_bytes": 10,
        "num_rows": 3,
        "row_flags": 0,
        "row_max_length": 0,
        "row_refused": 105,
        "validates": 1,
        "planned_fallback": 0,
        "id_bits": 16,
        "post_processed": int(post_processed),
        "answer_ids": 102 if post_processed else 101,
        "answer_offsets": 104 if post_processed else 103,
        "host_ids": IDS,
        "text": 106,
        "sent_begins": 108,
    }
    zeros = ("sent_text", "own_spans", "random_seed", "first_row", "substitution_rate")
    expected |= dict.fromkeys(zeros, 0)  # No row is augmented.
    words, old = driver.seen["job"], before.view(np.uint64)
    told = {WORD[name]: value for name, value in expected.items()}
    assert {word: int(words[word]) for word in told} == told
    others = [word for word in range(len(words)) if word not in told]
    assert (words[others] == old[others]).all()
    assert memory.job["host_ids"] == 77  # As it was.
    assert memory.begins.tolist() == [0, 3, 3, 10, 9]
    assert bytes(memory.text[:10]) == (b"abcdefghij" if source == STAGED else b"\x07" * 10)
    assert set(memory.text[10:].tolist()) == {7}


@pytest.mark.parametrize(
    "name", ["NOT_UTF8", "FAULT", "TRUNCATED", "FALLBACK", "NOT_COVERED", "ROWS"]
)
def test_a_word_of_the_status_says_that_there_is_more_to_do(built, memory, name, ask):
    """The words of an earlier batch do not."""
    driver = Driver(memory)
    driver.status = {constant(f"STATUS_{name}"): 1}
    launcher = launcher_of(built, memory, driver)
    assert ask(launcher) == (7 if name == "ROWS" else MORE_TO_DO)
    driver.status = {}
    assert ask(launcher) == 7


@pytest.mark.parametrize(
    "rows",
    [
        *(np.array(ends) for ends in ([0, 3, 2, 10], [0, 10, 3, 10], [1, 3, 10], [0, 3, 9])),
        *(np.array([0, 3, 11]), np.array([-1, 3, 10]), np.zeros(0, np.int64)),
        *(np.array([0, 10], np.int32), np.array([0.0, 10.0]), np.array([0, 10], np.uint64)),
        *(np.array([[0, 3], [3, 10]]), np.array([0, 7, 10, 7])[::2], [0, 10]),
    ],
    ids=str,
)
@pytest.mark.parametrize("source", [STAGED, COPIED])
def test_nothing_is_launched_where_arrays_are_no_rows_from_the_begin_to_the_end(
    built, memory, rows, source, ask
):
    driver = Driver(memory)
    assert ask(launcher_of(built, memory, driver), source=source, rows=rows) == NOT_LAUNCHED
    assert driver.asked == []


@pytest.mark.parametrize(
    "text",
    [
        *(TEXT.astype(np.int8), TEXT.view(np.uint16), TEXT[::2], "abc"),
        *(np.full((2, 50), 97, np.uint8), np.zeros(6000, np.uint16)),  # Of more bytes than fit.
    ],
    ids=str,
)
def test_nor_where_the_text_is_no_bytes_in_one_piece(built, memory, text):
    driver = Driver(memory)
    launcher, rows = launcher_of(built, memory, driver), np.array([0, len(text)])
    spec = built.LaunchSpec(**BLOCK)
    got = launcher.encode(spec, 1, text, STAGED, rows, False, False, 32, IDS)
    assert (got, driver.asked) == (NOT_LAUNCHED, [])


@pytest.mark.parametrize(
    ("errors", "source", "asked"),
    [
        ((1, 0, 0, 0), STAGED, "context wait"),
        ((1, 0, 0, 0), COPIED, "context wait"),
        ((0, 2, 0, 0), COPIED, "context copy wait"),
        ((0, 0, 719, 0), COPIED, "context copy launch wait"),
        ((0, 0, 0, 700), STAGED, "context launch wait"),
    ],
)
def test_an_error_of_the_driver_is_raised(built, memory, errors, source, asked, ask):
    driver = Driver(memory, errors)
    with pytest.raises(LaunchFailed, match=f"CUDA error {max(errors)}"):
        ask(launcher_of(built, memory, driver), source=source)
    assert " ".join(words.split()[0] for words in driver.asked) == asked
    assert memory.job["host_ids"] == 77
    assert driver.current == OTHER_CONTEXT


def test_the_callers_context_is_current_again_after_each_call(built, memory, ask):
    driver = Driver(memory)
    ask(launcher_of(built, memory, driver))
    assert driver.asked[0] == f"context {CONTEXT:x}"
    assert driver.current == OTHER_CONTEXT
    built.Driver(**driver.addresses).launch(built.LaunchSpec(**BLOCK), 1, memory.job.ctypes.data)
    assert driver.current == OTHER_CONTEXT
    driver.current, driver.asked = CONTEXT, []
    ask(launcher_of(built, memory, driver))
    assert not any(words.startswith("context") for words in driver.asked)
    assert driver.current == CONTEXT


def test_what_does_not_fit_or_is_of_another_kind_is_refused(built, memory, ask):
    driver = Driver(memory)
    launcher, spec = launcher_of(built, memory, driver), built.LaunchSpec(**BLOCK)
    with pytest.raises(ValueError, match="no room"):
        ask(launcher, rows=np.array([0, 1, 2, 3, 4, 10]))
    with pytest.raises(ValueError, match="no room"):
        launcher.encode(
            spec, 1, np.zeros(65, np.uint8), STAGED, np.array([0, 65]), False, False, 32, IDS
        )
    with pytest.raises(TypeError, match="LaunchSpec"):
        launcher.encode((FUNCTION, 512), 1, TEXT, STAGED, ROWS, False, False, 32, IDS)
    with pytest.raises(TypeError):
        built.LaunchSpec(**(BLOCK | {"function": "encode"}))
    with pytest.raises(TypeError):
        built.LaunchSpec(FUNCTION)
    with pytest.raises(ValueError, match="no source 3"):
        ask(launcher, source=3)
    with pytest.raises(TypeError, match="9 arguments"):
        launcher.encode(spec, 1, TEXT)
    words = {name: word for name, word in WORD.items() if name != "first_row"}
    with pytest.raises(KeyError, match="first_row"):
        built.Launcher(built.Driver(**driver.addresses), words, STATUS, FIELDS, **memory.arrays())
    assert driver.asked == []


def test_it_keeps_its_memory_until_it_is_garbage(built):
    memory = FakeMemory()
    kept = [weakref.ref(array) for array in memory.arrays().values()]
    driver = built.Driver(**dict.fromkeys(Driver(FakeMemory()).addresses, 1))
    launcher = built.Launcher(driver, WORD, STATUS, FIELDS, **memory.arrays())
    del memory
    assert all(array() is not None for array in kept)
    del launcher
    assert not any(array() is not None for array in kept)
