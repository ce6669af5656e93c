"""Prepares the paths of Unix sockets.

A Unix socket is a file, which remains when its process is killed. So a socket on which no process
listens is replaced.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

from service.core.settings import PREFIX, Settings


def find_unix_problem(path: Path) -> str:
    """Return why a Unix socket cannot be created at a path; "" if it can."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
        trial.connect(str(path))
        return "another program listens there"
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return "" if is_socket else "exists, but is not a socket"


def prepare_unix_path(path: Path, setting: str) -> None:
    """Remove the socket that an ended process left at a path.

    Args:
        path: the path at which a socket will be created.
        setting: the name of the setting with this path, for the message.

    Raises:
        ValueError: a socket cannot be created at the path.
    """
    problem = find_unix_problem(path)
    try:
        if not problem:
            path.unlink(missing_ok=True)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise ValueError(f"{PREFIX}{setting}: {path}: {problem}")


def set_unix_mode(path: Path, settings: Settings) -> None:
    """Give a Unix socket the permissions of the setting `unix_socket_mode`."""
    os.chmod(path, int(settings.unix_socket_mode, 8))
