"""Replaces files atomically: after a crash, either the old or the new file exists."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SLASH = "%2F"
PARTIAL = ".partial"  # A file of that name is what a process that was killed has left.


class FileVersion(NamedTuple):
    """Identifies one version of a file, which changes when another file is renamed to its path."""

    inode: int
    changed_ns: int
    num_bytes: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        """Make the version of a file from its stat result."""
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)


@dataclass(frozen=True, slots=True)
class Store:
    """Stores files by name in one folder; without a folder it stores nothing.

    A slash in a name is stored as %2F. Only the user of this process may read private files; other
    files have the mode that the umask, or a default ACL of the folder, gives to new files.
    """

    folder: Path | None
    is_private: bool = False

    def path(self, name: str) -> Path | None:
        """Return the path of a file, which need not exist; None without a folder."""
        return None if self.folder is None else self.folder / name.replace("/", SLASH)

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the free bytes and the size of the disk; None if there is no folder."""
        if self.folder is None:
            return None
        try:
            disk = shutil.disk_usage(self.folder)
        except OSError:
            return None
        return disk.free, disk.total

    def write(self, name: str, content: bytes) -> FileVersion | None:
        """Write a file atomically: a crash leaves either the complete old file or the new one.

        Returns:
            The version of the new file; None without a folder.
        """
        if self.folder is None:
            return None
        temporary = self.folder / f".{secrets.token_hex(8)}{PARTIAL}"
        mode = 0o600 if self.is_private else 0o666  # The system subtracts the umask.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                version = FileVersion.of(os.fstat(file.fileno()))
            os.replace(temporary, self.folder / name.replace("/", SLASH))
        except BaseException:  # Do not leave a partial file on a full disk.
            os.unlink(temporary)
            raise
        return version

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        if self.folder is not None:
            (self.folder / name.replace("/", SLASH)).unlink(missing_ok=True)

    def files(self, suffix: str) -> Iterator[tuple[str, Path]]:
        """List the files with a suffix: the name without the suffix, and the path of each."""
        if self.folder is None:
            return
        for path in sorted(self.folder.glob("*" + suffix)):
            yield path.name.removesuffix(suffix).replace(SLASH, "/"), path
