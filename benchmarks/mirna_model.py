"""The classifier of the GeneticBPE paper: a 4-layer transformer, 128 wide, 4 heads, Adam 3e-4.

What the paper leaves open: learnt positions, mean over the tokens, 512 wide inside, dropout 0.1,
batches of 128; training ends when the accuracy on the validation part has not risen for a while,
and the weights of the best epoch count.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["Outcome", "Rows", "Schedule", "fit"]

LAYERS, WIDTH, HEADS, INNER, DROPOUT = 4, 128, 4, 512, 0.1
LEARNING_RATE, BATCH, TEST_BATCH = 3e-4, 128, 2048

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """At most so many epochs; ended when there were `patience` of them without a better one."""

    max_epochs: int = 60
    patience: int = 8


@dataclass(frozen=True, slots=True)
class Rows:
    """Token ids, int64[B, L], from 1 on, 0 behind the end of a row; labels int64[B]."""

    ids: torch.Tensor
    labels: torch.Tensor

    @classmethod
    def of(cls, ids: Ints, offsets: Ints, labels: Ints, device: str) -> Rows:
        """The rows of ids int64[T] with offsets int64[B + 1], padded."""
        lengths = np.diff(offsets)
        padded = np.zeros((len(lengths), max(1, lengths.max(initial=0))), np.int64)
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = ids + 1
        return cls(torch.from_numpy(padded).to(device), torch.from_numpy(labels).to(device))

    def take(self, places: Ints) -> Rows:
        """Some of the rows."""
        chosen = torch.from_numpy(places).to(self.ids.device)
        return Rows(self.ids[chosen], self.labels[chosen])


@dataclass(frozen=True, slots=True)
class Outcome:
    """Accuracy of each test asked for, predictions of the first, and how many epochs it took."""

    accuracies: tuple[float, ...]
    predictions: Ints
    epochs: int


class _Classifier(nn.Module):
    def __init__(self, num_ids: int, max_length: int, num_classes: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(num_ids + 1, WIDTH, padding_idx=0)
        self.places = nn.Embedding(max_length, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, DROPOUT, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, num_classes)

    def forward(self, ids: torch.Tensor) -> Any:
        is_padding = ids == 0
        found = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        found = self.layers(found, src_key_padding_mask=is_padding)
        weights = (~is_padding).unsqueeze(-1).to(found.dtype)
        return self.out((found * weights).sum(1) / weights.sum(1))


def fit(
    train: Rows,
    validation: Rows,
    tests: list[Rows],
    *,
    num_ids: int,
    num_classes: int,
    seed: int,
    schedule: Schedule,
) -> Outcome:
    """Train a classifier and measure it on each of `tests`."""
    torch.manual_seed(seed)
    device = train.ids.device
    length = max(rows.ids.shape[1] for rows in (train, validation, *tests))
    model = _Classifier(num_ids, length, num_classes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    loss_of = nn.CrossEntropyLoss()
    best, best_state, epoch, best_epoch = -1.0, model.state_dict(), 0, 0
    while epoch < schedule.max_epochs and epoch - best_epoch < schedule.patience:
        epoch += 1
        model.train()
        for places in torch.randperm(len(train.labels)).to(device).split(BATCH):
            optimizer.zero_grad()
            loss_of(model(train.ids[places]), train.labels[places]).backward()
            optimizer.step()
        accuracy = _accuracy(_predictions(model, validation), validation)
        if accuracy > best:
            best, best_epoch, best_state = accuracy, epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_state)
    found = [_predictions(model, rows) for rows in tests]
    accuracies = tuple(_accuracy(*pair) for pair in zip(found, tests, strict=True))
    return Outcome(accuracies, found[0].cpu().numpy(), epoch)


@torch.no_grad()
def _predictions(model: nn.Module, rows: Rows) -> torch.Tensor:
    model.eval()
    return torch.cat([model(ids).argmax(1) for ids in rows.ids.split(TEST_BATCH)])


def _accuracy(predictions: torch.Tensor, rows: Rows) -> float:
    return float((predictions == rows.labels).float().mean())
