"""The training jobs that are known, their states, and the record of each on disk.

What has not ended keeps its inputs; what has ended keeps its record only, and the oldest of those
are forgotten. Knows no process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from service.core.errors import UnknownJob
from service.observability.metrics import Metrics
from service.training.job_folder import JobFolder, JobFolders
from service.training.schemas import ENDED, JobState, TrainingError, TrainingJob

logger = logging.getLogger(__name__)
MAX_ENDED = 100


class JobStore:
    """Jobs by id, oldest first; one event loop writes in it.

    Args:
        folders: where they lie.
        metrics: counts what ended.
    """

    def __init__(self, folders: JobFolders, metrics: Metrics) -> None:
        self.folders = folders
        self._metrics = metrics
        self._jobs: dict[str, tuple[TrainingJob, JobFolder]] = {}
        # Disks may be slow, and the loop has requests to answer; one thread keeps the order.
        self._disk = ThreadPoolExecutor(1, "training")

    def open(self) -> None:
        """Find what an earlier run of the service has left."""
        for folder, job in self.folders.found():
            self._jobs[job.id] = job, folder

    async def close(self) -> None:
        """Finish writing."""
        await asyncio.to_thread(self._disk.shutdown)
        for _, folder in self._jobs.values():
            folder.close()
        self.folders.close()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def jobs(self, state: JobState | None = None) -> list[TrainingJob]:
        """All jobs, or those in a state, oldest first."""
        return [job for job, _ in self._jobs.values() if state is None or job.state == state]

    def states(self) -> Counter[str]:
        """How many jobs are in each state."""
        return Counter(job.state for job, _ in self._jobs.values())

    @property
    def num_held(self) -> int:
        """Jobs that have not ended."""
        return sum(job.state not in ENDED for job, _ in self._jobs.values())

    def find(self, job_id: str) -> TrainingJob:
        """One job.

        Raises:
            UnknownJob: there is none of this id.
        """
        if (found := self._jobs.get(job_id)) is None:
            raise UnknownJob("no training job has this id", "/id")
        return found[0]

    def folder(self, job: TrainingJob) -> JobFolder:
        """Where a job lies."""
        return self._jobs[job.id][1]

    async def add(self, job: TrainingJob, folder: JobFolder) -> None:
        """A new job.

        Raises:
            OSError: its record cannot be written.
        """
        await asyncio.to_thread(folder.write, job)
        self._jobs[job.id] = job, folder

    def set_state(
        self, job: TrainingJob, state: JobState, error: TrainingError | None = None
    ) -> None:
        """Change a job's state, on disk as well."""
        now = datetime.now(UTC)
        job.state, job.error = state, error
        if state == "running":
            job.started_at = now
        if state in ENDED:
            job.ended_at = now
            self._metrics.training_ended(state, job.metrics.seconds)
        logger.info("training job %s is %s%s", job.id, state, f" ({error.code})" if error else "")
        self.write(job)
        if state in ENDED:
            self._disk.submit(self.folder(job).clear)
            ended = [each for each in self.jobs() if each.state in ENDED]
            for each in ended[:-MAX_ENDED]:
                self.forget(each)

    def write(self, job: TrainingJob) -> None:
        """Keep a job's record as it is now."""
        folder = self.folder(job)

        def write(now: TrainingJob) -> None:
            try:
                folder.write(now)
            except OSError as error:
                logger.error("training job %s is not written: %s", now.id, error.strerror)

        self._disk.submit(write, job.model_copy(deep=True))

    def forget(self, job: TrainingJob) -> None:
        """Remove a job and its folder."""
        _, folder = self._jobs.pop(job.id)
        self._disk.submit(folder.remove)
