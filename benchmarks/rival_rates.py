"""A corpus through every engine on the same machine: the first call, and warm, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.proofs import Differs, Pair
from benchmarks.rivals import Absent, Answer, Rival, Rows, as_ids, rivals
from benchmarks.session import Block, Row, Session
from benchmarks.texts import Text
from benchmarks.timed_vocabularies import TimedVocabulary
from benchmarks.timing import Seconds, clocked, per_second, summary, take_turns

__all__ = ["RIVALS", "best_ratio"]

Ids = NDArray[np.int32]
COLD_ROUNDS, WARM_ROUNDS = 3, 3
OURS = "gpu"


def pairs(session: Session) -> list[Pair]:
    """The main vocabularies on all corpora."""
    return [(timed, text) for text in session.corpora for timed in session.main_vocabularies]


def time_rivals(session: Session) -> list[Row]:
    """From text in memory to ids in memory; for the GPU pinned, or in a second row ordinary."""
    rows: list[Row] = []
    for text in session.corpora:
        for timed in session.main_vocabularies:
            rows += _Contest(session, timed, text).rows()
    return rows


class _Contest:
    """One vocabulary on one corpus."""

    def __init__(self, session: Session, timed: TimedVocabulary, text: Text) -> None:
        self.session, self.timed, self.text = session, timed, text
        self.whole, self.small = Rows(text), Rows(first_bytes(text, session.sizes.slow_bytes))
        self.right, _ = session.gpu.encode(timed.vocabulary, text.data, text.offsets)
        session.proofs.require(timed, text, self.right)
        front = self.small.text
        num_ids = len(session.gpu.encode(timed.vocabulary, front.data, front.offsets)[0])
        self.small_right = self.right[:num_ids]  # Pretokens end at borders.

    def rows(self) -> list[Row]:
        """All engines' results."""
        results: list[Row] = []
        warm: dict[str, Callable[[], float]] = {}
        kept: list[tuple[Row, str, int]] = []
        for rival in rivals(self.session.witnesses):
            row, answer = self._begin(rival)
            results.append(row)
            if answer is not None:
                rows = self._input(rival)
                key = f"{rival.name} {rival.cores}"
                warm[key] = clocked(partial(answer, rows))
                kept.append((row, key, len(rows.text.data)))
        ours, ours_warm = self._ours()
        warm |= ours_warm
        kept += [(row, row["engine"], len(self.text.data)) for row in ours]
        samples = take_turns(warm, WARM_ROUNDS)
        for row, key, num_bytes in kept:
            row |= {"bytes": num_bytes, "warm": _rate(num_bytes, samples[key])}
        told = ", ".join(
            f"{row['engine']} {row['cores']} {row['warm']['gb_per_s']:.3f}"
            for row in [*ours, *results]
            if "warm" in row
        )
        self.session.log(f"{self.text.name} {self.timed.name}: {told} GB/s")
        return [*ours, *results]

    def _input(self, rival: Rival) -> Rows:
        return self.small if rival.is_slow else self.whole

    def _begin(self, rival: Rival) -> tuple[Row, Answer | None]:
        """First calls, proved; no answer where the library is absent or gives other ids."""
        row = self._row(rival.name, rival.cores)
        rows, first = self._input(rival), []
        answer: Answer | None = None
        try:
            row["version"] = rival.version()
            for _ in range(COLD_ROUNDS if rival.remembers else 1):
                answer = rival.make(self.timed)
                given: list[Any] = []
                _ = (rows.strings, rows.parts, rows.joined)
                first.append(clocked(partial(_keep, given, answer, rows))())
                self._check(row, rows, as_ids(given[0]))
        except (Absent, ImportError) as error:
            return row | {"status": f"absent: {error}"}, None
        except (ValueError, RuntimeError) as error:
            return row | {"status": f"cannot: {error}"[:200]}, None
        if row["status"] != "exact":
            return row, None
        return row | {"first": _rate(len(rows.text.data), first)}, answer

    def _row(self, engine: str, cores: str) -> Row:
        names = {"corpus": self.text.name, "vocabulary": self.timed.name}
        return {"engine": engine, "cores": cores, **names, "status": "exact"}

    def _check(self, row: Row, rows: Rows, ids: Ids) -> None:
        """Compare with the proved ids.

        Raises:
            Differs: our own CPU engine's are others.
        """
        right = self.right if rows is self.whole else self.small_right
        if not np.array_equal(ids, right):
            row["status"] = "differs"
            if row["engine"] == "cpu engine":
                raise Differs(f"cpu engine, {self.timed.name} on {self.text.name}")

    def _ours(self) -> tuple[list[Row], dict[str, Callable[[], float]]]:
        """The GPU from pinned to pinned memory, and by the call on ordinary memory."""
        gpu, text, vocabulary = self.session.gpu, self.text, self.timed.vocabulary
        pinned, out = gpu.pinned(text.data), gpu.device.allocate_pinned(4 * len(text.data))
        way = gpu.host_ways(vocabulary, pinned, text.offsets, out)["int32"]
        runs: dict[str, Callable[[], float]] = {
            f"{OURS} pinned": clocked(way.run),
            f"{OURS} call": clocked(lambda: gpu.encode(vocabulary, text.data, text.offsets)),
        }
        rows = []
        for name, run in runs.items():
            gpu.engine.unload(vocabulary.digest)
            gpu.engine.load(vocabulary)
            first = _rate(len(text.data), [run()])
            rows.append(self._row(name, "all") | {"first": first})
        self.session.proofs.require(self.timed, text, way.ids())
        return rows, runs


def _keep(given: list[Any], answer: Answer, rows: Rows) -> None:
    given.append(answer(rows))


def first_bytes(text: Text, size: int) -> Text:
    """The front of a corpus, up to a border."""
    last = max(1, int(np.searchsorted(text.borders, size, "right")) - 1)
    borders = text.borders[: last + 1]
    end = int(borders[-1])
    return Text(f"{text.name}, front", text.data[:end], np.array([0, end]), borders)


def _rate(num_bytes: int, samples: Seconds) -> Row:
    return {"gb_per_s": per_second(num_bytes, samples), "seconds": summary(samples)}


def best_ratio(rows: list[Row], rival: str, when: str) -> float | None:
    """How many times as fast as a rival ours is, at the corpus where it is least."""
    ratios = []
    for row in rows:
        if row["engine"] == rival and when in row:
            where = (row["corpus"], row["vocabulary"])
            ours = [
                other[when]["gb_per_s"]
                for other in rows
                if other["engine"] == f"{OURS} pinned"
                and (other["corpus"], other["vocabulary"]) == where
            ]
            ratios.append(statistics.median(ours) / row[when]["gb_per_s"])
    return min(ratios, default=None)


RIVALS = Block(pairs, time_rivals)
