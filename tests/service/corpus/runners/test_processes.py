"""Jobs in several processes: the bytes of a run in one, also if a process is killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from service.corpus.inputs import UnreadableInput, find_inputs
from service.corpus.job import Job
from service.corpus.parts.progress import Progress
from service.corpus.run import run_job
from service.corpus.runners import processes
from service.corpus.runners.fork_server import choose_num_processes, sum_sizes
from service.corpus.runners.processes import (
    LOST,
    ProcessRunner,
    _as_message,
    _receive,
    _send,
    choose_gpu,
)
from service.corpus.runners.remote_part import PartLost
from service.corpus.runners.threads import ThreadRunner
from service.engines.cpu.engine import CpuEngine
from tests.support.data_files import ROOT
from tests.support.inputs.corpora import folder_bytes, make_texts, write_jsonl
from tests.support.waiting import GIVEN_UP_S
from vocabularies import builtin
from vocabularies.errors import VocabularyError

VOCABULARY = builtin.load("gpt2")
NUM_FILES, MAX_S = 4, GIVEN_UP_S
OPTIONS = ["-v", "gpt2", "--shard-tokens", "20000", "--parts", "4", "--engine", "cpu", "--quiet"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    paths = [
        write_jsonl(tmp_path / f"{number}.jsonl", make_texts(60, seed=number))
        for number in range(NUM_FILES)
    ]
    with open(paths[-1], "ab") as file:
        file.write(b"[]\n")  # A reject.
    inputs, _ = find_inputs([str(path) for path in paths], None)
    return Job(tuple(inputs), VOCABULARY.digest, shard_tokens=300, num_parts=NUM_FILES)


@pytest.mark.slow
def test_bytes_are_those_of_one_process(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    started = processes._started
    monkeypatch.setattr(
        processes, "_started", lambda count, *rest: counts.append(count) or started(count, *rest)
    )
    progress = Progress(1, None)
    runner = ProcessRunner(9, "cpu", 9, progress, num_verified=8)
    run_job(job, VOCABULARY, tmp_path / "two", runner)
    one = ThreadRunner(CpuEngine(num_threads=1), 1, Progress(1, None))
    run_job(job, VOCABULARY, tmp_path / "one", one)
    assert folder_bytes(tmp_path / "two") == folder_bytes(tmp_path / "one")
    assert progress.num_documents == NUM_FILES * 60
    assert progress.num_bytes == sum(file.size for file in job.inputs)
    assert progress.num_verified >= 8
    assert progress.remote_peak_bytes > 0
    assert counts == [NUM_FILES]  # One a part.


@pytest.mark.slow
def test_a_part_that_fails_stops_the_others(job: Job, tmp_path: Path) -> None:
    damaged = tmp_path / "2.jsonl"
    content = damaged.read_bytes()
    damaged.unlink()
    runner = ProcessRunner(2, "cpu", 2, Progress(1, None))
    with pytest.raises(UnreadableInput, match=r"2\.jsonl"):
        run_job(job, VOCABULARY, tmp_path / "two", runner)
    assert not (tmp_path / "two" / "manifest.json").exists()
    damaged.write_bytes(content)
    run_job(job, VOCABULARY, tmp_path / "two", runner)
    assert (tmp_path / "two" / "manifest.json").exists()


def end_at_once(connection: Connection, *_: object) -> None:
    """Take the place of a process that is killed before it has received the job."""
    connection.close()


@pytest.mark.slow
def test_a_process_that_ends_before_it_has_the_job_is_lost(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_run_parts", end_at_once)
    with pytest.raises(PartLost):
        run_job(job, VOCABULARY, tmp_path / "two", ProcessRunner(2, "cpu", 2, Progress(1, None)))


def start(folder: Path, out: str, *options: str) -> subprocess.Popen[str]:
    files = [f"{number}.jsonl" for number in range(NUM_FILES)]
    command = [sys.executable, "-m", "service", "corpus", *files, "--out", out, *OPTIONS, *options]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_a_shard(folder: Path) -> None:
    begun = time.perf_counter()
    while not any(folder.glob("part_*.checkpoint")):
        assert time.perf_counter() - begun < MAX_S
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers_of(pid: int) -> list[int]:
    """Return the processes that run parts, which are children of the server of forks."""
    (server,) = [
        child
        for child in children_of(pid)
        if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    return children_of(server)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of documents, in which `one` has the shards of a run in one process."""
    folder = tmp_path_factory.mktemp("processes")
    for number in range(NUM_FILES):
        texts = make_texts(10_000, seed=number, most_words=200)
        write_jsonl(folder / f"{number}.jsonl", texts)
    one = start(folder, "one", "--processes", "1")
    assert one.communicate(timeout=MAX_S)[1] == ""
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "parent", "interrupted"])
def test_the_same_command_goes_on(folder: Path, victim: str) -> None:
    process = start(folder, victim, "--processes", "2")
    wait_for_a_shard(folder / victim)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    if victim == "worker":
        os.kill(workers[0], signal.SIGKILL)
    else:
        process.send_signal(signal.SIGKILL if victim == "parent" else signal.SIGINT)
    _, stderr = process.communicate(timeout=MAX_S)
    codes = {"worker": 2, "parent": -signal.SIGKILL, "interrupted": 130}
    messages = {
        "worker": f"warptok: {LOST}\n",
        "parent": "",
        "interrupted": "warptok: stopped; run the same command again to continue\n",
    }
    assert (process.returncode, stderr) == (codes[victim], messages[victim])
    assert not (folder / victim / "manifest.json").exists()
    again = start(folder, victim, "--processes", "3")
    _, stderr = again.communicate(timeout=MAX_S)
    assert (again.returncode, stderr) == (0, "")
    assert folder_bytes(folder / victim) == folder_bytes(folder / "one")


