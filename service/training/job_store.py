"""Stores training jobs and their states, in memory and on disk.

The inputs of a job are stored until it ends; after that only its record is, and the oldest ended
jobs are removed. This module starts no process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

from service.core.errors import UnknownJob
from service.observability.metrics import Metrics
from service.training.job_folder import JobFolder, JobFolders
from service.training.schemas import ENDED, JobState, TrainingError, TrainingJob

logger = logging.getLogger(__name__)
MAX_ENDED = 100  # Ended jobs whose records are kept.


class _Entry(NamedTuple):
    """A job and its folder."""

    job: TrainingJob
    folder: JobFolder


class JobStore:
    """Jobs by id, oldest first; only one event loop may call it.

    Args:
        folders: the jobs' folders.
        metrics: counts ended jobs.
    """

    def __init__(self, folders: JobFolders, metrics: Metrics) -> None:
        self.folders = folders
        self._metrics = metrics
        self._entries: dict[str, _Entry] = {}
        # Writing may be slow and must not block the loop; one thread keeps the order.
        self._disk = ThreadPoolExecutor(1, "training")

    def open(self) -> None:
        """Load the jobs of earlier runs of the service."""
        for folder, job in self.folders.recover():
            self._entries[job.id] = _Entry(job, folder)

    async def close(self) -> None:
        """Finish writing, and release all folders."""
        await asyncio.to_thread(self._disk.shutdown)
        for entry in self._entries.values():
            entry.folder.close()
        self.folders.close()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._entries

    def jobs(self, state: JobState | None = None) -> list[TrainingJob]:
        """Return all jobs, or those in one state, oldest first."""
        all_jobs = [entry.job for entry in self._entries.values()]
        return [job for job in all_jobs if state is None or job.state == state]

    def states(self) -> Counter[str]:
        """Count the jobs in each state."""
        return Counter(job.state for job in self.jobs())

    @property
    def num_unended(self) -> int:
        """The number of jobs that have not ended."""
        return sum(job.state not in ENDED for job in self.jobs())

    def find(self, job_id: str) -> TrainingJob:
        """Find a job by its id.

        Raises:
            UnknownJob: no job has this id.
        """
        if (entry := self._entries.get(job_id)) is None:
            raise UnknownJob("no training job has this id", "/id")
        return entry.job

    def folder(self, job: TrainingJob) -> JobFolder:
        """Get a job's folder."""
        return self._entries[job.id].folder

    async def add(self, job: TrainingJob, folder: JobFolder) -> None:
        """Add a new job.

        Raises:
            OSError: the record cannot be written.
        """
        await asyncio.to_thread(folder.write, job)
        self._entries[job.id] = _Entry(job, folder)

    def set_state(
        self, job: TrainingJob, state: JobState, error: TrainingError | None = None
    ) -> None:
        """Change a job's state, in memory and on disk."""
        now = datetime.now(UTC)
        job.state = state
        job.error = error
        if state == "running":
            job.started_at = now
        if state in ENDED:
            job.ended_at = now
            self._metrics.count_training(state, job.metrics.seconds)
        logger.info("training job %s is %s%s", job.id, state, f" ({error.code})" if error else "")
        self.write(job)
        if state in ENDED:
            self._disk.submit(self.folder(job).clear)
            ended_jobs = [job for job in self.jobs() if job.state in ENDED]
            for oldest in ended_jobs[:-MAX_ENDED]:
                self.forget(oldest)

    def write(self, job: TrainingJob) -> None:
        """Write the current record of a job to disk."""
        folder = self.folder(job)

        def write(now: TrainingJob) -> None:
            try:
                folder.write(now)
            except OSError as error:
                logger.error(
                    "the record of training job %s cannot be written: %s", now.id, error.strerror
                )

        self._disk.submit(write, job.model_copy(deep=True))

    def forget(self, job: TrainingJob) -> None:
        """Remove a job and its folder."""
        entry = self._entries.pop(job.id)
        self._disk.submit(entry.folder.remove)
