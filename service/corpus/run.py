"""Runs a job: locks its folder, runs its parts in parallel, and writes the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson

from service.core.version import package_version
from service.corpus.inputs import InputDigest
from service.corpus.job import VERSION, Job
from service.corpus.parts.checkpoint import (
    MANIFEST,
    OtherJob,
    checkpoint_name,
    describe_shard,
    read_job_file,
    read_same_job,
    read_same_version,
)
from service.corpus.parts.locks import locked, remove_part_locks
from service.corpus.parts.part import PartResult
from service.corpus.writing import mds
from service.corpus.writing.formats import FORMATS
from service.runtime.atomic_files import Store
from vocabularies.model.vocabulary import Vocabulary

TIMES = ".inputs"
LIBRARIES = ("tokenizers", "numpy", "pyarrow")
CHECKPOINTS = "part_*.checkpoint"
REJECTS = f"rejects_{5 * '[0-9]'}.jsonl"
LEFTOVERS = (".*.partial", CHECKPOINTS, REJECTS)


class PartRunner(Protocol):
    """Runs the parts of a job; the bytes of the shards do not depend on the runner."""

    def run_parts(self, job: Job, vocabulary: Vocabulary, folder: Path) -> list[PartResult]:
        """Run each part to its end, from its checkpoint if any; a part that fails stops the others.

        Args:
            job: the job.
            vocabulary: the vocabulary of the job.
            folder: the folder of the shards.

        Raises:
            UnreadableInput, OtherJob, DiffersFromReference, OSError: as `run_job`.
        """


def run_job(
    job: Job, vocabulary: Vocabulary, folder: Path, runner: PartRunner, *, is_fresh: bool = False
) -> dict[str, Any]:
    """Run a job from its beginning or its checkpoints, and return its manifest.

    Args:
        job: the job.
        vocabulary: the vocabulary of the job.
        folder: the folder of the shards, which is created if needed.
        runner: runs the parts.
        is_fresh: whether files of earlier runs in the folder are removed first.

    Raises:
        UnreadableInput: a file cannot be read, and the job does not skip unreadable files.
        OtherJob: the folder contains another job, or another run is using it.
        DiffersFromReference: the ids of a verified document differ from the reference's.
        OSError: the disk is full, or fails.
    """
    with locked(folder):
        if is_fresh:
            _remove_all(folder)
        elif (manifest := _find_done(job, folder)) is not None:
            return manifest
        # All of them before a part begins: job and checkpoints may differ in the number of parts.
        for path in sorted(folder.glob(CHECKPOINTS)):
            read_same_job(path, job.fingerprint())
        _check_times(job, folder)
        _remove_partial(folder)
        results = runner.run_parts(job, vocabulary, folder)
        _remove_partial(folder)  # Of a node that was lost.
        id_dtype = FORMATS[job.format].id_dtype(len(vocabulary))
        manifest = _describe(job, vocabulary, id_dtype, results)
        if job.format == "mds":
            _write_mds_index(job, folder, id_dtype, results)
        _write_manifest(folder, manifest)
        for number in range(len(results)):
            Store(folder).remove(checkpoint_name(number))
        remove_part_locks(folder)
        return manifest


def _remove_partial(folder: Path) -> None:
    """Remove the files that a process was writing when it was killed."""
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


def _find_done(job: Job, folder: Path) -> dict[str, Any] | None:
    """Return the manifest if the same job is already done; else None.

    Raises:
        OtherJob: the folder contains the manifest of another job.
    """
    if not (folder / MANIFEST).exists():
        return None
    manifest = read_same_version(folder / MANIFEST)
    if manifest["fingerprint"] != job.fingerprint():
        message = "has a finished job with other inputs or options"
        raise OtherJob(f"{folder} {message}; use --fresh to delete it")
    _check_times(job, folder)
    return manifest


def _check_times(job: Job, folder: Path) -> None:
    """Store the modification times of the inputs in a file; compare them with an earlier run's.

    They are in a separate file, as the manifest and the shards must not depend on times.

    Raises:
        OtherJob: an input has changed since the earlier run began.
    """
    has_job = (folder / MANIFEST).exists() or any(folder.glob(CHECKPOINTS))
    digest = job.times_digest().encode()
    if not has_job:
        for path in folder.glob(REJECTS):  # Of a run that ended before its first checkpoint.
            path.unlink()
        Store(folder).write(TIMES, digest)
    elif (folder / TIMES).exists() and (folder / TIMES).read_bytes() != digest:
        message = "has a job with other inputs, or an input has changed since the job began"
        raise OtherJob(f"{folder} {message}; use --fresh to delete it")


def _remove_all(folder: Path) -> None:
    """Remove the files of jobs, and no other files.

    Raises:
        OtherJob: the manifest was not written by a job.
    """
    names: set[str] = set()
    manifest = folder / MANIFEST
    described = [manifest, *folder.glob(CHECKPOINTS)]
    for path in described:
        if path.exists():
            content = read_job_file(path)
            if content is None:
                raise OtherJob(
                    f"{path} was not written by warptok corpus; --out names another folder"
                )
            if content.get("format") == "mds":
                names.add(mds.INDEX)
            for shard in content["shards"]:
                names.update(file["name"] for file in shard["files"])
    manifest.unlink(missing_ok=True)
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for pattern in LEFTOVERS:
        for path in folder.glob(pattern):
            path.unlink()


def _describe(
    job: Job, vocabulary: Vocabulary, id_dtype: type[np.integer[Any]], results: Sequence[PartResult]
) -> dict[str, Any]:
    """Make the manifest. It does not depend on when, where or how fast the job ran."""
    shards = [shard for result in results for shard in result.checkpoint.shards]
    return {
        "format_version": VERSION,
        "fingerprint": job.fingerprint(),
        "format": job.format,
        "id_type": np.dtype(id_dtype).name,
        "documents": sum(shard.documents for shard in shards),
        "rows": sum(shard.rows for shard in shards),
        "tokens": sum(shard.tokens for shard in shards),
        "dropped_tokens": sum(result.checkpoint.dropped_tokens for result in results),
        "rejects": sum(result.num_rejects for result in results),
        "vocabulary": {"digest": vocabulary.digest, "num_ids": len(vocabulary)},
        "options": job.options(),
        "inputs": _describe_inputs(job, results),
        "shards": [describe_shard(shard) for shard in shards],
        "versions": {
            "warptok": package_version(),
            **{name: found for name in LIBRARIES if (found := _find_version(name))},
        },
    }


def _find_version(package: str) -> str:
    """Return the version of a package; "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _describe_inputs(job: Job, results: Sequence[PartResult]) -> list[dict[str, Any]]:
    blocks = {
        number: digests
        for result in results
        for number, digests in result.checkpoint.digests.items()
    }
    described = []
    for number, file in enumerate(job.inputs):
        digest = InputDigest(file.size)
        digest.blocks.update(blocks.get(number, {}))
        result = digest.result() if job.is_digested else None
        described.append({**file.describe(), "digest": result})
    return described


def _write_mds_index(
    job: Job, folder: Path, id_dtype: type[np.integer[Any]], results: Sequence[PartResult]
) -> None:
    shards = [shard for result in results for shard in result.checkpoint.shards]
    described = mds.describe_columns(id_dtype, job.has_mask)
    files = [(shard.files[0], mds.count_samples(folder / shard.files[0].name)) for shard in shards]
    mds.write_index(folder, described, files)


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    content = orjson.dumps(manifest, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    Store(folder).write(MANIFEST, content)
