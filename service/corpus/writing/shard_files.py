"""Writes the files of a shard under temporary names until all of them are complete."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.corpus.documents import Rows

BUFFER_BYTES = 1 << 20
COPY_ITEMS = 1 << 20


class WrittenFile(NamedTuple):
    """A file of a shard.

    Attributes:
        name: the name of the file in the folder.
        size: the number of its bytes.
        digest: the SHA-256 of the file; "" if the job computes no digests.
    """

    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The parameters of a shard for its writer.

    Attributes:
        folder: the folder of the shards.
        name: the common prefix of the names of its files.
        id_dtype: the type of ids, uint16 or int32.
        is_digested: whether the digests of its files are computed.
        has_mask: whether the rows have a loss mask.
        vocabulary: the digest of the vocabulary.
    """

    folder: Path
    name: str
    id_dtype: type[np.integer[Any]]
    is_digested: bool
    has_mask: bool = False
    vocabulary: str = ""

    def open(self, suffix: str) -> PartialFile:
        """Open a file of the shard."""
        return PartialFile(self.folder, f"{self.name}{suffix}", self.is_digested)

    def spool(self, name: str, dtype: type[np.integer[Any]]) -> Spool:
        """Open a temporary file of numbers that are needed until the shard is complete."""
        return Spool(self.folder / f"{self.name}.{name}", dtype)


class ShardWriter(Protocol):
    """Writes one shard."""

    def write(self, rows: Rows) -> None:
        """Append rows to the shard.

        Raises:
            OSError: the disk is full, or fails.
        """

    def finish(self) -> list[WrittenFile]:
        """Write the remaining bytes, and rename the files to their final names.

        Raises:
            OSError: the disk is full, or fails.
        """

    def abandon(self) -> None:
        """Remove the files of the shard."""


class PartialFile:
    """A file that has a temporary name until it is complete.

    Args:
        folder: the folder of the shards.
        name: the final name.
        is_digested: whether its digest is computed.
    """

    def __init__(self, folder: Path, name: str, is_digested: bool) -> None:
        self.name = name
        self.size = 0
        self._has_room = False
        self._path = folder / name
        self._partial = partial_path(self._path)
        self._digest = _ParallelDigest() if is_digested else None
        self._file = open(self._partial, "wb", buffering=BUFFER_BYTES)

    def write(self, data: bytes | NDArray[Any]) -> None:
        """Append bytes, or the items of an array."""
        if not len(data):
            return
        view = (memoryview(data) if isinstance(data, bytes) else data.data).cast("B")
        if self._digest is not None and not self._has_room:
            self._digest.update(view)
        self._file.write(view)
        self.size += len(view)

    def reserve(self, num_bytes: int) -> None:
        """Reserve bytes at the begin of the file; they are zeros until `write_begin` fills them."""
        self._file.seek(num_bytes)
        self.size = num_bytes
        self._has_room = True

    def write_begin(self, data: bytes) -> None:
        """Fill the reserved bytes at the begin of the file; this must be the last write."""
        self._file.seek(0)
        self._file.write(data)
        self._file.flush()
        if self._digest is not None:
            with open(self._partial, "rb") as file:
                while data := file.read(BUFFER_BYTES):
                    self._digest.update(memoryview(data))

    def complete(self) -> None:
        """Write all bytes to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def publish(self) -> WrittenFile:
        """Rename the complete file to its final name."""
        os.replace(self._partial, self._path)
        digest = "" if self._digest is None else f"sha256:{self._digest.hexdigest()}"
        return WrittenFile(self.name, self.size, digest)

    def abandon(self) -> None:
        """Remove the file."""
        discard(self._file.close)
        if self._digest is not None:
            self._digest.close()
        self._partial.unlink(missing_ok=True)


class _ParallelDigest:
    """Computes a SHA-256 in a thread, while the caller writes the same bytes."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)
        self._update: Future[None] | None = None

    def update(self, view: memoryview) -> None:
        """Wait for the last update, then begin the next; `view` must not change any more."""
        if self._update is not None:
            self._update.result()
        self._update = self._thread.submit(self._digest.update, view)

    def hexdigest(self) -> str:
        """Return the digest; no update may follow."""
        if self._update is not None:
            self._update.result()
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Wait for the last update, and end the thread."""
        self._thread.shutdown()


def discard(close: Callable[[], object]) -> None:
    """Close a file whose bytes are not needed any more; ignore a full disk."""
    try:
        close()
    except OSError:
        pass


def partial_path(path: Path) -> Path:
    """Return the path of a file before it is complete."""
    return path.with_name(f".{path.name}.partial")


def publish(*files: PartialFile) -> list[WrittenFile]:
    """Complete files, then rename them to their final names in the given order."""
    for file in files:
        file.complete()
    return [file.publish() for file in files]


class Spool:
    """Stores numbers that may not fit into memory in a file; they are read at the end.

    Args:
        path: a path that nothing else uses.
        dtype: the type of the numbers.
    """

    def __init__(self, path: Path, dtype: type[np.integer[Any]]) -> None:
        self.num_items = 0
        self._path = partial_path(path)
        self._dtype = np.dtype(dtype)
        self._file = open(self._path, "w+b", buffering=BUFFER_BYTES)

    def write(self, items: NDArray[np.integer[Any]]) -> None:
        """Append numbers."""
        self._file.write(np.ascontiguousarray(items, self._dtype).data)
        self.num_items += len(items)

    def read(self) -> Iterator[NDArray[Any]]:
        """Yield the numbers in pieces."""
        self._file.flush()
        self._file.seek(0)
        while data := self._file.read(COPY_ITEMS * self._dtype.itemsize):
            yield np.frombuffer(data, self._dtype)

    def mapped(self) -> MappedNumbers:
        """Map the file, to read the numbers in any order."""
        self._file.flush()
        return MappedNumbers(self._file.fileno(), self._dtype, self.num_items)

    def remove(self) -> None:
        """Remove the file."""
        discard(self._file.close)
        self._path.unlink(missing_ok=True)


class MappedNumbers:
    """The numbers of a memory-mapped file; a page is read when it is first used.

    Attributes:
        items: the numbers.
    """

    def __init__(self, descriptor: int, dtype: np.dtype[Any], num_items: int) -> None:
        self._map = mmap.mmap(descriptor, num_items * dtype.itemsize, access=mmap.ACCESS_READ)
        self.items = np.frombuffer(self._map, dtype)

    def forget(self) -> None:
        """Release the memory of pages that were read; they stay in the system's file cache."""
        self._map.madvise(mmap.MADV_DONTNEED)
