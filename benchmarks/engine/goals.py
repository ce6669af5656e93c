"""What was asked of the engine on one H200, beside what a run reached.

A goal looks only at the results, and is left open where its block was not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.engine.rivals import GPU_CALL, GPU_ENCODE, GPU_NARROW, GPU_PINNED

Row = dict[str, Any]
Results = dict[str, list[Row]]
Reached = Callable[[Results], float | None]
MAIN = ("gpt2", "cl100k_base")
OTHERS = ("o200k_base", "llama3", "qwen_raw")
HUNDRED_MB, THOUSAND, SIXTY_FOUR, ONE = (1, 100_000_000), (1_024, 2_000), (64, 1_000), (1, 200)
GRAPHTOK_US = {HUNDRED_MB: 70_900.0, THOUSAND: 1_300.0, SIXTY_FOUR: 133.0, ONE: 49.0}
"""GraphTok 0.3, GPT-2, end to end; rebuilt from its sources and measured on an H200 for issue 3.
Constants: it is not run beside ours."""


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
    reached: Reached
    at_most: bool = False


def goal_rows(results: Results) -> list[Row]:
    """For each goal what was wanted and reached, their ratio (1 and more is met)."""
    rows = []
    for goal in GOALS:
        reached = goal.reached(results)
        row: Row = {"goal": goal.name, "unit": goal.unit, "at_most": goal.at_most}
        row |= {"wanted": goal.wanted, "reached": reached, "ratio": None, "met": None}
        if reached is not None:
            ratio = goal.wanted / reached if goal.at_most else reached / goal.wanted
            row |= {"ratio": ratio, "met": ratio >= 1}
        rows.append(row)
    return rows


def goal_table(rows: list[Row]) -> str:
    """A line for each goal that was measured."""
    lines = [f"{'':44} {'wanted':>20} {'reached':>9} {'ratio':>6}"]
    for row in rows:
        if row["met"] is not None:
            wanted = f"{'<=' if row['at_most'] else '>='} {row['wanted']:g} {row['unit']}"
            short = "" if row["met"] else "  short"
            lines.append(
                f"{row['goal']:44} {wanted:>20} {row['reached']:9.3g} {row['ratio']:6.2f}{short}"
            )
    return "\n".join(lines)


def _least(figures: Iterable[float]) -> float | None:
    return min(figures, default=None)


def _most(figures: Iterable[float]) -> float | None:
    return max(figures, default=None)


def _found(results: Results, block: str, **wanted: Any) -> Iterator[Row]:
    """Rows of a block whose fields are, or are among, what is wanted."""
    for row in results.get(block, []):
        if all(row.get(k) in (v if isinstance(v, tuple) else (v,)) for k, v in wanted.items()):
            yield row


def _kernels(corpus: str) -> Reached:
    return lambda results: _least(
        row["gb_per_s"] for row in _found(results, "kernels", corpus=corpus, vocabulary=MAIN)
    )


def _to_device(*corpora: str) -> Reached:
    wanted = {"corpus": corpora, "vocabulary": MAIN, "way": "on_device"}
    return lambda results: _least(row["copy_ratio"] for row in _found(results, "host", **wanted))


def _to_host(results: Results) -> float | None:
    corpora = ("english", "code", "languages")
    rows = _found(results, "host", corpus=corpora, vocabulary=MAIN)
    return _least(row["copy_ratio"] for row in rows if _kind(row) == "uint16")


def _kind(row: Row) -> str:
    """A way without its number of bits."""
    return str(row.get("way", "")).split("_")[0]


def _other_vocabularies(results: Results) -> float | None:
    """The least share of cl100k's figure, in any row of kernels and host."""
    shares = []
    for block in ("kernels", "host"):
        for row in _found(results, block, vocabulary=OTHERS):
            for other in _found(results, block, corpus=row["corpus"], vocabulary="cl100k_base"):
                if _kind(other) == _kind(row):
                    shares.append(row["gb_per_s"] / other["gb_per_s"])
    return _least(shares)


