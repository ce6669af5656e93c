"""Where the files of uploaded vocabularies lie: in a folder, or in an object store.

A name has no slash. A file is written whole: whoever reads it has the old or the new one.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from service.core.settings import PREFIX
from service.runtime.atomic_files import FileVersion, Store


class Files(Protocol):
    """Files by name; its methods raise OSError where the place fails."""

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: there is none of this name.
        """

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Read files, several at a time where that is faster."""

    def write(self, name: str, content: bytes) -> Hashable | None:
        """Write a file and return its version; None: the next listing has it."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def list_versions(self, suffixes: tuple[str, ...]) -> dict[str, Hashable]:
        """Return the versions of all files whose names have one of the suffixes."""

    def is_own(self, name: str) -> bool:
        """Return whether a file of another version than was noted has what was written here."""

    def forget_written(self, name: str) -> None:
        """Forget what was written here: the version is noted, and others write the next one."""

    def changed_at(self) -> int | None:
        """Return when a file was last written or removed, in steps of up to two seconds.

        None: the place does not say so.
        """

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the free and all bytes of the disk; None: there is no disk."""


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Files in a folder; a version is the inode, time and size, which renaming leaves alone."""

    folder: Path

    def read(self, name: str) -> bytes:
        """Read a file."""
        return (self.folder / name).read_bytes()

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Read files one after another."""
        for name in names:
            try:
                yield name, self.read(name)
            except OSError as error:
                yield name, error

    def write(self, name: str, content: bytes) -> FileVersion | None:
        """Write a file so that a crash leaves either the old or the new one, whole."""
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
                    with suppress(FileNotFoundError):  # Removed meanwhile.
                        versions[entry.name] = FileVersion.of(entry.stat())
        return versions

    def is_own(self, name: str) -> bool:
        """Return False, as `write` returns the version."""
        return False

    def forget_written(self, name: str) -> None:
        """Do nothing, as nothing is remembered."""

    def changed_at(self) -> int | None:
        """Return the time of the folder, which each renaming and removal changes."""
        return os.stat(self.folder).st_mtime_ns

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the free and all bytes of the disk; None if the folder is gone."""
        return Store(self.folder).disk_bytes()


@dataclass(slots=True)
class ObjectFiles:
    """Objects below a URL, by fsspec; a version is what the listing says of an object.

    The version of an object that is written here is known when it is first listed: it is this one's
    if the content is what was written.
    """

    url: str
    _filesystem: Any = None
    _prefix: str = ""
    _written: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def open(cls, url: str) -> ObjectFiles:
        """Open an object store, without a request to it.

        Raises:
            ValueError: fsspec, or its package for the scheme, is not installed; or it refuses.
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
        """Read objects at once, as far as the file system does that."""
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
            except FileNotFoundError:  # There is no object yet.
                listed = []
        return {
            name: str(sorted(info.items(), key=str))
            for info in listed
            if (name := str(info["name"]).rsplit("/", 1)[-1]).endswith(suffixes)
        }

    def is_own(self, name: str) -> bool:
        """Return whether an object has the content that was last written here."""
        written = self._written.get(name)
        return written is not None and hashlib.sha256(self.read(name)).digest() == written

    def forget_written(self, name: str) -> None:
        """Forget what was written here: the same content may come back from another service."""
        self._written.pop(name, None)

    def changed_at(self) -> int | None:
        """Return None: an object store does not say so."""
        return None

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return None: there is no disk."""
        return None

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"


@contextmanager
def _as_os_errors(url: str) -> Iterator[None]:
    """Turn what the packages of fsspec raise into OSError."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        kind = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EIO
        raise OSError(kind, f"{url}: {error}") from error
    except Exception as error:
        raise OSError(errno.EIO, f"{url}: {error}") from error
