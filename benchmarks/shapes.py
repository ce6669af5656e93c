"""Batches as a service meets them: bytes side by side in, an array of ids out, one call at a time.

Calls go through several different batches in turn, because some libraries remember what they saw.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.proofs import Differs, Pair
from benchmarks.rivals import Absent, Answer, Rows, as_ids, cpu_engine, fastokens
from benchmarks.session import Block, Row, Session, Shape
from benchmarks.texts import Text, cut_rows, one_row
from benchmarks.timed_vocabularies import TimedVocabulary
from benchmarks.timing import Run, clocked, per_second, summary, take_turns
from benchmarks.witnesses import ids_of
from vocabularies.batch import Batch

__all__ = ["SHAPES"]

Ids = NDArray[np.int32]
MAX_BATCHES, MAX_BATCHES_BYTES = 16, 8 << 20
LONG_ROW = 1 << 20
CORPUS = "english"
Call = Callable[[Rows], Any]


def num_batches(shape: Shape) -> int:
    """How many different batches there are."""
    rows, row_bytes = shape
    return max(1, min(MAX_BATCHES, MAX_BATCHES_BYTES // (rows * row_bytes)))


def text_of(session: Session, shape: Shape) -> Text:
    """All batches of a shape, one behind the other."""
    rows, row_bytes = shape
    name, data = f"{rows} x {row_bytes}", session.corpus(CORPUS).data
    if row_bytes > LONG_ROW:
        return one_row(name, np.resize(data, row_bytes)[: whole_end(data, row_bytes)])
    count = rows * num_batches(shape)
    return cut_rows(name, np.resize(data, count * row_bytes), count, row_bytes)


def whole_end(data: NDArray[np.uint8], size: int) -> int:
    """The last place up to `size` of the repeated data where a character begins."""
    while data[size % len(data)] & 0xC0 == 0x80:
        size -= 1
    return size


def pairs(session: Session) -> list[Pair]:
    """The main vocabularies on all shapes."""
    texts = [text_of(session, shape) for shape in session.sizes.shapes]
    return [(timed, text) for timed in session.main_vocabularies for text in texts]


def time_shapes(session: Session) -> list[Row]:
    """Seconds of a call, for each engine and shape."""
    rows: list[Row] = []
    for timed in session.main_vocabularies:
        for shape in session.sizes.shapes:
            rows += _Calls(session, timed, shape).rows()
    return rows


class _Calls:
    """One vocabulary, one shape."""

    def __init__(self, session: Session, timed: TimedVocabulary, shape: Shape) -> None:
        self.session, self.timed, self.shape = session, timed, shape
        text = text_of(session, shape)
        ids, offsets = session.gpu.encode(timed.vocabulary, text.data, text.offsets)
        session.proofs.require(timed, text, ids)
        self.batches = list(batches(text, shape[0]))
        ends = offsets[:: shape[0]].tolist()
        self.right = [ids[a:b] for a, b in itertools.pairwise(ends)]

    def rows(self) -> list[Row]:
        """All engines' results."""
        runs: dict[str, Run] = {}
        absent: list[Row] = []
        for name, make in self.engines().items():
            try:
                runs[name] = self._run(name, make())
            except (Absent, ImportError) as error:
                absent.append(self._row(name) | {"status": f"absent: {error}"})
        sizes = self.session.sizes
        samples = take_turns(runs, sizes.rounds, sizes.slice_s)
        num_bytes = len(self.batches[0].text.data)
        rows = [
            self._row(name) | {"gb_per_s": per_second(num_bytes, taken), "seconds": summary(taken)}
            for name, taken in samples.items()
        ]
        told = [f"{row['engine']} {row['seconds']['median_s'] * 1e6:,.1f}" for row in rows]
        name = "{} x {} B".format(*self.shape)
        self.session.log(f"{self.timed.name} {name}: {', '.join(told)} us")
        return rows + absent

    def engines(self) -> dict[str, Callable[[], Call]]:
        """What is called, by its name."""
        gpu, timed = self.session.gpu, self.timed

        def encode(rows: Rows) -> Ids:
            batch = Batch(data=rows.text.data, offsets=rows.text.offsets)
            return gpu.engine.encode(timed.vocabulary, batch).ids

        def encode_ids(rows: Rows) -> Ids:
            return gpu.encode(timed.vocabulary, rows.text.data, rows.text.offsets)[0]

        engines: dict[str, Callable[[], Call]] = {
            "gpu encode": lambda: encode,
            "gpu encode_ids": lambda: encode_ids,
            "cpu engine": lambda: cpu_engine(timed),
            "fastokens": lambda: fastokens(timed),
            "tiktoken": lambda: tiktoken(timed, self.shape[0]),
        }
        if self.shape[1] > LONG_ROW:
            engines["gpu pinned"] = self._pinned
        return engines

    def _pinned(self) -> Call:
        """The stream from pinned to pinned memory, for the one batch there is."""
        gpu, text = self.session.gpu, self.batches[0].text
        pinned, out = gpu.pinned(text.data), gpu.device.allocate_pinned(4 * len(text.data))
        way = gpu.host_ways(self.timed.vocabulary, pinned, text.offsets, out)["int32"]
        way.run()
        self.session.proofs.require(self.timed, text, way.ids())
        return lambda _: way.run()

    def _row(self, engine: str) -> Row:
        rows, row_bytes = self.shape
        shape = {"rows": rows, "row_bytes": row_bytes, "batches": len(self.batches)}
        return {"engine": engine, "vocabulary": self.timed.name, "status": "exact"} | shape

    def _run(self, name: str, call: Call) -> Run:
        """Calls on one batch after the other, once compared with the proved ids.

        Raises:
            Differs: they are others.
        """
        if name != "gpu pinned":
            for batch, right in zip(self.batches, self.right, strict=True):
                if not np.array_equal(as_ids(call(batch)), right):
                    raise Differs(f"{name}, {self.timed.name} on {batch.text.name}")
        turns = itertools.cycle(self.batches)
        return clocked(lambda: call(next(turns)))


def batches(text: Text, num_rows: int) -> Iterator[Rows]:
    """Neighbouring rows, so many at a time."""
    for first in range(0, len(text.offsets) - 1, num_rows):
        offsets = text.offsets[first : first + num_rows + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        offsets = offsets - begin
        borders = offsets if text.rows_are_texts else text.borders
        rows = Rows(Text(text.name, text.data[begin:end].copy(), offsets, borders))
        _ = (rows.strings, rows.parts)
        yield rows


def tiktoken(timed: TimedVocabulary, num_rows: int) -> Answer:
    """Its call for batches with a thread a core, or the one for a text."""
    if not timed.witness.tiktoken:
        raise Absent(f"tiktoken defines no {timed.name}")
    if num_rows == 1:
        return lambda rows: np.concatenate(
            [ids_of("tiktoken", timed.witness, text) for text in rows.strings]
        )
    import os

    import tiktoken as library

    encoding = library.get_encoding(timed.witness.tiktoken)
    cores = len(os.sched_getaffinity(0))
    return lambda rows: encoding.encode_ordinary_batch(rows.strings, num_threads=cores)


SHAPES = Block(pairs, time_shapes)
