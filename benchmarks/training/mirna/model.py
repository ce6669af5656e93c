"""The classifier of the GeneticBPE paper: a 4-layer transformer, 128 wide, 4 heads.

Several are stacked, one per seed, each with weights of its own: a batch is small, so that launches
and not arithmetic take a GPU's time, and one launch serves them all. The paper leaves these choices
open: learnt positions, mean over the tokens, 512 wide inside, dropout 0.1.

Shapes: M models, B rows, L tokens, W = 128 wide; W is last, and M first.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, INNER, DROPOUT = 4, 128, 4, 512, 0.1


class Classifiers(nn.Module):
    """One model for each generator, which draws its weights independently of other models."""

    def __init__(
        self, chances: list[torch.Generator], num_ids: int, max_length: int, num_classes: int
    ) -> None:
        """Draw the weights; `num_ids` does not count the padding, whose id is 0."""
        super().__init__()
        self.tokens = _normal(chances, num_ids + 1, WIDTH)
        self.places = _normal(chances, max_length, WIDTH)
        self.layers = nn.ModuleList(_Layer(chances) for _ in range(LAYERS))
        self.out = _Linear(chances, WIDTH, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits, float32[M, B, classes], of ids int64[M, B, L], padded with 0."""
        models, rows, length = ids.shape
        first = torch.arange(models, device=ids.device) * self.tokens.shape[1]
        found = functional.embedding(ids + first[:, None, None], self.tokens.flatten(0, 1))
        found = (found + self.places[:, None, :length]).flatten(1, 2)
        is_token = ids != 0
        mask = is_token.view(models * rows, 1, 1, length)
        for layer in self.layers:
            found = layer(found, mask)
        weights = is_token.unsqueeze(-1).to(found.dtype)
        summed = (found.view(models, rows, length, WIDTH) * weights).sum(2)
        logits: Tensor = self.out(summed / weights.sum(2))
        return logits


class _Layer(nn.Module):
    """A torch.nn.TransformerEncoderLayer with its defaults, for a stack of models."""

    def __init__(self, chances: list[torch.Generator]) -> None:
        super().__init__()
        self.heads = _Linear(chances, WIDTH, 3 * WIDTH, bound=math.sqrt(6 / (4 * WIDTH)))
        self.joined = _Linear(chances, WIDTH, WIDTH)
        self.wide = _Linear(chances, WIDTH, INNER)
        self.narrow = _Linear(chances, INNER, WIDTH)
        self.norms = nn.ModuleList(_Norm(len(chances)) for _ in range(2))
        for linear in (self.heads, self.joined):
            nn.init.zeros_(linear.bias)

    def forward(self, found: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer to float32[M, B * L, W]; mask: bool[M * B, 1, 1, L], True for tokens."""
        found = self.norms[0](found + self._dropped(self._attended(found, mask)))
        wide = self._dropped(functional.relu(self.wide(found)))
        normed: Tensor = self.norms[1](found + self._dropped(self.narrow(wide)))
        return normed

    def _attended(self, found: Tensor, mask: Tensor) -> Tensor:
        heads = self.heads(found).view(len(mask), mask.shape[-1], 3, HEADS, WIDTH // HEADS)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4).unbind()
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, mask, DROPOUT if self.training else 0.0
        )
        joined: Tensor = self.joined(attended.transpose(1, 2).reshape(found.shape))
        return joined

    def _dropped(self, found: Tensor) -> Tensor:
        return functional.dropout(found, DROPOUT, self.training)


class _Linear(nn.Module):
    def __init__(
        self, chances: list[torch.Generator], width: int, out: int, *, bound: float | None = None
    ) -> None:
        super().__init__()
        usual = 1 / math.sqrt(width)
        self.weight = _uniform(chances, usual if bound is None else bound, width, out)
        self.bias = _uniform(chances, usual, out)

    def forward(self, found: Tensor) -> Tensor:
        return torch.baddbmm(self.bias.unsqueeze(1), found, self.weight)


class _Norm(nn.Module):
    def __init__(self, models: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(models, 1, WIDTH))
        self.shift = nn.Parameter(torch.zeros(models, 1, WIDTH))

    def forward(self, found: Tensor) -> Tensor:
        return torch.addcmul(self.shift, functional.layer_norm(found, (WIDTH,)), self.scale)


def _normal(chances: list[torch.Generator], *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.stack([torch.randn(shape, generator=chance) for chance in chances]))


def _uniform(chances: list[torch.Generator], bound: float, *shape: int) -> nn.Parameter:
    drawn = torch.stack([torch.rand(shape, generator=chance) for chance in chances])
    return nn.Parameter((2 * drawn - 1) * bound)
