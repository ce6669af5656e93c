"""Chooses the reader of a file by its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from typing import BinaryIO

import numpy as np

from service.core.extras import check_installed
from service.corpus.documents import Documents, Reject
from service.corpus.inputs import (
    DIGEST_BYTES,
    PACKED_BYTES,
    DigestedFile,
    Input,
    naming_errors,
    open_input,
    unpack,
)
from service.corpus.job import Job
from service.corpus.reading.line_blocks import Limits, allocate, read_line_blocks
from service.corpus.reading.lines import json_documents, line_documents
from service.runtime.memory_pool import Take

LoadDocuments = Callable[[], Documents]


def read_documents(
    file: Input,
    start: int,
    job: Job,
    wait_for_turn: Callable[[], None],
    take: Take = allocate,
) -> Iterator[LoadDocuments]:
    """Yield functions that load one block of documents each, in order, from a place on.

    Args:
        file: the file.
        start: the place of the first document.
        job: the job.
        wait_for_turn: returns when no earlier block is in memory; called for large documents.
        take: allocates the memory of a block of lines.

    Raises:
        UnreadableInput: the file cannot be read; the yielded functions may also raise this.
        NotInstalled: the format needs a package that is not installed.
    """
    if file.format in ("jsonl", "lines"):
        limits = Limits(job.max_document_bytes, job.is_digested, wait_for_turn, take)
        yield from _read_lines(file, start, job, limits)
    elif file.format == "text":
        yield from _read_text(file, start, job, wait_for_turn)
    elif file.format in ("parquet", "arrow"):
        check_installed("Parquet and Arrow", "arrow")
        from service.corpus.reading import tables

        read_table = tables.read_parquet if file.format == "parquet" else tables.read_arrow
        yield from read_table(file, start, job)
    else:
        if file.format == "fastq":
            check_installed("FASTQ files", "dna")
        from service.corpus.reading.sequences import read_sequences

        yield from read_sequences(file, start, job)


def _read_lines(file: Input, start: int, job: Job, limits: Limits) -> Iterator[LoadDocuments]:
    render = None
    if job.chat_template:
        from service.corpus.reading.chats import ChatRenderer, chat_documents

        renderer = ChatRenderer(job.chat_template, job.chat_tokens, job.has_mask)
        render = partial(chat_documents, key=job.key, renderer=renderer)
    for load in read_line_blocks(file, start, limits):
        if render is not None:
            yield lambda load=load: render(load())  # type: ignore[misc]
        elif file.format == "jsonl":
            yield lambda load=load: json_documents(load(), job.key)  # type: ignore[misc]
        else:
            yield lambda load=load: line_documents(load())  # type: ignore[misc]


def _read_text(
    file: Input, start: int, job: Job, wait_for_turn: Callable[[], None]
) -> Iterator[LoadDocuments]:
    """Read a file as one document at place 0; the end of the file is place 1."""
    if start:
        return

    def load() -> Documents:
        with naming_errors(file), DigestedFile(open_input(file), job.is_digested) as packed:
            unpacked = unpack(BufferedReader(packed, PACKED_BYTES), file.path)
            if file.size > DIGEST_BYTES:
                wait_for_turn()
            data = _read_all(unpacked, job.max_document_bytes + 1)
            rejects = []
            if len(data) > job.max_document_bytes:
                rejects.append(Reject(0, "too_long", f"more than {job.max_document_bytes} bytes"))
                data = b""
            num_documents = 0 if rejects else 1
            return Documents(
                np.frombuffer(data, np.uint8),
                np.array([0, len(data)][: num_documents + 1], np.int64),
                np.zeros(num_documents, np.int64),
                1,
                file.size,
                rejects,
                packed.take_digests(is_end=True),
            )

    yield load


def _read_all(stream: BinaryIO, max_bytes: int) -> bytes:
    """Read a stream to its end, or up to a number of bytes; raise the error of a damaged stream."""
    parts, size = [], 0
    while size < max_bytes and (part := stream.read(max_bytes - size)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)
