"""Small models with random weights and the kinds of layers of the models that DNATok names.

Only the time of their layers matters, not their results. The models are far smaller than the
published ones, so that the tokenizer's share of the time is larger.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LAYERS = 256, 8, 4


class Attention(nn.Module):
    """Self-attention with rotary positions, or with ALiBi's slopes over distances."""

    def __init__(self, has_alibi: bool = False) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.has_alibi = has_alibi

    def forward(self, x: Tensor) -> Tensor:
        """Attend in all directions."""
        rows, length, _ = x.shape
        split = self.into(x).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        bias = _slopes(length, x) if self.has_alibi else None
        if bias is None:
            query, key = _rotated(query), _rotated(key)
        attend: Any = functional.scaled_dot_product_attention
        mixed = attend(query, key, value, attn_mask=bias)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return out


def _rotated(x: Tensor) -> Tensor:
    """Turn pairs of numbers by angles that grow with the position."""
    length, half = x.shape[-2], x.shape[-1] // 2
    rates = 10_000 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(length, device=x.device)[:, None] * rates
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def _slopes(length: int, x: Tensor) -> Tensor:
    """Make ALiBi's bias [HEADS, length, length]."""
    places = torch.arange(length, device=x.device)
    distance = (places[:, None] - places).abs()
    heads = torch.arange(1, HEADS + 1, device=x.device)
    slopes = 2.0 ** (-8 * heads / HEADS)
    return (-slopes[:, None, None] * distance).to(x.dtype)


class LongConvolution(nn.Module):
    """Hyena's operator: gates around a convolution as long as the row, by Fourier transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.short = nn.Conv1d(3 * WIDTH, 3 * WIDTH, 3, padding=2, groups=3 * WIDTH)
        self.filter = nn.Sequential(nn.Linear(3, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve with a filter that a small network makes of positions."""
        length = x.shape[1]
        mixed = self.short(self.into(x).transpose(1, 2))[..., :length]
        gate, value, last = mixed.chunk(3, 1)
        places = torch.linspace(0, 1, length, device=x.device, dtype=x.dtype)[:, None]
        features = torch.cat(
            (places, (2 * math.pi * places).sin(), (2 * math.pi * places).cos()), 1
        )
        kernel = (self.filter(features) * torch.exp(-4 * places)).T.float()
        spectrum = torch.fft.rfft((gate * value).float(), 2 * length)
        long = torch.fft.irfft(spectrum * torch.fft.rfft(kernel, 2 * length), 2 * length)
        out: Tensor = self.out((last * long[..., :length].to(x.dtype)).transpose(1, 2))
        return out


class GatedLinear(nn.Module):
    """A gated linear unit: SwiGLU, or GEGLU."""

    def __init__(self, has_gelu: bool = False) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 8 * WIDTH // 3 * 2), nn.Linear(8 * WIDTH // 3, WIDTH)
        self.activation = functional.gelu if has_gelu else functional.silu

    def forward(self, x: Tensor) -> Tensor:
        """Gate and project."""
        gate, value = self.into(x).chunk(2, -1)
        out: Tensor = self.out(self.activation(gate) * value)
        return out


class Model(nn.Module):
    """An embedding and layers of mixers and gated linear units, each with a norm before it.

    Attributes:
        embedding: of ids.
    """

    def __init__(self, num_ids: int, mixers: list[nn.Module], has_gelu: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_ids, WIDTH)
        self.mixers = nn.ModuleList(mixers)
        self.linear = nn.ModuleList(GatedLinear(has_gelu) for _ in mixers)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * len(mixers) + 1))

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the last layer's numbers."""
        x = self.embedding(ids)
        for number, (mixer, linear) in enumerate(zip(self.mixers, self.linear, strict=True)):
            x = x + mixer(self.norms[2 * number](x))
            x = x + linear(self.norms[2 * number + 1](x))
        out: Tensor = self.norms[-1](x)
        return out


def make_model(name: str, num_ids: int, device: str) -> Model:
    """Make a model with random weights: "nt_v2", "hyenadna", "evo2" or "dnabert2"."""
    torch.manual_seed(42)
    mixers: list[nn.Module]
    match name:
        case "hyenadna":
            mixers = [LongConvolution() for _ in range(LAYERS)]
        case "evo2":  # StripedHyena: mostly convolutions, some attention.
            mixers = [LongConvolution(), LongConvolution(), LongConvolution(), Attention()]
        case "dnabert2":
            mixers = [Attention(has_alibi=True) for _ in range(LAYERS)]
        case _:
            mixers = [Attention() for _ in range(LAYERS)]
    model = Model(num_ids, mixers, has_gelu=name == "dnabert2").to(device, torch.bfloat16)
    return model.eval().requires_grad_(False)
