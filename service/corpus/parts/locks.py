"""Locks the folder of a job, and each of its parts, against other runs and other machines."""

from __future__ import annotations

import fcntl
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.corpus.parts.checkpoint import OtherJob

LOCK = ".lock"
PART_LOCKS = ".part_*.lock"
POLL_S = 0.2
MAX_WAIT_S = 30.0


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create a folder, and lock it against other runs.

    Raises:
        OtherJob: another run, or a part of it on another machine, is using the folder.
        OSError: the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = _try_lock(folder / LOCK)
    if descriptor is None:
        raise OtherJob(f"{folder}: another run is writing to it")
    try:
        os.ftruncate(descriptor, 0)  # By its content parts of an earlier run would still begin.
        _wait_for_parts(folder)
        yield
    finally:
        with suppress(OSError):  # The folder may be gone.
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


def _wait_for_parts(folder: Path) -> None:
    """Wait until the parts of a stopped run on several machines have ended.

    Raises:
        OtherJob: a part does not end in time.
    """
    for path in folder.glob(PART_LOCKS):
        for _ in range(math.ceil(MAX_WAIT_S / POLL_S)):
            descriptor = _try_lock(path)
            if descriptor is not None:
                os.close(descriptor)
                break
            time.sleep(POLL_S)
        else:
            raise OtherJob(
                f"{folder}: a part of an earlier run is still writing to it: {path.name}"
            )


@contextmanager
def locked_part(folder: Path, part: int) -> Iterator[None]:
    """Lock a part against other machines; wait until no other machine is writing it.

    So a part that is restarted because its machine seems lost never has two writers.
    """
    path = folder / f".part_{part:05d}.lock"
    while (descriptor := _try_lock(path)) is None:
        time.sleep(POLL_S)
    try:
        yield
    finally:
        os.close(descriptor)


def remove_part_locks(folder: Path) -> None:
    """Remove the locks of complete parts."""
    for path in folder.glob(PART_LOCKS):
        path.unlink()


def _try_lock(path: Path) -> int | None:
    """Create and lock a file until its descriptor is closed; None if it is already locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
