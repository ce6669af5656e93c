"""Finds, opens and digests the input files of a job, and detects their formats.

A local path is opened as a file; anything with a scheme, such as s3://, by fsspec.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from isal import isal_zlib

from service.core.errors import NotInstalled
from service.seqio.bgzf import UnpackedGzip

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile

DIGEST_BYTES = 8 << 20
PACKED_BYTES = 1 << 20  # Of a packed file that are read at once.
FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".fasta": "fasta",
    ".fa": "fasta",
    ".fna": "fasta",
    ".faa": "fasta",
    ".fastq": "fastq",
    ".fq": "fastq",
}
"""The format of each file name suffix, after a suffix of a compression was removed."""
READ_AS = ("jsonl", "text", "lines", "parquet", "arrow", "fasta", "fastq")
COMPRESSIONS = {".gz": "gzip", ".bgz": "gzip", ".bgzf": "gzip", ".zst": "zstd", ".zstd": "zstd"}
MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    **{bytes((first, 0x2A, 0x4D, 0x18)): "zstd" for first in range(0x50, 0x60)},
}
"""The first bytes of each compression; files of pzstd begin with a skippable frame."""
WAIT_NOT = os.O_NONBLOCK | os.O_CLOEXEC
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://|memory:/")
UNREADABLE: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, ZstdError)
DEFLATE_ERRORS: tuple[type[Exception], ...] = (
    zlib.error,
    cast("type[Exception]", isal_zlib.error),
)


class UnreadableInput(ValueError):
    """A file cannot be read, or is damaged; the message contains its name and the reason."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input file of a job.

    Attributes:
        path: a local path or a URL.
        size: the bytes of the file as stored, perhaps compressed.
        format: one of READ_AS.
        etag: the version that the store reports for a URL; "" for a local file.
        mtime_ns: when a local file was last changed; not part of the manifest, which contains no
            times.
    """

    path: str
    size: int
    format: str
    etag: str = ""
    mtime_ns: int = 0

    def describe(self) -> dict[str, Any]:
        """Return all fields except the time."""
        described = {**dataclasses.asdict(self), "path": self.name}
        del described["mtime_ns"]
        return described

    @property
    def name(self) -> str:
        r"""Return the path; bytes of it that are not UTF-8 are written as \xff."""
        return os.fsencode(self.path).decode(errors="backslashreplace")

    @property
    def is_local(self) -> bool:
        """Return whether the path is a local path."""
        return SCHEME.match(self.path) is None


def expand(paths: Sequence[str], read_as: str | None) -> list[str]:
    """Replace folders by their files, and URL patterns by their matches, sorted by name.

    From a folder, files whose suffix has a known format are chosen, or all files if `read_as` is
    set; names that begin with a dot are skipped.
    """
    expanded: list[str] = []
    for path in paths:
        if SCHEME.match(path):
            expanded += _expand_url(path) if any(sign in path for sign in "*?[") else [path]
        elif os.path.isdir(path):
            expanded += _list_folder(path, read_as)
        else:
            expanded.append(path)
    return expanded


def _expand_url(url: str) -> list[str]:
    filesystem, pattern = _find_filesystem(url)
    return [filesystem.unstrip_protocol(name) for name in sorted(filesystem.glob(pattern))]


def _list_folder(folder: str, read_as: str | None) -> list[str]:
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(parent, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if read_as is not None or _is_known(path))


def _is_known(path: str) -> bool:
    try:
        _format_of(path)
    except ValueError:
        return False
    return True


def find_inputs(paths: Sequence[str], read_as: str | None) -> tuple[list[Input], list[str]]:
    """Return the files at the paths, and the errors of those that cannot be read.

    Args:
        paths: local paths or URLs; a path may occur several times.
        read_as: the format of all files; None: by the suffix of each name.

    Raises:
        ValueError: the suffix of a name has no known format.
        NotInstalled: a URL needs a package that is not installed.
    """
    inputs, faults = [], []
    for path in paths:
        format = read_as or _format_of(path)
        try:
            inputs.append(_look_up(path, format))
        except OSError as error:
            inputs.append(Input(path, 0, format))
            faults.append(f"{path}: {error.strerror or error}")
    return inputs, faults


def _format_of(path: str) -> str:
    stem, suffix = os.path.splitext(path.lower())
    if suffix in COMPRESSIONS:
        suffix = os.path.splitext(stem)[1]
    if suffix not in FORMATS:
        message = f"{path}: the name does not say the format; give --read-as, which is one of"
        raise ValueError(f"{message} {', '.join(READ_AS)}")
    return FORMATS[suffix]


def _look_up(path: str, format: str) -> Input:
    if SCHEME.match(path) is None:
        with _open_local(path) as file:
            status = os.fstat(file.fileno())
            return Input(path, status.st_size, format, mtime_ns=status.st_mtime_ns)
    filesystem, name = _find_filesystem(path)
    info = filesystem.info(name)
    etag = info.get("ETag") or info.get("etag") or ""
    return Input(path, int(info["size"] or 0), format, str(etag).strip('"'))


def _find_filesystem(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the file's name in it.

    Raises:
        NotInstalled: fsspec, or its package for the scheme, is not installed.
    """
    try:
        from fsspec.core import url_to_fs

        filesystem, name = url_to_fs(url)
    except ImportError as error:
        install = "pip install 'warptok[urls]', and what fsspec needs for it, such as s3fs"
        raise NotInstalled(f"{url} needs packages that are not installed: {install}") from error
    return filesystem, str(name)


