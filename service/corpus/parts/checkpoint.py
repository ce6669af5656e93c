"""Stores the progress of one part of a job in a file, from which a later run continues."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from service.corpus.job import VERSION
from service.corpus.writing.shard_files import WrittenFile
from service.runtime.atomic_files import Store

MANIFEST = "manifest.json"


class OtherJob(ValueError):
    """The folder contains another job, or another run is using it."""


class Cursor(NamedTuple):
    """The place of the first document that is not completely written to shards.

    Attributes:
        input: the number of the document's file.
        place: the place of the document in its file.
        skip: the number of its ids, or of its rows, that are already in shards.
    """

    input: int
    place: int = 0
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Shard:
    """A complete shard.

    Attributes:
        name: the common prefix of the names of its files.
        documents: the number of documents that end in it.
        rows: the number of its rows.
        tokens: the number of its ids.
        files: its files.
    """

    name: str
    documents: int
    rows: int
    tokens: int
    files: list[WrittenFile]


@dataclass(slots=True)
class Checkpoint:
    """The progress of one part of a job.

    Attributes:
        cursor: the place at which the part continues.
        shards: the finished shards.
        digests: for each file that was read, the digests of its blocks by block number.
        dropped_tokens: the number of last ids, which do not fill a packed row.
        is_done: whether the part is complete.
    """

    cursor: Cursor
    shards: list[Shard] = field(default_factory=list)
    digests: dict[int, dict[int, bytes]] = field(default_factory=dict)
    dropped_tokens: int = 0
    is_done: bool = False


def checkpoint_name(part: int) -> str:
    """Return the name of a part's checkpoint file."""
    return f"part_{part:05d}.checkpoint"


def save(folder: Path, part: int, fingerprint: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically: a crash leaves either the new or the previous one."""
    digests = {
        str(number): {str(block): b64encode(digest).decode() for block, digest in blocks.items()}
        for number, blocks in checkpoint.digests.items()
    }
    content = {
        "format_version": VERSION,
        "fingerprint": fingerprint,
        "cursor": checkpoint.cursor._asdict(),
        "shards": [describe_shard(shard) for shard in checkpoint.shards],
        "digests": digests,
        "dropped_tokens": checkpoint.dropped_tokens,
        "is_done": checkpoint.is_done,
    }
    Store(folder).write(checkpoint_name(part), orjson.dumps(content))


def read_job_file(path: Path) -> dict[str, Any] | None:
    """Read a manifest or a checkpoint of any version; None if the file is neither.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        content = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        return None
    is_ours = isinstance(content, dict) and "fingerprint" in content and "shards" in content
    return content if is_ours else None


def read_same_version(path: Path) -> dict[str, Any]:
    """Read a manifest or a checkpoint that this version of warptok can continue.

    Raises:
        OtherJob: the file belongs to another version, or was not written by warptok.
        OSError: the file cannot be read.
    """
    content = read_job_file(path)
    if content is None:
        raise OtherJob(f"{path} was not written by warptok corpus; --out names another folder")
    if content.get("format_version") != VERSION:
        message = "was written by another version of warptok, whose shards may have other bytes"
        raise OtherJob(f"{path} {message}; use --fresh to delete the earlier job")
    return content


def describe_shard(shard: Shard) -> dict[str, Any]:
    """Return a shard as JSON values."""
    return {**asdict(shard), "files": [file._asdict() for file in shard.files]}


def read_same_job(path: Path, fingerprint: str) -> dict[str, Any]:
    """Read a checkpoint of this job.

    Raises:
        OtherJob: the checkpoint belongs to another job.
    """
    content = read_same_version(path)
    if content["fingerprint"] != fingerprint:
        message = "has an unfinished job with other inputs or options"
        raise OtherJob(f"{path.parent} {message}; use --fresh to delete it")
    return content


def load(folder: Path, part: int, fingerprint: str, first_input: int) -> Checkpoint:
    """Read a checkpoint, or make a new one if there is none.

    Raises:
        OtherJob: the checkpoint belongs to another job.
    """
    path = folder / checkpoint_name(part)
    if not path.exists():
        return Checkpoint(Cursor(first_input))
    content = read_same_job(path, fingerprint)
    return Checkpoint(
        Cursor(**content["cursor"]),
        [
            Shard(**{**shard, "files": [WrittenFile(**file) for file in shard["files"]]})
            for shard in content["shards"]
        ],
        {
            int(number): {int(block): b64decode(digest) for block, digest in blocks.items()}
            for number, blocks in content["digests"].items()
        },
        content["dropped_tokens"],
        content["is_done"],
    )
