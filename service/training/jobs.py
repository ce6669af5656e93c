"""Runs training jobs: a bounded queue, and one process at a time.

                        ┌──────── resume ────────┐
    queued ──► running ─┼─► interrupted ─────────┘   the service stopped, or the name is taken
       │          │     ├─► finished                 the vocabulary is registered
       │          │     └─► failed                   the job has an error
       └──────────┴──cancel──► cancelled

With a store, jobs survive a restart of the service: queued jobs run then, and jobs that were
running become interrupted. This module does not depend on HTTP; one event loop calls it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from time import monotonic
from typing import NamedTuple

from service.core.errors import Draining, ServiceError, TooManyJobs, WrongState, disk_errors
from service.core.settings import Settings
from service.observability.logging import fields
from service.observability.metrics import Metrics
from service.training.job_folder import VOCABULARY, JobFolder, JobFolders
from service.training.job_store import JobStore
from service.training.process import WORKER, TrainingProcess
from service.training.schemas import ENDED, TrainingError, TrainingJob, TrainingParameters
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
Install = Callable[[str, Vocabulary, bool], Awaitable[object]]
"""Registers a vocabulary under a name; the last argument allows replacing an existing one."""
SERVICE_ENDED = TrainingError(code="service_ended", detail="the service ended; resume the job")
WRITE_PERIOD_S = 30.0  # How often a running job's progress is written to its record.


class _Running(NamedTuple):
    """The running job and its process."""

    job: TrainingJob
    process: TrainingProcess


class TrainingJobs:
    """The training jobs of one service.

    Args:
        settings: the limits, and the folder of the store.
        metrics: counts jobs that end.
        install: registers the learnt vocabularies.
        worker: the command that starts a job's process.

    Attributes:
        store: all jobs.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        install: Install,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._install = install
        self._worker = worker
        self.store = JobStore(JobFolders(settings.store_dir), metrics)
        self._num_uploads = 0
        self._has_queued = asyncio.Event()
        self._running: _Running | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._runner: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_installing = False

    def start(self) -> None:
        """Load the jobs of earlier runs of the service, and run the queued ones."""
        self.store.open()
        for job in self.store.jobs("running"):
            self.store.set_state(job, "interrupted", SERVICE_ENDED)
        self._has_queued.set()
        self._runner = asyncio.create_task(self._run_queue())

    def stop_soon(self) -> None:
        """Request the running job to save its state and end; start no other job."""
        self._is_stopping = True
        if self._running is not None:
            if self.store.folders.is_kept:
                self._running.process.stop()
            else:  # Without a store its state is lost anyway.
                self._running.process.kill()

    async def stop(self, grace_s: float) -> None:
        """Stop the running job; kill it if it has not ended after `grace_s` seconds."""
        self.stop_soon()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        for job in self.store.jobs("running"):
            logger.warning("training job %s did not end within %.0f s", job.id, grace_s)
            self.store.set_state(job, "interrupted", SERVICE_ENDED)
        await self.store.close()

    @contextmanager
    def new_folder(self) -> Iterator[JobFolder]:
        """Make a folder for the inputs of a new job; remove it later unless the job is submitted.

        Raises:
            TooManyJobs: the number of unended jobs has reached the limit.
            Draining: the service is stopping.
        """
        if self._is_stopping:
            raise Draining("the service is stopping")
        num_jobs = self._num_uploads + self.store.num_unended
        if num_jobs >= self._settings.max_training_jobs:
            self._metrics.count_rejected(TooManyJobs.code)
            message = f"{num_jobs} training jobs wait, run or were interrupted"
            raise TooManyJobs(
                f"{message} (setting max_training_jobs); cancel one or try again later"
            )
        with disk_errors():
            folder = self.store.folders.new()
        self._num_uploads += 1
        try:
            yield folder
        finally:
            self._num_uploads -= 1
            if folder.path.name not in self.store:
                folder.remove()

    async def submit(
        self, folder: JobFolder, parameters: TrainingParameters, corpus_bytes: int
    ) -> TrainingJob:
        """Queue a job whose folder contains its inputs.

        Raises:
            OSError: the record cannot be written.
        """
        job = TrainingJob(
            id=folder.path.name,
            vocabulary=parameters.vocabulary,
            parameters=parameters,
            corpus_bytes=corpus_bytes,
            created_at=datetime.now(UTC),
        )
        await self.store.add(job, folder)
        self._has_queued.set()
        return job

    def check_resumable(self, job: TrainingJob) -> None:
        """Raise WrongState unless a job is interrupted."""
        if job.state != "interrupted":
            raise WrongState(
                f"the job is {job.state}; only an interrupted job can be resumed", "/id"
            )

    def resume(self, job: TrainingJob, vocabulary: str, replace: bool) -> None:
        """Queue an interrupted job again, with the same or another name for its vocabulary.

        Raises:
            WrongState: the job is not interrupted.
        """
        self.check_resumable(job)
        job.vocabulary = job.parameters.vocabulary = vocabulary
        job.parameters.replace = replace
        self.store.set_state(job, "queued")
        self._has_queued.set()

    def cancel(self, job: TrainingJob) -> None:
        """Cancel a job, or remove an ended job.

        Raises:
            WrongState: the vocabulary of the job is being registered.
        """
        if job.state in ENDED:
            self.store.forget(job)
            return
        if self._running is not None and self._running.job is job:
            if self._is_installing:
                raise WrongState("the vocabulary is being registered", "/id")
            self._running.process.kill()
        self.store.set_state(job, "cancelled")

    async def _run_queue(self) -> None:
        """Run one job after another, in the order of their arrival."""
        while True:
            await self._has_queued.wait()
            queued = self.store.jobs("queued")
            if queued and not self._is_stopping:
                await self._run(queued[0])
            else:
                self._has_queued.clear()

    async def _run(self, job: TrainingJob) -> None:
        """Run a job once, until it is finished, failed, cancelled or interrupted."""
        folder = self.store.folder(job)
        process = TrainingProcess(
            folder.path,
            self._settings.training_memory_bytes,
            self._settings.max_corpus_bytes,
            device=self._settings.training_device,
            gpu_memory_share=self._settings.training_gpu_memory_share,
            gpu=self._settings.first_gpu,
            worker=self._worker,
        )
        self._running = _Running(job, process)
        self._idle.clear()
        job.metrics.ending = ""
        self.store.set_state(job, "running")
        try:
            await self._follow(job, process)
            if job.state == "running":
                await self._finish(job, folder, process)
        except Exception as error:
            logger.exception("This is a bug. Training job %s", job.id)
            if job.state == "running":
                reported = TrainingError(code="internal", detail=type(error).__name__)
                self.store.set_state(job, "failed", reported)
        finally:
            self._running = None
            self._idle.set()

    async def _follow(self, job: TrainingJob, process: TrainingProcess) -> None:
        """Update the job's record with the events of its process."""
        written = monotonic()
        async for event in process.events():
            if job.state != "running":  # Cancelled; more events may come before the process ends.
                continue
            if "error" in event:
                self.store.set_state(job, "failed", TrainingError(**event["error"]))
                continue
            job.progress = event.get("progress", job.progress)
            job.metrics = job.metrics.model_copy(update=event["metrics"])
            if "device" in event["metrics"]:
                _log_device(job)
            if monotonic() - written > WRITE_PERIOD_S:
                written = monotonic()
                self.store.write(job)

    async def _finish(self, job: TrainingJob, folder: JobFolder, process: TrainingProcess) -> None:
        """Register the learned vocabulary; if there is none, the job was interrupted."""
        if not job.metrics.ending:
            self.store.set_state(job, "interrupted", self._describe_end(process))
            return
        content = await asyncio.to_thread((folder.path / VOCABULARY).read_bytes)
        vocabulary = await asyncio.to_thread(read_canonical, content)
        if job.state != "running":  # Cancelled meanwhile.
            return
        self._is_installing = True
        try:
            await self._install(job.vocabulary, vocabulary, job.parameters.replace)
        except ServiceError as error:
            # For example because another vocabulary got the name: the learnt one is kept.
            refusal = TrainingError(code=error.code, detail=error.message, where=error.where)
            self.store.set_state(job, "interrupted", refusal)
        except VocabularyError as error:
            self.store.set_state(job, "failed", TrainingError.of(error))
        else:
            job.digest, job.progress = vocabulary.digest, 1.0
            self.store.set_state(job, "finished")
        finally:
            self._is_installing = False

    def _describe_end(self, process: TrainingProcess) -> TrainingError:
        """Describe why a process ended without a vocabulary and without an error."""
        if self._is_stopping:
            return SERVICE_ENDED
        number = process.ending_signal
        how = f"was ended by signal {number}" if number else "ended too early"
        return TrainingError(code="process_ended", detail=f"its process {how}; resume the job")


def _log_device(job: TrainingJob) -> None:
    """Log a job's device, and why a self-test failed; other reasons may quote inputs."""
    metrics = job.metrics
    extra = fields(selftest=metrics.device_selftest) if metrics.device_selftest else {}
    if metrics.device_selftest == "failed":
        message = "training job %s does not use the GPU: %s"
        logger.error(message, job.id, metrics.device_reason, extra=extra)
    logger.info("training job %s computes on %s", job.id, metrics.device, extra=extra)