class Unreadable(Exception):
    """An error that can be pickled, but not read again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def test_every_error_of_a_part_can_be_received() -> None:
    for error in (OSError(28, "full", "/a"), ValueError("x"), VocabularyError.at("here", "wrong")):
        received = pickle.loads(pickle.dumps(_as_message(error)))
        assert type(received) is type(error)
        assert received.__dict__ == error.__dict__
        assert error.__notes__
    received = pickle.loads(pickle.dumps(_as_message(Unreadable("a", "b"))))
    assert isinstance(received, RuntimeError)
    assert "Unreadable: ab" in str(received)


def test_a_process_that_ends_in_a_message_is_lost() -> None:
    own, other = Pipe()
    os.write(other.fileno(), b"\0\0\0\x09half")
    other.close()
    with pytest.raises(PartLost):
        _receive(own)
    with pytest.raises(PartLost):
        _send(own, b"1")
    own.close()


def test_each_process_has_one_gpu() -> None:
    assert [choose_gpu("", number, 2) for number in range(4)] == ["0", "1", "0", "1"]
    assert [choose_gpu("3, 5", number, 2) for number in range(3)] == ["3", "5", "3"]
    assert choose_gpu("GPU-1a,-1,GPU-2b", 1, 1) == "GPU-1a"  # CUDA ignores all behind -1.


def test_processes_need_parts_threads_and_bytes() -> None:
    large = 64 << 30
    assert choose_num_processes(8, 16, large) == 4
    assert choose_num_processes(2, 16, large) == 2
    assert choose_num_processes(8, 16, 5 << 30) == 2
    assert choose_num_processes(1, 16, large) == 1
    assert choose_num_processes(8, 2, large) == 1


def test_sizes_of_files_and_folders_are_summed(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_bytes(b"12345")
    (tmp_path / "b.txt").write_bytes(b"123")
    paths = [str(tmp_path), str(tmp_path / "b.txt"), str(tmp_path / "none"), "memory://c.txt"]
    assert sum_sizes(paths) == 11