def _against(rival: str, when: str, ours: str = GPU_PINNED) -> Reached:
    """How many times a rival's rate that of an engine of ours is, where that is least."""

    def times(results: Results) -> float | None:
        ratios = []
        for row in _found(results, "corpora", engine=rival, status="exact"):
            same = {"corpus": row["corpus"], "vocabulary": row["vocabulary"]}
            for own in _found(results, "corpora", engine=ours, **same):
                ratios.append(own[when]["gb_per_s"] / row[when]["gb_per_s"])
        return _least(ratios)

    return times


def _microseconds(shape: tuple[int, int], *engines: str) -> Reached:
    """Median of the fastest of our calls on a shape, with GPT-2."""
    wanted = {"rows": shape[0], "row_bytes": shape[1], "vocabulary": "gpt2", "engine": engines}
    return lambda results: _least(
        1e6 * row["warm"]["seconds"]["median_s"] for row in _found(results, "shapes", **wanted)
    )


def _graphtok(shape: tuple[int, int]) -> Reached:
    def times(results: Results) -> float | None:
        ours = _microseconds(shape, GPU_CALL, GPU_ENCODE, GPU_PINNED)(results)
        return None if ours is None else GRAPHTOK_US[shape] / ours

    return times


def _one_piece(num_bytes: int) -> Reached:
    rows = {"bytes": num_bytes}
    return lambda results: _least(
        row["gb_per_s"] for row in _found(results, "cliffs", **rows) if "gb_per_s" in row
    )


def _odd_text(results: Results) -> float | None:
    rows = _found(results, "cliffs")
    return _most(row["times_without"] for row in rows if "times_without" in row)


def _start(kernels: str) -> Reached:
    return lambda results: _most(
        row["seconds"]["median_s"] for row in _found(results, "starts", kernels=kernels)
    )


GIGA, COPY, TIMES, MICRO, SECONDS = "GB/s", "of the copy", "times", "us", "s"
GOALS = (
    Goal("kernels, English", GIGA, 120, _kernels("english")),
    Goal("kernels, code", GIGA, 75, _kernels("code")),
    Goal("kernels, 20 languages", GIGA, 65, _kernels("languages")),
    Goal("kernels, hostile text", GIGA, 30, _kernels("hostile")),
    Goal("pinned to ids on the device, English", COPY, 0.95, _to_device("english")),
    Goal("the same, code and languages", COPY, 0.90, _to_device("code", "languages")),
    Goal("pinned to pinned, uint16", COPY, 0.85, _to_host),
    Goal("other vocabularies, of cl100k's figure", "share", 0.80, _other_vocabularies),
    Goal("against gigatoken, first call", TIMES, 20, _against("gigatoken", "first")),
    Goal("against gigatoken, warm", TIMES, 10, _against("gigatoken", "warm")),
    Goal("the same, first, narrow ids", TIMES, 20, _against("gigatoken", "first", GPU_NARROW)),
    Goal("the same, warm", TIMES, 10, _against("gigatoken", "warm", GPU_NARROW)),
    Goal("against GraphTok, 100 MB", TIMES, 25, _graphtok(HUNDRED_MB)),
    Goal("against GraphTok, 1,024 x 2 kB", TIMES, 8, _graphtok(THOUSAND)),
    Goal("against GraphTok, 64 x 1 kB", TIMES, 2, _graphtok(SIXTY_FOUR)),
    Goal("against GraphTok, 200 B", TIMES, 1.2, _graphtok(ONE)),
    *(
        Goal(name, MICRO, wanted, _microseconds(shape, GPU_CALL, GPU_ENCODE), at_most=True)
        for name, wanted, shape in (
            ("64 texts of 1 kB, a call", 65, SIXTY_FOUR),
            ("one text of 200 B, a call", 40, ONE),
        )
    ),
    Goal("10 MiB in one piece, kernels", GIGA, 5, _one_piece(10 << 20)),
    Goal("1 MiB in one piece, kernels", GIGA, 5, _one_piece(1 << 20)),
    Goal("an odd text in a batch of 1,024", TIMES, 2, _odd_text, at_most=True),
    Goal("first answer, kernels cached", SECONDS, 3, _start("cached"), at_most=True),
    Goal("first answer, kernels not cached", SECONDS, 15, _start("compiled"), at_most=True),
)
