"""What issue 3 asks for, beside what a run reached.

A goal looks only at the results, and is left open where its block was not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.rival_rates import best_ratio

__all__ = ["GOALS", "Goal", "goal_rows"]

Results = dict[str, list[dict[str, Any]]]
MAIN = ("gpt2", "cl100k_base")
OTHERS = ("o200k_base", "llama3", "qwen", "qwen_raw")
GRAPHTOK_US = {
    (1, 100_000_000): 70_900.0,
    (1_024, 2_000): 1_300.0,
    (64, 1_000): 133.0,
    (1, 200): 49.0,
}
"""Measured on an H200, ../shared/ALGORITHMS.md."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure.

    Attributes:
        name: of what, in words.
        unit: of the figure.
        wanted: the least, or with `at_most` the most.
        reached: looks it up; None where it was not measured.
    """

    name: str
    unit: str
    wanted: float
    reached: Callable[[Results], float | None]
    at_most: bool = False


def goal_rows(results: Results) -> list[dict[str, Any]]:
    """For each goal what was wanted and reached, their ratio (1 and more is met)."""
    rows = []
    for goal in GOALS:
        reached = goal.reached(results)
        row: dict[str, Any] = {"goal": goal.name, "unit": goal.unit, "at_most": goal.at_most}
        row |= {"wanted": goal.wanted, "reached": reached, "ratio": None, "met": None}
        if reached is not None:
            ratio = goal.wanted / reached if goal.at_most else reached / goal.wanted
            row |= {"ratio": ratio, "met": ratio >= 1}
        rows.append(row)
    return rows


def _least(figures: Iterable[float]) -> float | None:
    return min(figures, default=None)


def _most(figures: Iterable[float]) -> float | None:
    return max(figures, default=None)


def _found(rows: Iterable[dict[str, Any]], /, **wanted: Any) -> Iterator[dict[str, Any]]:
    """Rows whose fields are, or are among, what is wanted."""
    for row in rows:
        if all(row.get(k) in (v if isinstance(v, tuple) else (v,)) for k, v in wanted.items()):
            yield row


def _kernels(corpus: str) -> Callable[[Results], float | None]:
    return lambda results: _least(
        row["gb_per_s"]
        for row in _found(results.get("kernels", []), corpus=corpus, vocabulary=MAIN)
    )


def _to_device(*corpora: str) -> Callable[[Results], float | None]:
    return lambda results: _least(
        row["copy_ratio"]
        for row in _found(results.get("host", []), corpus=corpora, vocabulary=MAIN, way="on_device")
    )


def _to_host(results: Results) -> float | None:
    corpora = ("english", "code", "languages")
    rows = _found(results.get("host", []), corpus=corpora, vocabulary=MAIN)
    small = (row for row in rows if row["way"].startswith(("uint16", "packed")))
    return _least(row["copy_ratio"] for row in small)


def _other_vocabularies(results: Results) -> float | None:
    """The least share of cl100k's figure, in any row of kernels and host."""
    shares = []
    for block in ("kernels", "host"):
        rows = results.get(block, [])
        for row in _found(rows, vocabulary=OTHERS):
            same = {"corpus": row["corpus"], "vocabulary": "cl100k_base"}
            way = str(row.get("way")).split("_")[0]
            for other in _found(rows, **same):
                if str(other.get("way")).split("_")[0] == way:
                    shares.append(row["gb_per_s"] / other["gb_per_s"])
    return _least(shares)


def _microseconds(shape: tuple[int, int]) -> Callable[[Results], float | None]:
    """Median of the fastest of our calls."""
    rows, row_bytes = shape
    engines = ("gpu encode", "gpu encode_ids", "gpu pinned")
    return lambda results: _least(
        1e6 * row["seconds"]["median_s"]
        for row in _found(
            results.get("shapes", []),
            vocabulary="gpt2",
            rows=rows,
            row_bytes=row_bytes,
            engine=engines,
        )
        if "seconds" in row
    )


def _graphtok(shape: tuple[int, int]) -> Callable[[Results], float | None]:
    def times(results: Results) -> float | None:
        ours = _microseconds(shape)(results)
        return None if ours is None else GRAPHTOK_US[shape] / ours

    return times


def _start(kernels: str) -> Callable[[Results], float | None]:
    return lambda results: _most(
        row["seconds"]["median_s"] for row in _found(results.get("starts", []), kernels=kernels)
    )


GIGA, COPY, TIMES, MICRO, SECONDS = "GB/s", "of the copy rate", "times", "us", "s"
GOALS = (
    Goal("kernels, English", GIGA, 120, _kernels("english")),
    Goal("kernels, code", GIGA, 75, _kernels("code")),
    Goal("kernels, 20 languages", GIGA, 65, _kernels("languages")),
    Goal("kernels, hostile text", GIGA, 30, _kernels("hostile")),
    Goal("pinned to ids on the device, English", COPY, 0.95, _to_device("english")),
    Goal("the same, code and languages", COPY, 0.90, _to_device("code", "languages")),
    Goal("pinned to pinned, uint16 or packed", COPY, 0.85, _to_host),
    Goal("other vocabularies, of cl100k's figure", "share", 0.80, _other_vocabularies),
    *(
        Goal(f"against gigatoken, {name}", TIMES, wanted, reached)
        for name, wanted, reached in (
            ("first call", 20, lambda r: best_ratio(r.get("rivals", []), "gigatoken", "first")),
            ("warm", 10, lambda r: best_ratio(r.get("rivals", []), "gigatoken", "warm")),
        )
    ),
    Goal("against GraphTok, 100 MB", TIMES, 25, _graphtok((1, 100_000_000))),
    Goal("against GraphTok, 1,024 x 2 kB", TIMES, 8, _graphtok((1_024, 2_000))),
    Goal("against GraphTok, 64 x 1 kB", TIMES, 2, _graphtok((64, 1_000))),
    Goal("against GraphTok, 200 B", TIMES, 1.2, _graphtok((1, 200))),
    Goal("64 texts of 1 kB, a call", MICRO, 65, _microseconds((64, 1_000)), at_most=True),
    Goal("one text of 200 B, a call", MICRO, 40, _microseconds((1, 200)), at_most=True),
    Goal(
        "any input, kernels",
        GIGA,
        5,
        lambda r: _least(row["gb_per_s"] for row in r.get("cliffs", []) if "gb_per_s" in row),
    ),
    Goal(
        "an odd text in a batch of 1,024",
        TIMES,
        2,
        lambda r: _most(
            row["times_without"] for row in r.get("cliffs", []) if "times_without" in row
        ),
        at_most=True,
    ),
    Goal("first answer, kernels cached", SECONDS, 3, _start("cached"), at_most=True),
    Goal("first answer, kernels not cached", SECONDS, 15, _start("compiled"), at_most=True),
)
