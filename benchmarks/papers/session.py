"""The state that all parts of a run share: the data folder, the GPU, and the timing.

A part is a generator of rows; each row names its `table`. This module does not depend on a paper.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.support.timing import Run, summary

Row = dict[str, Any]
Rows = Generator[Row, None, None]
ROUNDS = 11
Where = Literal["cpu", "gpu", "both"]


class Differs(Exception):
    """Two encodings that must have equal ids differ."""


@dataclass(slots=True)
class Session:
    """One run.

    Attributes:
        data: the data folder.
        gpu: the engine on the GPU; None without a GPU.
        slice_s: the seconds that the calls of one comparison may take together, about.
        left_out: the measurements that were left out, with the reasons.
    """

    data: Path
    gpu: GpuWays | None = None
    slice_s: float = 0.5
    log: Callable[[str], None] = print
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, words: str) -> None:
        """Record, once, that something is not measured."""
        if words not in self.left_out:
            self.left_out.append(words)
            self.log(f"left out: {words}")

    def text(self, name: str) -> str | None:
        """Read a text of the data folder; if it is missing, record this and return None."""
        path = self.data / "text" / name
        if not path.is_file():
            self.leave_out(f"text/{name} is not in the data folder")
            return None
        return path.read_text(encoding="utf-8")

    def in_turns(self, runs: Mapping[str, Run]) -> dict[str, Row]:
        """Time runs in turns, as often as `slice_s` allows; return summaries by name."""
        first = {name: run() for name, run in runs.items()}  # Warms up.
        once_s = sum(min(first[name], run()) for name, run in runs.items())
        rounds = max(1, min(ROUNDS, int(self.slice_s / max(once_s, 1e-9))))
        samples: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                samples[name].append(run())
        return {name: summary(seconds) for name, seconds in samples.items()}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmark.

    Attributes:
        name: its name in the results and on the command line.
        paper: the paper whose tables it rebuilds.
        tables: the tables and figures, in the paper's words.
        where: "gpu": needs one; "cpu": measured without one; "both": has more with one.
        seconds: its share of a run's time.
        rows: measures.
    """

    name: str
    paper: str
    tables: str
    where: Where
    seconds: float
    rows: Callable[[Session], Rows]


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of a part.

    Attributes:
        is_complete: whether the part ended before its time.
    """

    rows: list[Row]
    seconds: float
    is_complete: bool


def run_part(part: Part, session: Session, seconds: float) -> Measured:
    """Measure a part until it ends, its time is over, or it fails.

    Raises:
        Differs: ids differ, so no row is kept.
    """
    begin = perf_counter()
    found: list[Row] = []
    rows = part.rows(session)
    is_complete = True
    try:
        for row in rows:
            found.append(row)
            if perf_counter() - begin > seconds:
                is_complete = False
                session.leave_out(f"{part.name}: its time was over")
                rows.close()
    except Differs:
        raise
    except Exception as error:
        is_complete = False
        session.leave_out(f"{part.name}, after {len(found)} rows: {error!r}")
    return Measured(found, perf_counter() - begin, is_complete)