def _open_local(path: str) -> io.FileIO:
    """Open a file; never wait for the writer of a pipe.

    Raises:
        OSError: the file cannot be opened, or cannot be read twice.
    """
    file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | WAIT_NOT))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.ESPIPE, "not a regular file", path)
    return file


def open_input(file: Input) -> BinaryIO:
    """Open the raw bytes of a file.

    Raises:
        OSError: the file cannot be opened.
    """
    if file.is_local:
        return _open_local(file.path)
    filesystem, name = _find_filesystem(file.path)
    return cast("BinaryIO", filesystem.open(name, "rb"))


@contextmanager
def naming_errors(file: Input) -> Iterator[None]:
    """Convert errors about a file's content to UnreadableInput with the file's name.

    Raises:
        UnreadableInput: the code in the `with` block raised an error about reading.
    """
    try:
        yield
    except UnreadableInput:
        raise
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableInput(f"{file.path}: {reason}") from error
    except Exception as error:
        is_pyarrow = type(error).__module__.startswith("pyarrow.")
        if not is_pyarrow and not isinstance(error, DEFLATE_ERRORS):
            raise
        raise UnreadableInput(f"{file.path}: damaged: {error}") from error


def detect_compression(begin: bytes) -> str:
    """Return "gzip", "zstd" or "" according to the first bytes of a file."""
    return next((name for magic, name in MAGIC.items() if begin.startswith(magic)), "")


class DigestedFile(io.RawIOBase):
    """Reads a file, and digests the blocks that were read.

    Attributes:
        digests: the digests of whole blocks by block number, until `take_digests` removes them.
        num_bytes: the number of bytes read so far.
    """

    def __init__(self, file: BinaryIO, is_digested: bool) -> None:
        super().__init__()
        self.digests: dict[int, bytes] = {}
        self.num_bytes = 0
        self._file = file
        self._is_digested = is_digested
        self._block = hashlib.sha256()
        self._rest = DIGEST_BYTES
        self._number = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes; return their number, 0 at the end."""
        size: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self.num_bytes += size
        if not self._is_digested:
            return size
        data = memoryview(buffer)[:size]
        while len(data):
            part = data[: self._rest]
            self._block.update(part)
            self._rest -= len(part)
            data = data[len(part) :]
            if not self._rest:
                self._end_block()
        if not size and self._rest < DIGEST_BYTES:
            self._end_block()
        return size

    def _end_block(self) -> None:
        self.digests[self._number] = self._block.digest()
        self._number += 1
        self._block = hashlib.sha256()
        self._rest = DIGEST_BYTES

    def take_digests(self, is_end: bool) -> dict[int, bytes]:
        """Return the new digests; at the end of the content, read the rest of the file first."""
        while is_end and self.read(DIGEST_BYTES):
            pass
        digests, self.digests = self.digests, {}
        return digests

    def close(self) -> None:
        """Close this object and the file that it reads."""
        self._file.close()
        super().close()


def unpack(file: io.BufferedReader, name: str) -> BinaryIO:
    """Return the decompressed content of a file; its first bytes show the compression."""
    match detect_compression(file.peek(4)[:4]):
        case "gzip":
            return cast("BinaryIO", UnpackedGzip(cast("BinaryIO", file), name))
        case "zstd":
            return cast("BinaryIO", ZstdFile(file, "rb"))
        case _:
            return cast("BinaryIO", file)


class InputDigest:
    """The digest of one file: the SHA-256 of the SHA-256s of its blocks of DIGEST_BYTES.

    The threads that read blocks digest them, in any order.

    Attributes:
        blocks: the digests so far by block number.
    """

    def __init__(self, size: int) -> None:
        self.num_blocks = -(-size // DIGEST_BYTES)
        self.blocks: dict[int, bytes] = {}

    def result(self) -> str | None:
        """Return the digest; None if blocks are missing."""
        if len(self.blocks) != self.num_blocks:
            return None
        joined = b"".join(self.blocks[number] for number in range(self.num_blocks))
        return f"sha256-8mib:{hashlib.sha256(joined).hexdigest()}"
