"""The classifiers that the tables need, each a run of its own, several processes at a time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.mature_mirnas import SPECIES, Matures, Task, split, task

__all__ = ["EVERYWHERE", "HUMAN", "Encoded", "Run", "results"]

EVERYWHERE, HUMAN = "everywhere", "human"
CONSERVED = 1

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Encoded:
    """What a run needs of a tokenizer: int64[T] ids, int64[B + 1] offsets, how many ids it has."""

    ids: Ints
    offsets: Ints
    num_ids: int


@dataclass(frozen=True, slots=True)
class Run:
    """A tokenizer, a task, whose sequences it is trained on, and a seed."""

    tokenizer: str
    task: str
    domain: str
    seed: int


def results(
    runs: list[Run],
    matures: Matures,
    encoded: dict[str, Encoded],
    *,
    device: str,
    num_processes: int,
    schedule: tuple[int, int],
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """What each run measured, in order; `schedule` is the epochs at most, and the patience."""
    common = (matures, encoded, device, schedule)
    if num_processes == 1:
        _begin(*common)
        yield from zip(runs, map(_measure, runs), strict=True)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, context, _begin, common) as pool:
        yield from zip(runs, pool.map(_measure, runs), strict=True)


_COMMON: list[Any] = []


def _begin(*common: Any) -> None:
    import torch

    torch.set_num_threads(1)
    _COMMON[:] = common


def _measure(run: Run) -> dict[str, Any]:
    from benchmarks.mirna_model import Rows, Schedule, fit

    matures, encoded, device, schedule = _COMMON
    asked, tokens = task(matures, run.task), encoded[run.tokenizer]
    labels = np.zeros(len(matures), np.int64)
    labels[asked.rows] = asked.labels
    every = Rows.of(tokens.ids, tokens.offsets, labels, device)
    parts, tests = _parts(matures, asked, run)
    found = fit(
        *(every.take(part) for part in parts),
        [every.take(places) for places in tests.values()],
        num_ids=tokens.num_ids,
        num_classes=asked.num_classes,
        seed=run.seed,
        schedule=Schedule(*schedule),
    )
    own, said = labels[tests["own"]], found.predictions
    measured = {
        "accuracy": dict(zip(tests, found.accuracies, strict=True)),
        "balanced": float(np.mean([(said[own == label] == label).mean() for label in {*own}])),
        "epochs": found.epochs,
    }
    if asked.num_classes == 2:
        measured["true_positives"] = float((said[own == CONSERVED] == CONSERVED).mean())
    return measured


def _parts(matures: Matures, asked: Task, run: Run) -> tuple[tuple[Ints, Ints], dict[str, Ints]]:
    """Rows for training and validation, and for the tests: the domain's own, and other species'."""
    species = np.array(matures.species)[asked.rows]
    is_own = species == SPECIES[HUMAN] if run.domain == HUMAN else np.ones(len(species), bool)
    rows = asked.rows[is_own]
    train, validation, test = split(asked.labels[is_own], run.seed)
    tests = {"own": rows[test]}
    if run.domain == HUMAN:
        for name, short in SPECIES.items():
            if name != HUMAN:
                tests[name] = asked.rows[species == short]
    return (rows[train], rows[validation]), tests
