"""Puts each tokenizer's motif distortion beside its cross-domain gap: the points of Figure 2.

Ours are those of the classifiers that `genetic_bpe` trained; the paper's are those of its Table 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import StatisticsError, correlation, mean
from typing import Any

from benchmarks.training.mirna import published as paper
from benchmarks.training.mirna.matures import TASKS
from benchmarks.training.mirna.runs import HUMAN

TARGETS = ("zebrafish", "mouse", "fly")


def gap_points(document: dict[str, Any]) -> list[dict[str, Any]]:
    """List a point for each tokenizer and task of a document of `genetic_bpe`.

    `gap` is the accuracy on held-out human sequences less the mean of that on three other species,
    in per cent, mean over the seeds; `published` has the paper's figures or None.
    """
    points = []
    for task in TASKS:
        for name, measures in document["tokenizers"].items():
            runs = [
                run["accuracy"]
                for run in document["runs"]
                if (run["tokenizer"], run["task"], run["domain"]) == (name, task, HUMAN)
            ]
            if not runs:
                continue
            gaps = [100 * (run["own"] - mean(run[target] for target in TARGETS)) for run in runs]
            points.append(
                {
                    "tokenizer": name,
                    "task": task,
                    "distortion": measures["by_place"]["distortion"][0],
                    "gap": mean(gaps),
                    "published": _published(name, task),
                }
            )
    return points


def _published(name: str, task: str) -> dict[str, float] | None:
    if name not in paper.OVERALL:
        return None
    _, _, binary, multiclass, distortion, *_ = paper.OVERALL[name]
    return {"distortion": distortion, "gap": binary if task == TASKS[0] else multiclass}


def pearson(points: Iterable[dict[str, float]]) -> float | None:
    """Return Pearson's r of distortion and gap; None for equal values or fewer than two points."""
    pairs = [(point["distortion"], point["gap"]) for point in points]
    try:
        return correlation([x for x, _ in pairs], [y for _, y in pairs])
    except StatisticsError:
        return None
