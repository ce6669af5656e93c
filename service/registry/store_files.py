"""Stores the files of uploaded vocabularies in a folder or in an object store.

File names contain no slash. Files are written atomically: a reader gets the old or the new file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from service.core.settings import PREFIX
from service.runtime.atomic_files import FileVersion, Store


class Files(Protocol):
    """Files by name; the methods raise OSError if the folder or the object store fails."""

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: there is no file of this name.
        """

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Read files, several at a time where this is faster."""

    def write(self, name: str, content: bytes) -> Hashable | None:
        """Write a file; return its version, or None if only the next listing contains it."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def list_versions(self, suffixes: tuple[str, ...]) -> dict[str, Hashable]:
        """Return the versions of all files whose names have one of the suffixes."""

    def is_own(self, name: str) -> bool:
        """Return whether a file with a new version has the content that this service wrote last."""

    def forget_written(self, name: str) -> None:
        """Forget the content that this service wrote last, as its version is known now."""

    def changed_at(self) -> int | None:
        """Return the time of the last write or removal, in steps of up to two seconds.

        The result is None if the storage does not record it.
        """

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the free and the total bytes of the disk; None if there is no disk."""


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Files in a folder; a version is inode, time and size, which renaming does not change."""

    folder: Path

    def read(self, name: str) -> bytes:
        """Read a file; a folder or a pipe, which would never end, does not count as one."""
        path = self.folder / name
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return path.read_bytes()

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Read files one after another."""
        for name in names:
            try:
                yield name, self.read(name)
            except OSError as error:
                yield name, error

    def write(self, name: str, content: bytes) -> FileVersion | None:
        """Write a file atomically: after a crash it has the old or the new content."""
        return Store(self.folder).write(name, content)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        Store(self.folder).remove(name)

    def list_versions(self, suffixes: tuple[str, ...]) -> dict[str, Hashable]:
        """Return the versions of all files whose names have one of the suffixes."""
        versions: dict[str, Hashable] = {}
        with os.scandir(self.folder) as listed:
            for entry in listed:
                if entry.name.endswith(suffixes):
                    try:
                        status = entry.stat()
                    except OSError as error:
                        if error.errno not in (errno.ENOENT, errno.ELOOP):
                            raise
                        continue  # Removed meanwhile, or a symbolic link to no file.
                    if stat.S_ISREG(status.st_mode):
                        versions[entry.name] = FileVersion.of(status)
        return versions

    def is_own(self, name: str) -> bool:
        """Return False, as `write` returns the version."""
        return False

    def forget_written(self, name: str) -> None:
        """Do nothing, as no content is remembered."""

    def changed_at(self) -> int | None:
        """Return the folder's modification time, which each rename and removal changes."""
        return os.stat(self.folder).st_mtime_ns

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the free and the total bytes of the disk; None if the folder is gone."""
        return Store(self.folder).disk_bytes()


@dataclass(slots=True)
class ObjectFiles:
    """Objects below a URL, accessed by fsspec; a version is all that a listing says of an object.

    The version of an object that this service writes is known only from the next listing. If the
    object then has the written content, the version is that of this service's write.
    """

    url: str
    _filesystem: Any = None
    _prefix: str = ""
    _written: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def open(cls, url: str) -> ObjectFiles:
        """Open an object store without sending a request to it.

        Raises:
            ValueError: fsspec or its package for the scheme is not installed, or fsspec rejects the
                URL.
        """
        setting = f"{PREFIX}STORE_URL: {url}"
        try:
            from fsspec.core import url_to_fs

            filesystem, prefix = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            install = "pip install 'warptok[urls]', and what fsspec needs for it, such as s3fs"
            raise ValueError(f"{setting} needs packages: {install}") from error
        except Exception as error:
            raise ValueError(f"{setting}: {error}") from error
        return cls(url, filesystem, str(prefix).rstrip("/"))

    def read(self, name: str) -> bytes:
        """Read an object."""
        with _as_os_errors(self.url):
            return bytes(self._filesystem.cat_file(self._path(name)))

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Read objects, concurrently if the file system supports it."""
        by_path = {self._path(name): name for name in names}
        if not by_path:
            return
        with _as_os_errors(self.url):
            contents = self._filesystem.cat([*by_path], on_error="return")
        for path, content in contents.items():
            is_read = isinstance(content, bytes)
            yield by_path[path], content if is_read else OSError(errno.EIO, str(content))

    def write(self, name: str, content: bytes) -> None:
        """Write an object."""
        with _as_os_errors(self.url):
            self._filesystem.pipe_file(self._path(name), content)
        self._written[name] = hashlib.sha256(content).digest()

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        self._written.pop(name, None)
        with _as_os_errors(self.url), suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(name))

    def list_versions(self, suffixes: tuple[str, ...]) -> dict[str, Hashable]:
        """Return the versions of all objects whose names have one of the suffixes."""
        with _as_os_errors(self.url):
            try:
                self._filesystem.invalidate_cache()
                listed = self._filesystem.ls(self._prefix, detail=True)
            except FileNotFoundError:  # There are no objects yet.
                listed = []
        return {
            name: str(sorted(info.items(), key=str))
            for info in listed
            if info.get("type") != "directory"
            and (name := str(info["name"]).rsplit("/", 1)[-1]).endswith(suffixes)
        }

    def is_own(self, name: str) -> bool:
        """Return whether an object has the content that this service wrote last."""
        written = self._written.get(name)
        return written is not None and hashlib.sha256(self.read(name)).digest() == written

    def forget_written(self, name: str) -> None:
        """Forget the written content, as another service may write the same content again."""
        self._written.pop(name, None)

    def changed_at(self) -> int | None:
        """Return None: an object store does not record this."""
        return None

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return None: there is no disk."""
        return None

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"


@contextmanager
def _as_os_errors(url: str) -> Iterator[None]:
    """Convert exceptions of fsspec's packages to OSError."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        kind = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EIO
        raise OSError(kind, f"{url}: {error}") from error
    except Exception as error:
        raise OSError(errno.EIO, f"{url}: {error}") from error
