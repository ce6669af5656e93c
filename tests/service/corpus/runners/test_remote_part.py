"""One part of a job on a node, without Ray: its checks, its counts, and the lock of the part."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from service.core.version import package_version
from service.corpus.inputs import find_inputs
from service.corpus.job import Job
from service.corpus.parts import locks
from service.corpus.parts.checkpoint import OtherJob
from service.corpus.parts.locks import LOCK, locked, locked_part
from service.corpus.parts.progress import Progress
from service.corpus.run import run_job
from service.corpus.runners.remote_part import Counts, OtherNode, RemoteJob, run_remote_part
from service.corpus.runners.threads import ThreadRunner
from service.engines.cpu.engine import CpuEngine
from tests.support.inputs.corpora import folder_bytes, make_texts, write_jsonl
from vocabularies import builtin

VOCABULARY = builtin.load("gpt2")


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteJob:
    """A job of two parts, whose folder has a lock of the process that started it."""
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        write_jsonl(tmp_path / f"{number}.jsonl", make_texts(60, seed=number))
    inputs, _ = find_inputs(["0.jsonl", "1.jsonl"], None)
    job = Job(tuple(inputs), VOCABULARY.digest, shard_tokens=300, num_parts=2)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / LOCK).write_text("this run")
    version = package_version()
    return RemoteJob(job, VOCABULARY, folder, "this run", str(tmp_path), "cpu", 1, 4, version)


def test_parts_are_those_of_a_local_run(
    remote: RemoteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = ThreadRunner(CpuEngine(num_threads=1), 1, Progress(1, None))
    manifest = run_job(remote.job, VOCABULARY, tmp_path / "local", running)
    monkeypatch.chdir("/")
    sent: list[Counts] = []
    parts = [run_remote_part(remote, number, sent.append) for number in (1, 0)]
    os.chdir(tmp_path)
    total = Counts()
    for counts in sent:
        total = total.plus(counts)
    assert (total.num_documents, total.num_tokens) == (120, manifest["tokens"])
    assert total.num_bytes == sum(file.size for file in remote.job.inputs)
    assert sum(part.num_verified for part in parts) >= 4
    shards = {k: v for k, v in folder_bytes(remote.folder).items() if k.startswith("shard")}
    local = folder_bytes(tmp_path / "local")
    del local["manifest.json"]
    assert shards == local
    # Done parts are done: the files are not read again.
    sent.clear()
    assert run_remote_part(remote, 0, sent.append).result.checkpoint.is_done
    assert sent[-1].num_documents == 0


def test_nodes_that_do_not_fit(remote: RemoteJob, tmp_path: Path) -> None:
    cases: list[tuple[RemoteJob, type[Exception], str]] = [
        (replace(remote, version="0"), OtherNode, "has warptok"),
        (replace(remote, folder=tmp_path / "none"), OtherNode, "no folder .*none"),
        (replace(remote, folder=tmp_path), OtherNode, "a different folder"),
        (replace(remote, lock="an earlier run"), OtherJob, "another run has begun"),
    ]
    for case, kind, message in cases:
        with pytest.raises(kind, match=message):
            run_remote_part(case, 0, lambda counts: None)


def test_a_part_has_one_writer(remote: RemoteJob) -> None:
    """A second attempt waits until the first one, on a node that seemed lost, has ended."""
    ended = threading.Event()

    def run() -> None:
        run_remote_part(remote, 0, lambda counts: None)
        ended.set()

    with locked_part(remote.folder, 0):
        second = threading.Thread(target=run)
        second.start()
        assert not ended.wait(0.5)
        assert not [*remote.folder.glob("shard*")]
    assert ended.wait(120)
    second.join()


def test_a_part_that_waits_for_its_lock_does_not_begin_when_the_run_is_over(
    remote: RemoteJob,
) -> None:
    refused: list[OtherJob] = []

    def run() -> None:
        try:
            run_remote_part(remote, 0, lambda counts: None)
        except OtherJob as error:
            refused.append(error)

    with locked_part(remote.folder, 0):
        second = threading.Thread(target=run)
        second.start()
        second.join(0.5)
        assert second.is_alive()
        (remote.folder / LOCK).write_text("")
    second.join(120)
    assert len(refused) == 1
    assert not [*remote.folder.glob("shard*")]


def test_a_run_ends_the_one_before(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / LOCK).write_text("a run")
    assert (tmp_path / LOCK).read_text() == ""
    (tmp_path / LOCK).write_text("a run that was killed")
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_text() == ""


def test_a_run_waits_for_parts_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "MAX_WAIT_S", 0.4)
    with locked_part(tmp_path, 3):
        with pytest.raises(OtherJob, match=r"still writing to it: \.part_00003\.lock"):
            with locked(tmp_path):
                raise AssertionError
        with locked_part(tmp_path, 4):
            pass
    with locked(tmp_path):
        pass
