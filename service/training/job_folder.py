"""Manages the folders of training jobs: each contains a job's record, inputs and results.

    <store_dir>/training/<id>/job.json        the record
                             /corpus.0, ...   the upload; also motifs and confidence
                             /state.npz       a training that can be resumed
                             /vocabulary      the learnt vocabulary, until it is registered

A folder belongs to the process that holds its lock, so that services that share a store do not
touch each other's jobs. Without a store the folders are temporary.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from service.runtime.atomic_files import Store
from service.training.schemas import TrainingJob

logger = logging.getLogger(__name__)
UPLOAD_PREFIX = ".upload-"  # Begins the names of files in which front ends keep uploads.
RECORD, STATE, VOCABULARY = "job.json", "state.npz", "vocabulary"


class JobFolder:
    """The folder of one job, locked by this process.

    Raises:
        BlockingIOError: another process holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._lock)
            raise

    def write(self, job: TrainingJob) -> None:
        """Write the job's record."""
        Store(self.path).write(RECORD, job.model_dump_json(indent=1).encode())

    def read(self) -> TrainingJob:
        """Read the job's record.

        Raises:
            OSError: there is no record.
            ValueError: the record is damaged.
        """
        return TrainingJob.model_validate_json((self.path / RECORD).read_bytes())

    def clear(self) -> None:
        """Remove all files but the record."""
        for path in self.path.iterdir():
            if path.name != RECORD:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        """Remove the folder and release the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.close()


class JobFolders:
    """The folders of all jobs of one service.

    Args:
        store_dir: the folder of the service's store; None: jobs are temporary.
    """

    def __init__(self, store_dir: Path | None) -> None:
        self.is_kept = store_dir is not None
        self._root = None if store_dir is None else store_dir / "training"

    def new(self) -> JobFolder:
        """Make an empty folder; its name is the id of the new job."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="warptok-training-"))
        name = secrets.token_hex(8)
        hidden = self._root / f".{name}"
        hidden.mkdir(parents=True, mode=0o700)
        # Rename it only when it is locked, so that no other process finds it unlocked.
        folder = JobFolder(hidden)
        folder.path = hidden.rename(self._root / name)
        return folder

    def recover(self) -> Iterator[tuple[JobFolder, TrainingJob]]:
        """Lock the folders that earlier runs of the service left, oldest first.

        Folders that another process holds, or another user, are skipped. A folder without a record
        belongs to an unfinished upload, and is removed.
        """
        rows: list[tuple[JobFolder, TrainingJob]] = []
        if self._root is not None:
            _remove_abandoned_uploads(self._root)
        for path in self._root.glob("[!.]*") if self._root else ():
            try:
                folder = JobFolder(path)
            except (BlockingIOError, NotADirectoryError, PermissionError):
                continue
            try:
                rows.append((folder, folder.read()))
            except FileNotFoundError:
                folder.remove()
            except (OSError, ValidationError) as error:
                logger.warning("training job %s is skipped: %s", path.name, type(error).__name__)
                folder.close()
        yield from sorted(rows, key=lambda row: row[1].created_at)

    def close(self) -> None:
        """Remove temporary folders."""
        if not self.is_kept and self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


def _remove_abandoned_uploads(folder: Path) -> None:
    """Remove unfinished uploads of killed front ends."""
    for path in folder.glob(UPLOAD_PREFIX + "*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:  # The upload of another user.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
