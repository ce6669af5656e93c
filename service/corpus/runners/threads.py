"""Runs the parts of a job in threads of this process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from service.corpus.encoding.encoder import DocumentEncoder
from service.corpus.encoding.verification import Verifier
from service.corpus.job import Job
from service.corpus.parts.ordered import Stopped
from service.corpus.parts.part import PartResult, Workers, run_part
from service.corpus.parts.progress import Progress
from service.corpus.writing.formats import FORMATS
from service.engines.base import Codec
from vocabularies.model.vocabulary import Vocabulary

BLOCKS_AHEAD = 2  # Beside those that threads work on: one is read, and one is written.


@dataclass(frozen=True, slots=True)
class ThreadRunner:
    """Runs one part per thread at a time; see `run.PartRunner`.

    Attributes:
        engine: computes the ids.
        num_threads: the number of threads that read and encode.
        progress: counts the finished work.
        num_verified: the number of documents that are compared with the reference.
    """

    engine: Codec
    num_threads: int
    progress: Progress
    num_verified: int = 0

    def run_parts(self, job: Job, vocabulary: Vocabulary, folder: Path) -> list[PartResult]:
        """Run each part to its end, from its checkpoint if any."""
        verifier = Verifier(job, vocabulary, self.num_verified)
        id_dtype = FORMATS[job.format].id_dtype(len(vocabulary))
        encoder = DocumentEncoder(job, vocabulary, self.engine, id_dtype, verifier)
        results = _run_in_threads(job, folder, encoder, self)
        self.progress.num_verified = verifier.num_compared
        return results


def _run_in_threads(
    job: Job, folder: Path, encoder: DocumentEncoder, runner: ThreadRunner
) -> list[PartResult]:
    """Run the parts, one per thread at a time."""
    parts = job.parts()
    failed = threading.Event()
    num_at_once = min(len(parts), runner.num_threads)
    max_ahead = max(BLOCKS_AHEAD, -(-runner.num_threads // num_at_once) + 1)

    def run_one(number: int) -> PartResult:
        try:
            return run_part(job, number, parts[number], folder, workers)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(runner.num_threads, "corpus") as pool:
        workers = Workers(encoder, pool, max_ahead, runner.progress, failed.is_set)
        if len(parts) == 1:
            return [run_one(0)]
        with ThreadPoolExecutor(num_at_once, "part") as part_pool:
            futures = [part_pool.submit(run_one, number) for number in range(len(parts))]
            try:
                errors = [future.exception() for future in futures]
            except BaseException:  # Ctrl-C.
                failed.set()
                raise
            for error in errors:
                if error is not None and not isinstance(error, Stopped):
                    raise error
            return [future.result() for future in futures]
