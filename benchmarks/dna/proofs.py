"""Compares ids of DNA with fast references, which run in several processes.

This module measures no time and uses no GPU.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.dna.fast_references import (
    OWN,
    FastReference,
    find_fast_reference,
    prove_fast_reference,
)
from benchmarks.dna.sequences import Sequences, proof_rows
from service.engines.cpu.engine import CpuEngine
from vocabularies import builtin
from vocabularies.batch.batch import Batch

Ids = NDArray[Any]
PIECE_BASES, BATCH_BASES = 1_000_000, 8_000_000  # Of a process at a time; of an engine.
REFERENCE_BASES = 200_000  # Compared with the reference.
SEED = 11


def joined(rows: Any) -> Ids:
    """Join rows of ids to one array."""
    return np.concatenate([np.zeros(0, np.int32), *(np.asarray(row, np.int32) for row in rows)])


class Prover:
    """Runs fast references in several processes, or in this one; a context manager."""

    def __init__(self, data: Path | None, processes: int) -> None:
        self.data = data
        self.processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.processes > 1:
            context = multiprocessing.get_context("spawn")  # A fork has no GPU.
            self._pool = ProcessPoolExecutor(self.processes, context)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def ids(self, name: str, rows: Sequences) -> Ids:
        """Return the fast reference's ids of all rows, joined."""
        count = max(1, len(rows.offsets) // (4 * self.processes))
        parts = (rows.part(i, i + count) for i in range(0, len(rows.offsets) - 1, count))
        return joined(self._all(_ids_of, ((name, part, self.processes == 1) for part in parts)))

    def prove(self, engines: dict[str, Any], name: str, num_bases: int) -> dict[str, Any]:
        """Compare every engine with the fast reference on random and real rows.

        Raises:
            SystemExit: an id differs.
        """
        vocabulary, size = builtin.load(name), min(PIECE_BASES, num_bases)
        known_by = find_fast_reference(vocabulary)[0]
        proved: dict[str, Any] = {"vocabulary": name, "witness": known_by, "bases": 0, "ids": 0}
        proved["reference_bases"] = next(
            self._all(_prove_fast_reference, [(self.data, name, size)])
        )
        tasks = ((self.data, name, i, size) for i in range(-(-num_bases // size)))
        for rows, expected in _batches(self._all(_piece, tasks)):
            for engine_name, engine in engines.items():
                encoded = engine.encode(vocabulary, batch_of(rows))
                if encoded.errors or not np.array_equal(encoded.ids, expected):
                    raise SystemExit(f"{name}: the {engine_name} engine differs from {known_by}")
            proved["bases"] += len(rows.data)
            proved["ids"] += len(expected)
        print(f"{name}: {proved['bases']:,} bases, {proved['ids']:,} ids as {known_by}", flush=True)
        return proved

    def _all(self, work: Callable[..., Any], tasks: Any) -> Iterator[Any]:
        """Yield the results of all tasks, in order."""
        if self._pool is None:
            yield from (work(*task) for task in tasks)
            return
        ahead: deque[Future[Any]] = deque()
        for task in tasks:
            ahead.append(self._pool.submit(work, *task))
            if len(ahead) > 2 * self.processes:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def batch_of(rows: Sequences) -> Batch:
    """Make a batch of rows without begin and end tokens."""
    return Batch(data=rows.data, offsets=rows.offsets, options=OWN)


def _batches(pieces: Iterator[tuple[Sequences, Ids]]) -> Iterator[tuple[Sequences, Ids]]:
    """Join pieces to batches of BATCH_BASES."""
    some: list[tuple[Sequences, Ids]] = []
    for piece in pieces:
        some.append(piece)
        if sum(len(rows.data) for rows, _ in some) >= BATCH_BASES:
            yield _together(some)
            some = []
    if some:
        yield _together(some)


def _together(pieces: list[tuple[Sequences, Ids]]) -> tuple[Sequences, Ids]:
    lengths = np.concatenate([np.diff(rows.offsets) for rows, _ in pieces])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    data = np.concatenate([rows.data for rows, _ in pieces])
    return Sequences("proof", data, offsets), joined([ids for _, ids in pieces])


@functools.cache
def _fast_reference(name: str, is_alone: bool) -> FastReference:
    """Return the fast reference of a vocabulary, on all cores if the process is alone."""
    return find_fast_reference(builtin.load(name), all_cores=is_alone)[1]


@functools.cache
def _cpu_engine() -> CpuEngine:
    return CpuEngine()


def _ids_of(name: str, rows: Sequences, is_alone: bool) -> Ids:
    return joined(_fast_reference(name, is_alone)(rows.texts))


def _prove_fast_reference(data: Path | None, name: str, size: int) -> int:
    """Compare a fast reference with the reference on the first rows; return the bases compared."""
    (rows,) = proof_rows(data, size, (SEED, 0), size)
    texts = rows.texts[: int(np.searchsorted(rows.offsets, REFERENCE_BASES))]
    return prove_fast_reference(builtin.load(name), _fast_reference(name, False), texts)


def _piece(data: Path | None, name: str, number: int, size: int) -> tuple[Sequences, Ids]:
    """Return rows and their ids on which the fast reference and the CPU engine agree.

    Raises:
        SystemExit: they do not.
    """
    (rows,) = proof_rows(data, size, (SEED, number), size)
    expected = _ids_of(name, rows, False)
    encoded = _cpu_engine().encode(builtin.load(name), batch_of(rows))
    if encoded.errors or not np.array_equal(encoded.ids, expected):
        raise SystemExit(
            f"{name}: the cpu engine differs from {find_fast_reference(builtin.load(name))[0]}"
        )
    return rows, expected
