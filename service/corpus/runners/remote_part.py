"""Runs one part of a job in a process that another one has started, perhaps on another node.

It does not import Ray; the caller passes a function that sends counts to the other process.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from service.core.version import package_version
from service.corpus.encoding.encoder import DocumentEncoder
from service.corpus.encoding.engines import open_engine
from service.corpus.encoding.verification import Verifier
from service.corpus.job import Job
from service.corpus.parts.checkpoint import OtherJob
from service.corpus.parts.locks import LOCK, locked_part
from service.corpus.parts.part import PartResult, Workers, run_part
from service.corpus.parts.progress import peak_memory
from service.corpus.writing.formats import FORMATS
from service.engines.base import Codec
from service.runtime.malloc import keep_large_blocks
from vocabularies.model.vocabulary import Vocabulary

PERIOD_S = 0.5

_engines: dict[tuple[str, str], Codec] = {}
"""The engines of this process by name and vocabulary; parts that Ray runs here share them."""


class OtherNode(ValueError):
    """A node has another version or another folder than the process that started the job."""


class PartLost(ValueError):
    """A process or a node was lost before its part was done, or the cluster was lost."""


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """A job, and the settings with which its parts run.

    Attributes:
        job: the job.
        vocabulary: the vocabulary of the job.
        folder: the folder of the shards.
        lock: the content of the folder's lock file.
        working_folder: the folder to which relative paths refer.
        engine: "cpu" or "gpu".
        num_threads: the number of threads of a part.
        num_verified: the number of the job's documents that are compared with the reference.
        version: the version of this package.
    """

    job: Job
    vocabulary: Vocabulary
    folder: Path
    lock: str
    working_folder: str
    engine: str
    num_threads: int
    num_verified: int
    version: str


def open_remote_job(
    job: Job, vocabulary: Vocabulary, folder: Path, engine: str, num_threads: int, num_verified: int
) -> RemoteJob:
    """Write a new lock file to a folder; return the job, whose parts run as long as it is there.

    Args:
        job: the job.
        vocabulary: the vocabulary of the job.
        folder: the folder of the shards.
        engine: "cpu" or "gpu".
        num_threads: the number of threads of a part.
        num_verified: the number of the job's documents that are compared with the reference.
    """
    lock = uuid.uuid4().hex
    (folder / LOCK).write_text(lock)
    return RemoteJob(
        job=job,
        vocabulary=vocabulary,
        folder=folder.absolute(),
        lock=lock,
        working_folder=os.getcwd(),
        engine=engine,
        num_threads=num_threads,
        num_verified=num_verified,
        version=package_version(),
    )


class Counts(NamedTuple):
    """The work since the last report, as arguments of `Progress.add` and `Progress.skip`."""

    num_bytes: int = 0
    text_bytes: int = 0
    num_documents: int = 0
    num_tokens: int = 0
    skipped_bytes: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum of two counts."""
        return Counts(*map(sum, zip(self, other, strict=True)))


class RemotePart(NamedTuple):
    """A part that is done.

    Attributes:
        result: the result of the part.
        num_verified: the number of documents compared with the reference.
        cpu_seconds: the CPU time of the part.
        pid: the process.
        peak_bytes: the most resident memory of the process so far.
    """

    result: PartResult
    num_verified: int
    cpu_seconds: float
    pid: int
    peak_bytes: int


class SentProgress:
    """Sends the progress of a part at intervals; only one thread may call it.

    Args:
        send: sends counts.
    """

    def __init__(self, send: Callable[[Counts], object]) -> None:
        self._send = send
        self._counts = Counts()
        self._sent = perf_counter()

    def skip(self, num_bytes: int) -> None:
        """Note bytes of files that an earlier run has done."""
        self._note(Counts(skipped_bytes=num_bytes))

    def add(self, num_bytes: int, text_bytes: int, num_documents: int, num_tokens: int) -> None:
        """Note what was done."""
        self._note(Counts(num_bytes, text_bytes, num_documents, num_tokens))

    def _note(self, counts: Counts) -> None:
        self._counts = self._counts.plus(counts)
        if perf_counter() - self._sent >= PERIOD_S:
            self.flush()

    def flush(self) -> None:
        """Send the counts that have not been sent yet."""
        self._send(self._counts)
        self._counts = Counts()
        self._sent = perf_counter()


def run_remote_part(remote: RemoteJob, number: int, send: Callable[[Counts], object]) -> RemotePart:
    """Run a part to its end, from the checkpoint of an earlier attempt if there is one.

    Args:
        remote: the job.
        number: the number of the part.
        send: sends counts to the process that started the job.

    Raises:
        OtherNode: this node has another version, or another folder at the same path.
        UnreadableInput, OtherJob, DiffersFromReference, OSError: as `run_part`.
    """
    begin = process_time()
    job, vocabulary = remote.job, remote.vocabulary
    _check_node(remote)
    _check_run(remote)
    os.chdir(remote.working_folder)
    id_dtype = FORMATS[job.format].id_dtype(len(vocabulary))
    verifier = Verifier(job, vocabulary, remote.num_verified)
    engine = _find_engine(remote.engine, vocabulary)
    encoder = DocumentEncoder(job, vocabulary, engine, id_dtype, verifier)
    progress = SentProgress(send)
    with (
        locked_part(remote.folder, number),
        ThreadPoolExecutor(remote.num_threads, "corpus") as pool,
    ):
        _check_run(remote)  # The job may be over since this waits for the lock.
        workers = Workers(encoder, pool, remote.num_threads + 1, progress, lambda: False)
        result = run_part(job, number, job.parts()[number], remote.folder, workers)
    progress.flush()
    cpu_seconds = process_time() - begin
    return RemotePart(result, verifier.num_compared, cpu_seconds, os.getpid(), peak_memory() or 0)


def _check_node(remote: RemoteJob) -> None:
    """Check that this node has the version and the folder of the process that started the job.

    Raises:
        OtherNode: the version or the folder differs.
    """
    node = os.uname().nodename
    if remote.version != package_version():
        message = f"has warptok {package_version()}, but this machine has {remote.version}"
        raise OtherNode(f"the node {node} {message}")
    for folder in (remote.folder, Path(remote.working_folder)):
        if not folder.is_dir():
            raise OtherNode(f"the node {node} has no folder {folder}; all nodes must share it")
    if not (remote.folder / LOCK).exists():
        message = f"has a different folder {remote.folder}; all nodes must share one folder"
        raise OtherNode(f"the node {node} {message}")


def _check_run(remote: RemoteJob) -> None:
    """Check that the run of this part has not ended.

    Raises:
        OtherJob: the run has ended, or another one has begun.
    """
    if (remote.folder / LOCK).read_text() != remote.lock:
        raise OtherJob(
            f"{remote.folder}: on the node {os.uname().nodename} this run has ended and another "
            "run has begun, or it is another folder; all nodes must share it"
        )


def _find_engine(name: str, vocabulary: Vocabulary) -> Codec:
    key = (name, vocabulary.digest)
    if key not in _engines:
        keep_large_blocks()  # Each block takes memory of the same sizes again.
        _engines[key] = open_engine(name, vocabulary)
    return _engines[key]
