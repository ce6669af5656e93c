"""Tells whether a file has changed, so that settings in files can be read again."""

from __future__ import annotations

import stat
from pathlib import Path

State = tuple[int, ...]


def read_state(path: Path | None) -> State:
    """Return numbers that change whenever the content of a file, or who may read it, changes.

    They include the time of the last change of the file's permissions: a file that could not be
    read is tried again when it can be. Links are followed. The result is empty if there is no file,
    and for a pipe, whose content can be read only once.
    """
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return ()
    if status is None or stat.S_ISFIFO(status.st_mode):
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
