"""Times all engines on each corpus, and on batches as a service gets them.

First calls are timed apart from warm ones, which take turns. Calls go through several different
batches of a shape, because some libraries cache texts.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.blocks.session import Block, Row, Session, Shape
from benchmarks.engine.bus import Bus
from benchmarks.engine.competitors import GPU_NARROW, GPU_PINNED, Absent, Competitor, competitors
from benchmarks.engine.references.proofs import Differs, Pair
from benchmarks.engine.references.published_vocabularies import Published
from benchmarks.support.texts import Text, character_begins, cut_rows, one_row
from benchmarks.support.timing import Run, Seconds, clocked, per_second, summary, take_turns

Ids = NDArray[np.int32]
WARM_ROUNDS = 3  # Of corpora; shapes have as many as everything else.
MAX_BATCHES, MAX_BATCHES_BYTES = 16, 8 << 20
LONG_ROW = 1 << 20
CORPUS = "english"


def shape_text(session: Session, shape: Shape) -> Text:
    """Make all batches of a shape, one after the other."""
    rows, row_bytes = shape
    name, data = f"{rows} x {row_bytes} B", session.corpus(CORPUS).data
    if row_bytes > LONG_ROW:
        whole = np.resize(data, row_bytes + 1)
        return one_row(name, whole[: int(character_begins(whole, np.array([row_bytes]))[0])])
    count = rows * max(1, min(MAX_BATCHES, MAX_BATCHES_BYTES // (rows * row_bytes)))
    return cut_rows(name, np.resize(data, count * row_bytes), count, row_bytes)


def corpus_pairs(session: Session) -> list[Pair]:
    """List the main vocabularies on all corpora."""
    return [(timed, text) for text in session.chosen_corpora for timed in session.main_vocabularies]


def shape_pairs(session: Session) -> list[Pair]:
    """List the main vocabularies on all shapes."""
    texts = [shape_text(session, shape) for shape in session.sizes.shapes]
    return [(timed, text) for timed in session.main_vocabularies for text in texts]


def time_corpora(session: Session) -> list[Row]:
    """Time every engine from text in memory to ids in memory."""
    rows: list[Row] = []
    for timed, text in corpus_pairs(session):
        comparison = Comparison(session, timed, text, len(text.offsets) - 1)
        rows += comparison.rows({"corpus": text.name}, WARM_ROUNDS, 0.0, with_copies=True)
    return rows


def time_shapes(session: Session) -> list[Row]:
    """Time a call of every engine and shape."""
    rows: list[Row] = []
    sizes = session.sizes
    for timed in session.main_vocabularies:
        for shape in sizes.shapes:
            comparison = Comparison(session, timed, shape_text(session, shape), shape[0])
            where = {"rows": shape[0], "row_bytes": shape[1], "batches": len(comparison.batches)}
            rows += comparison.rows(where, sizes.rounds, sizes.slice_s)
    return rows


class Comparison:
    """One vocabulary, and batches of one kind.

    Args:
        session: the run.
        timed: the vocabulary.
        text: all batches, one behind the other; its ids were proved.
        num_rows: the rows of a batch.
    """

    def __init__(self, session: Session, timed: Published, text: Text, num_rows: int) -> None:
        self.session = session
        self.timed = timed
        self.name = text.name
        ids, offsets = session.gpu.encode(timed.vocabulary, text.data, text.offsets)
        session.proofs.require(timed, text, ids)
        self.batches = list(batches_of(text, num_rows))
        ends = offsets[::num_rows].tolist()
        self.right = [ids[a:b] for a, b in itertools.pairwise(ends)]

    def rows(
        self, where: Row, rounds: int, slice_s: float, *, with_copies: bool = False
    ) -> list[Row]:
        """Compare all engines; `where` is put into each row.

        With `with_copies`, engines from and to pinned memory are timed beside copies of as many
        bytes, both ways at once.
        """
        results: list[Row] = []
        warm: dict[str, Run] = {}
        kept: list[tuple[Row, Competitor]] = []
        for competitor in competitors(self.session.gpu, self.session.sizes.front_bytes):
            if competitor.name not in self.session.engines:
                continue
            row: Row = {
                "engine": competitor.name,
                "cores": competitor.cores,
                "vocabulary": self.timed.name,
            }
            results.append(row | where)
            call = self._begin(competitor, results[-1])
            if call is not None:
                warm[competitor.key] = call
                kept.append((results[-1], competitor))
        moving = [row for row, competitor in kept if competitor.name in (GPU_PINNED, GPU_NARROW)]
        with self._copies(moving if with_copies else []) as copies:
            samples = take_turns(warm | copies, rounds, slice_s)
        for row, competitor in kept:
            row["warm"] = _rate(row["bytes"], samples[competitor.key])
        for row in moving if with_copies else []:
            row["copies"] = _rate(row["bytes"], samples[_copies_of(row)])
        figures = ", ".join(
            f"{competitor.key} {row['warm']['gb_per_s']:.3f} ({_short(row['warm']['seconds'])})"
            for row, competitor in kept
        )
        self.session.log(f"{self.name} {self.timed.name}, GB/s: {figures}")
        return results

    @contextmanager
    def _copies(self, rows: list[Row]) -> Iterator[dict[str, Run]]:
        """Time copies of the bytes that the engine of each row reads and writes."""
        if not rows:
            yield {}
            return
        most_bytes = max(row["bytes"] + row["bytes_out"] for row in rows)
        with closing(Bus(self.session.gpu.device, most_bytes)) as bus:
            yield {
                _copies_of(row): clocked(partial(bus.copy, row["bytes"], row["bytes_out"]))
                for row in rows
            }

    def _begin(self, competitor: Competitor, row: Row) -> Run | None:
        """Make the first calls, compare them with the proved ids, and return the warm call.

        A library that is missing, fails or returns other ids has no call; its row of results
        reports this.

        Raises:
            Differs: an engine of warptok returns other ids.
        """
        first: Seconds = []
        try:
            row["version"] = competitor.version()
            batches = [front_of(batch, competitor.most_bytes) for batch in self.batches]
            forms = [competitor.form(batch) for batch in batches]
            for _ in range(competitor.num_loads if len(forms) == 1 else 1):
                encode, given = competitor.load(self.timed), list[Any]()
                first.append(clocked(partial(_keep, given, encode, forms[0]))())
                answer = given.pop()
                self._compare(competitor, batches[0], 0, as_ids(answer))
            for number, form in enumerate(forms[1:], 1):
                self._compare(competitor, batches[number], number, as_ids(encode(form)))
        except (Absent, ImportError) as error:
            row["status"] = f"absent: {error}"
            return None
        except _OtherIds as error:
            row["status"] = f"differs: {error}"
            return None
        except (ValueError, RuntimeError) as error:
            if competitor.is_ours:
                raise
            row["status"] = f"cannot: {error}"[:200]
            return None
        num_bytes = len(batches[0].data)
        row |= {"status": "exact", "bytes": num_bytes, "first": _rate(num_bytes, first)}
        if competitor.name in (GPU_PINNED, GPU_NARROW):
            row["bytes_out"] = answer.nbytes
        turns = itertools.cycle(forms)
        return clocked(lambda: encode(next(turns)))

    def _compare(self, competitor: Competitor, given: Text, number: int, ids: Ids) -> None:
        """Return whether the ids of a batch or of its front are the proved ones."""
        right = self.right[number]
        if given is not self.batches[number]:  # Ids of a front are the first ones of the whole.
            vocabulary, gpu = self.timed.vocabulary, self.session.gpu
            right = right[: len(gpu.encode(vocabulary, given.data, given.offsets)[0])]
        if np.array_equal(ids, right):
            return
        case = f"{competitor.key}, {self.timed.name} on {self.name}"
        if competitor.is_ours:
            raise Differs(case)
        raise _OtherIds(f"{case}: {len(ids)} ids, {len(right)} are right")


class _OtherIds(Exception):
    """A library's ids are not the reference's."""


def as_ids(answer: Any) -> Ids:
    """Convert a library's answer (an array, rows of numbers or encodings) to int32[T]."""
    if isinstance(answer, np.ndarray):
        return answer.astype(np.int32)
    if hasattr(answer, "layout"):
        answer = importlib.import_module("awkward").flatten(answer, axis=None)
        return np.asarray(answer, np.int32)
    rows = (np.asarray(getattr(row, "ids", row), np.int32) for row in answer)
    return np.concatenate([np.zeros(0, np.int32), *rows])


