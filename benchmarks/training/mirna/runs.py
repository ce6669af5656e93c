"""Trains the classifiers of the tables in several processes, and keeps each result as it ends.

A cell is a tokenizer, a task and the domain of its training sequences; its seeds are trained
together.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.mirna.matures import SPECIES, Matures, Task, split, task

EVERYWHERE, HUMAN = "everywhere", "human"
CONSERVED = 1

Ints = NDArray[np.int64]
Measured = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoded corpus: ids int64[T], offsets int64[B + 1], and the tokenizer's number of ids."""

    ids: Ints
    offsets: Ints
    num_ids: int


@dataclass(frozen=True, slots=True)
class Cell:
    """A tokenizer, a task, and the species whose sequences are trained on."""

    tokenizer: str
    task: str
    domain: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The commit and settings with which cells are trained; cells of other plans are retrained."""

    commit: str
    device: str
    num_seeds: int
    max_epochs: int
    patience: int


class Kept:
    """The cells that have ended, one on each line of a file, so that later calls skip them."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.cells: dict[Cell, Measured] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            if row["plan"] == asdict(plan):
                self.cells[Cell(**row["cell"])] = row["measured"]

    def add(self, cell: Cell, measured: Measured) -> None:
        """Keep a cell."""
        self.cells[cell] = measured
        row = {"plan": asdict(self.plan), "cell": asdict(cell), "measured": measured}
        with self.path.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def results(
    cells: list[Cell],
    matures: Matures,
    encoded: dict[str, Encoded],
    plan: Plan,
    *,
    num_processes: int,
) -> Iterator[tuple[Cell, Measured]]:
    """Yield the results of all seeds of each cell as it ends; the longest start first."""
    longest = sorted(cells, key=lambda cell: -_work(cell, matures, encoded))
    if not longest:
        return
    if num_processes == 1:
        _begin(matures, encoded, plan)
        yield from ((cell, _measure(cell)) for cell in longest)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, context, _begin, (matures, encoded, plan)) as pool:
        futures = {pool.submit(_measure, cell): cell for cell in longest}
        for done in as_completed(futures):
            yield futures[done], done.result()


def _work(cell: Cell, matures: Matures, encoded: dict[str, Encoded]) -> int:
    """Estimate the time of an epoch: the rows times the tokens of the longest."""
    rows = _rows(matures, task(matures, cell.task), cell.domain)
    return len(rows) * int(np.diff(encoded[cell.tokenizer].offsets).max())


_COMMON: list[Any] = []


def _begin(*common: Any) -> None:
    import torch

    torch.set_num_threads(1)
    _COMMON[:] = common


def _measure(cell: Cell) -> Measured:
    from benchmarks.training.mirna.training import Places, Rows, Schedule, fit

    matures, encoded, plan = _COMMON
    chosen, tokens = task(matures, cell.task), encoded[cell.tokenizer]
    labels = labels_of(matures, chosen)
    seeds = [*range(plan.num_seeds)]
    train, validation, tests = parts(matures, chosen, cell.domain, labels, seeds)
    outcomes = fit(
        Rows.of(tokens.ids, tokens.offsets, labels, plan.device),
        Places(train, validation, tuple(tests.values())),
        num_ids=tokens.num_ids,
        num_classes=chosen.num_classes,
        seeds=seeds,
        schedule=Schedule(plan.max_epochs, plan.patience),
    )
    measured = []
    for seed, found in zip(seeds, outcomes, strict=True):
        own, predictions = labels[tests["own"][seed]], found.predictions
        shares = {
            label: float((predictions[own == label] == label).mean()) for label in {*own.tolist()}
        }
        measured.append(
            {
                "seed": seed,
                "accuracy": dict(zip(tests, found.accuracies, strict=True)),
                "balanced": float(np.mean([*shares.values()])),
                "epochs": found.epochs,
            }
        )
        if chosen.num_classes == 2:
            measured[-1]["true_positives"] = shares[CONSERVED]
    return measured


def labels_of(matures: Matures, chosen: Task) -> Ints:
    """Return the class of each sequence of the file; 0 for those outside the task."""
    labels = np.zeros(len(matures), np.int64)
    labels[chosen.rows] = chosen.labels
    return labels


def parts(
    matures: Matures, chosen: Task, domain: str, labels: Ints, seeds: list[int]
) -> tuple[Ints, Ints, dict[str, Ints]]:
    """Split rows into training, validation and tests, int64[M, n]: the domain's, other species'."""
    rows = _rows(matures, chosen, domain)
    train, validation, test = (
        np.stack([rows[part] for part in drawn])
        for drawn in zip(*(split(labels[rows], seed) for seed in seeds), strict=True)
    )
    tests = {"own": test}
    if domain == HUMAN:
        for name in SPECIES:
            if name != HUMAN:
                tests[name] = np.tile(_rows(matures, chosen, name), (len(seeds), 1))
    return train, validation, tests


def _rows(matures: Matures, chosen: Task, domain: str) -> Ints:
    """Return the task's rows of a species, or of all species."""
    if domain == EVERYWHERE:
        return chosen.rows
    rows: Ints = chosen.rows[np.array(matures.species)[chosen.rows] == SPECIES[domain]]
    return rows
