"""Trains a stack of classifiers, by Adam 3e-4 with early stopping, and measures each.

The paper leaves these choices open: batches of 128; a training ends when its accuracy on the
validation part has not risen for a while, and its weights of the best epoch count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from benchmarks.training.mirna.model import Classifiers

LEARNING_RATE, BATCH, TEST_BATCH = 3e-4, 128, 2048

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The limit of epochs, and after how many epochs without improvement training ends."""

    max_epochs: int = 60
    patience: int = 8


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of token ids from 1 on, int64[B, L] padded with 0, and their labels int64[B]."""

    ids: Tensor
    labels: Tensor

    @classmethod
    def of(cls, ids: Ints, offsets: Ints, labels: Ints, device: str) -> Rows:
        """Make padded rows of ids int64[T] with offsets int64[B + 1]."""
        lengths = np.diff(offsets)
        padded = np.zeros((len(lengths), max(1, lengths.max(initial=0))), np.int64)
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = ids + 1
        return cls(torch.from_numpy(padded).to(device), torch.from_numpy(labels).to(device))


@dataclass(frozen=True, slots=True)
class Places:
    """The rows that each of M models is trained, validated and tested on, each int64[M, n]."""

    train: Ints
    validation: Ints
    tests: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The accuracy of each test, the predictions of the first, and the number of epochs."""

    accuracies: tuple[float, ...]
    predictions: Ints
    epochs: int


def fit(
    rows: Rows,
    places: Places,
    *,
    num_ids: int,
    num_classes: int,
    seeds: list[int],
    schedule: Schedule,
) -> list[Outcome]:
    """Train a classifier per seed, side by side, and measure it on each of `places.tests`."""
    device = rows.ids.device
    torch.manual_seed(seeds[0])
    chances = [torch.Generator().manual_seed(seed) for seed in seeds]
    models = Classifiers(chances, num_ids, rows.ids.shape[1], num_classes).to(device)
    optimizer = torch.optim.Adam(models.parameters(), LEARNING_RATE, fused=True)
    train, validation = (torch.from_numpy(part) for part in (places.train, places.validation))
    best, epoch = _Best.of(models, len(seeds)), 0
    while epoch < schedule.max_epochs and best.is_rising(epoch, schedule.patience).any():
        is_rising, epoch = best.is_rising(epoch, schedule.patience), epoch + 1
        _train(models, optimizer, rows, _shuffled(train, chances).to(device))
        best.note(models, epoch, is_rising, _tested(models, rows, validation.to(device))[0])
    models.load_state_dict(best.weights)
    accuracies, predictions = [], []
    for part in places.tests:
        found = _tested(models, rows, torch.from_numpy(part).to(device))
        accuracies.append(found[0])
        predictions.append(found[1])
    epochs = np.minimum(best.epochs + schedule.patience, epoch)
    return [
        Outcome(tuple(float(of[i]) for of in accuracies), predictions[0][i], int(epochs[i]))
        for i in range(len(seeds))
    ]


@dataclass(slots=True)
class _Best:
    """The best accuracies float64[M], their epochs int64[M], and the weights of those epochs."""

    accuracies: NDArray[np.float64]
    epochs: Ints
    weights: dict[str, Tensor]

    @classmethod
    def of(cls, models: Classifiers, num_models: int) -> _Best:
        weights = {name: found.clone() for name, found in models.state_dict().items()}
        return cls(np.full(num_models, -1.0), np.zeros(num_models, np.int64), weights)

    def is_rising(self, epoch: int, patience: int) -> NDArray[np.bool_]:
        """Return bool[M]: which models had a better epoch within the last `patience` ones."""
        return epoch - self.epochs < patience

    def note(
        self,
        models: Classifiers,
        epoch: int,
        is_rising: NDArray[np.bool_],
        accuracies: NDArray[np.float64],
    ) -> None:
        """Keep the weights of the models that became better, of those that are still trained."""
        better = np.flatnonzero(is_rising & (accuracies > self.accuracies))
        self.accuracies[better], self.epochs[better] = accuracies[better], epoch
        for name, found in models.state_dict().items():
            self.weights[name][better] = found[better]


def _shuffled(train: Tensor, chances: list[torch.Generator]) -> Tensor:
    """Shuffle each model's rows by its own generator."""
    num_rows = train.shape[1]
    orders = [torch.randperm(num_rows, generator=chance) for chance in chances]
    return train.gather(1, torch.stack(orders))


def _train(
    models: Classifiers, optimizer: torch.optim.Optimizer, rows: Rows, order: Tensor
) -> None:
    models.train()
    for places in torch.split(order, BATCH, dim=1):
        optimizer.zero_grad()
        logits, labels = models(rows.ids[places]), rows.labels[places]
        losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        torch.autograd.backward(losses.view(labels.shape).mean(1).sum())
        optimizer.step()


@torch.no_grad()
def _tested(models: Classifiers, rows: Rows, places: Tensor) -> tuple[NDArray[np.float64], Ints]:
    """Test the models; return accuracies, float64[M], and predictions, int64[M, n]."""
    models.eval()
    found = [models(rows.ids[some]).argmax(2) for some in torch.split(places, TEST_BATCH, dim=1)]
    predictions = torch.cat(found, dim=1)
    accuracies = (predictions == rows.labels[places]).double().mean(1)
    return accuracies.cpu().numpy(), predictions.cpu().numpy()