def _copies_of(row: Row) -> str:
    return f"copies of {row['engine']}"


def _keep(given: list[Any], encode: Callable[[Any], Any], form: Any) -> None:
    given.append(encode(form))


def batches_of(text: Text, num_rows: int) -> Iterator[Text]:
    """Yield batches of `num_rows` neighbouring rows."""
    for first in range(0, len(text.offsets) - 1, num_rows):
        offsets = text.offsets[first : first + num_rows + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        offsets = offsets - begin
        borders = offsets if text.rows_are_texts else text.borders
        yield Text(text.name, text.data[begin:end].copy(), offsets, borders)


def front_of(text: Text, most_bytes: float) -> Text:
    """Return the front of a text, up to a border; the text itself if it is short enough."""
    if len(text.data) <= most_bytes:
        return text
    last = max(1, int(np.searchsorted(text.borders, most_bytes, "right")) - 1)
    borders = text.borders[: last + 1]
    end = int(borders[-1])
    offsets = borders if text.rows_are_texts else np.array([0, end], np.int64)
    return Text(text.name, text.data[:end], offsets, borders)


def _rate(num_bytes: int, samples: Sequence[float]) -> Row:
    return {"gb_per_s": per_second(num_bytes, list(samples)), "seconds": summary(list(samples))}


def _short(seconds: dict[str, float]) -> str:
    median = seconds["median_s"]
    return f"{median * 1e6:.1f} us" if median < 1e-3 else f"{median * 1e3:.1f} ms"


CORPORA = Block(corpus_pairs, time_corpora)
SHAPES = Block(shape_pairs, time_shapes)
