"""Runs one part of a job: reads its files, encodes the documents, and writes shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from service.corpus.documents import Reject
from service.corpus.encoding.encoder import DocumentEncoder, EncodedDocuments
from service.corpus.encoding.packing import Packer
from service.corpus.inputs import UnreadableInput
from service.corpus.job import Job
from service.corpus.parts import checkpoint as checkpoints
from service.corpus.parts.checkpoint import Checkpoint, Cursor
from service.corpus.parts.ordered import OrderedRun, Stopped
from service.corpus.parts.progress import PartProgress
from service.corpus.parts.rejects import RejectFile
from service.corpus.parts.shards import Shards
from service.corpus.reading.line_blocks import allocate
from service.corpus.reading.readers import LoadDocuments, read_documents


class _Block(NamedTuple):
    """The result of reading a block of a file.

    Attributes:
        input: the number of the file.
        encoded: the encoded documents; None: the file cannot be read from this block on.
        error: why the file cannot be read.
    """

    input: int
    encoded: EncodedDocuments | None
    error: UnreadableInput | None = None


@dataclass(frozen=True, slots=True)
class Workers:
    """The objects that all parts of a job share.

    Attributes:
        encoder: encodes documents.
        pool: runs the blocks of all parts.
        max_ahead: the most blocks of a part in memory.
        progress: counts the finished work.
        should_stop: whether all parts must end, because one has failed.
    """

    encoder: DocumentEncoder
    pool: ThreadPoolExecutor
    max_ahead: int
    progress: PartProgress
    should_stop: Callable[[], bool]


class PartResult(NamedTuple):
    """A complete part.

    Attributes:
        checkpoint: the final checkpoint, which lists the shards.
        num_rejects: the number of rejected records.
    """

    checkpoint: Checkpoint
    num_rejects: int


def run_part(job: Job, number: int, files: range, folder: Path, workers: Workers) -> PartResult:
    """Run a part from its checkpoint to its end.

    Args:
        job: the job.
        number: the number of the part.
        files: the numbers of the part's files.
        folder: the folder of the shards.
        workers: the objects that the parts share.

    Raises:
        UnreadableInput: a file cannot be read, and the job does not skip unreadable files.
        OtherJob: the folder contains a checkpoint of another job.
        OSError: the disk is full, or fails.
    """
    fingerprint = job.fingerprint()
    done = checkpoints.load(folder, number, fingerprint, files.start)
    rejects = RejectFile(folder / f"rejects_{number:05d}.jsonl", job.inputs, done.cursor)
    if done.is_done:
        rejects.close()
        return PartResult(done, rejects.num_rejects)

    def save() -> None:
        rejects.flush()
        checkpoints.save(folder, number, fingerprint, done)

    shards = Shards(job, number, folder, workers.encoder.id_dtype, done, save)
    try:
        left = _write_all(job, files, done, rejects, shards, workers)
        shards.finish()
        done.dropped_tokens = left
        done.cursor = Cursor(files.stop)
        done.is_done = True
        save()
    except BaseException:
        shards.abandon()
        raise
    finally:
        rejects.close()
    return PartResult(done, rejects.num_rejects)


def _write_all(
    job: Job,
    files: range,
    done: Checkpoint,
    rejects: RejectFile,
    shards: Shards,
    workers: Workers,
) -> int:
    """Write the rows of all remaining documents; return how many ids fill no row."""
    cursor, skip = done.cursor, done.cursor.skip
    workers.progress.skip(sum(job.inputs[i].size for i in range(files.start, cursor.input)))
    packer = None
    if job.pack is not None:
        packer = Packer(job.pack, skip, cursor.input, cursor.place)
    ordered: OrderedRun[_Block] = OrderedRun(workers.pool, workers.max_ahead)
    tasks = _make_tasks(job, files, done, workers.encoder, ordered.wait_for_turn)
    failed: set[int] = set()
    ends: dict[int, int] = {}  # The place behind the last block of a file.
    for block in ordered.run(tasks):
        if workers.should_stop():
            raise Stopped
        if block.input in failed:
            continue
        if block.encoded is None:
            assert block.error is not None
            if not job.skips_unreadable:
                raise block.error
            failed.add(block.input)
            message = str(block.error).removeprefix(f"{job.inputs[block.input].path}: ")
            place = ends.get(block.input, cursor.place if block.input == cursor.input else 0)
            rejects.write(block.input, [Reject(place, "unreadable", message)])
            continue
        encoded = block.encoded
        ends[block.input] = encoded.end
        rejects.write(block.input, encoded.rejects)
        done.digests.setdefault(block.input, {}).update(encoded.digests)
        rows = encoded.rows
        workers.progress.add(
            encoded.num_bytes, encoded.text_bytes, int(rows.num_documents[-1]), len(rows.ids)
        )
        if packer is not None:
            rows = packer.add(rows)
        elif skip:
            rows, skip = rows.part(min(skip, len(rows)), len(rows)), max(0, skip - len(rows))
        shards.write(rows)
    return 0 if packer is None else packer.num_left


def _make_tasks(
    job: Job,
    files: range,
    done: Checkpoint,
    encoder: DocumentEncoder,
    wait_for_turn: Callable[[], None],
) -> Iterator[Callable[[], _Block]]:
    """Yield tasks, each of which loads and encodes a block."""
    # The pool of the CPU engine would keep more memory than malloc does.
    take = allocate if encoder.engine.name == "cpu" else encoder.engine.host_memory
    for number in range(done.cursor.input, files.stop):
        start = done.cursor.place if number == done.cursor.input else 0
        try:
            for load in read_documents(job.inputs[number], start, job, wait_for_turn, take):
                yield partial(_encode, number, load, encoder)
                del load
        except UnreadableInput as error:
            yield partial(_Block, number, None, error)


def _encode(number: int, load: LoadDocuments, encoder: DocumentEncoder) -> _Block:
    try:
        return _Block(number, encoder.encode(load(), number))
    except UnreadableInput as error:
        return _Block(number, None, error)
