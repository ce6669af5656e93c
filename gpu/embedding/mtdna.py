"""The mtDNA model's data set and the parts of its embedding, for torch.

Source: mtdna-foundation-model, docs/02_tokenization.md, mtdna_fm/data/dataset.py and
mtdna_fm/model/embeddings.py.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from vocabularies.sequences.mtdna import KmerVocabulary, tokenize_sequence
from vocabularies.sequences.window_layout import Junction
from vocabularies.sequences.windows import make_windows

GENOME_LENGTH = 16_569
"""Bases of the human mitochondrial reference genome."""


class MtDNADataset(Dataset[dict[str, Tensor]]):
    """The overlapping windows of genomes, one after another.

    An item has the tensors of one window: input_ids, attention_mask and position_ids int64, and
    het_values float32, each of `window_size` tokens, with [CLS] one more.

    Attributes:
        num_genomes: the number of genomes.
    """

    def __init__(
        self,
        sequences: Iterable[str],
        vocabulary: KmerVocabulary,
        *,
        window_size: int = 512,
        stride: int = 256,
        circular: bool = True,
        junction: Junction = "append",
        add_cls: bool = False,
        het_level_vectors: Iterable[ArrayLike | None] | None = None,
        labels: Sequence[int | None] | None = None,
    ) -> None:
        """Tokenize the genomes; their windows are cut when they are read.

        Args:
            sequences: the bases of each genome; genomes may have different lengths.
            vocabulary: gives the ids of k-mers.
            window_size: tokens in a window, [CLS] not counted.
            stride: tokens from one window's begin to the next one's.
            circular: k-mers and windows wrap; else the last windows are padded with [PAD].
            junction: the order of the k-mers over the junction, as for `tokenize_sequence`.
            add_cls: put [CLS] before every window, as the model's documentation says.
            het_level_vectors: the heteroplasmy of each base of each genome, from 0 to 1; None, or
                None for one genome: zeros.
            labels: a number for each genome, which its windows have as `labels`; None: -1.

        Raises:
            TypeError, ValueError: as `tokenize_sequence`; the message has the genome's number.
            ValueError: there are more or fewer vectors or labels than genomes.
        """
        self._window, self._stride = operator.index(window_size), operator.index(stride)
        if self._window < 1 or self._stride < 1:
            raise ValueError(
                f"window_size is {window_size} and stride {stride}; both must be at least 1"
            )
        self._circular = circular
        self._pad_id = vocabulary.role_id("pad")
        self._prefix = (vocabulary.role_id("cls"),) if add_cls else ()
        self._ids: list[NDArray[Any]] = []
        self._positions: list[NDArray[np.int64]] = []
        self._levels: list[NDArray[np.float32] | None] = []
        dtype = np.uint16 if len(vocabulary) <= 1 << 16 else np.int32
        vectors = None if het_level_vectors is None else iter(het_level_vectors)
        for number, sequence in enumerate(sequences):
            levels = None if vectors is None else _next_vector(vectors, number)
            try:
                tokens = tokenize_sequence(
                    sequence,
                    vocabulary,
                    max_seq_len=None,
                    circular=circular,
                    junction=junction,
                    het_levels=levels,
                )
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"genome {number}: {error}") from error
            self._ids.append(tokens["input_ids"].astype(dtype))
            self._positions.append(self._shared_positions(tokens["position_ids"]))
            self._levels.append(None if levels is None else np.asarray(levels, np.float32))
        if vectors is not None and any(True for _ in vectors):
            raise ValueError(f"there are more het_level_vectors than {self.num_genomes} genomes")
        if labels is not None and len(labels) != self.num_genomes:
            raise ValueError(f"there are {len(labels)} labels for {self.num_genomes} genomes")
        self._labels = None if labels is None else [*labels]
        counts = [-(-len(ids) // self._stride) for ids in self._ids]
        self._first_windows = np.cumsum([0, *counts])

    def _shared_positions(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of the genome before if they are equal, which saves memory."""
        if self._positions and np.array_equal(self._positions[-1], positions):
            return self._positions[-1]
        return positions

    @property
    def num_genomes(self) -> int:
        """The number of genomes."""
        return len(self._ids)

    def genome_of(self, number: int) -> int:
        """Return the number of the genome that holds a window."""
        return int(np.searchsorted(self._first_windows, number, "right")) - 1

    def __len__(self) -> int:
        """Count the windows of all genomes."""
        return int(self._first_windows[-1])

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        """Cut one window.

        Raises:
            IndexError: there is no such window.
        """
        index = operator.index(number) + (len(self) if number < 0 else 0)
        if not 0 <= index < len(self):
            raise IndexError(f"window {number} of {len(self)}")
        genome = self.genome_of(index)
        ids, positions, levels = self._ids[genome], self._positions[genome], self._levels[genome]
        start = (index - int(self._first_windows[genome])) * self._stride
        end = start + self._window if self._circular else min(start + self._window, len(ids))
        places = np.arange(start, end) % len(ids)
        cut = make_windows(
            ids[places],
            positions[places],
            window=self._window,
            stride=self._window,
            circular=False,
            pad_id=self._pad_id,
            prefix=self._prefix,
            channel=levels,
        )
        channel = np.zeros(cut.input_ids.shape, np.float32) if cut.channel is None else cut.channel
        item = {
            "input_ids": torch.from_numpy(cut.input_ids[0].astype(np.int64)),
            "attention_mask": torch.from_numpy(cut.attention_mask[0].astype(np.int64)),
            "position_ids": torch.from_numpy(cut.position_ids[0]),
            "het_values": torch.from_numpy(channel[0]),
        }
        if self._labels is not None:
            label = self._labels[genome]
            item["labels"] = torch.tensor(-1 if label is None else label)
        return item


def _next_vector(vectors: Iterator[ArrayLike | None], number: int) -> ArrayLike | None:
    try:
        return next(vectors)
    except StopIteration:
        raise ValueError(f"there is no het_level_vector for genome {number}") from None


class CircularPositionalEncoding(nn.Module):
    """A fixed encoding of positions on a circle, by sines and cosines of the angle of each base.

    Pair i has the sine and the cosine of 2 pi position / genome_length, times a frequency. The
    published frequencies are 1 / 10000^(2i / hidden_size). With them, only the first pair has the
    same values at position 0 and at genome_length; the others are discontinuous at the junction.
    With `whole_turns`, the frequencies are 1, 2, 3 ..., so every pair is continuous there.

    Attributes:
        pe: float32[genome_length, hidden_size], the encoding of each position.
    """

    pe: Tensor

    def __init__(
        self,
        hidden_size: int,
        genome_length: int = GENOME_LENGTH,
        *,
        whole_turns: bool = False,
    ) -> None:
        """Compute the encoding of every position.

        Raises:
            ValueError: hidden_size is odd or below 2, or genome_length is below 1.
        """
        super().__init__()
        if hidden_size < 2 or hidden_size % 2:
            raise ValueError(f"hidden_size is {hidden_size}; it must be even, and at least 2")
        if genome_length < 1:
            raise ValueError(f"genome_length is {genome_length}; it must be at least 1")
        pairs = torch.arange(hidden_size // 2, dtype=torch.float64)
        frequencies = pairs + 1 if whole_turns else 10000 ** (-2 * pairs / hidden_size)
        positions = torch.arange(genome_length, dtype=torch.float64)
        angles = (2 * math.pi / genome_length) * positions[:, None] * frequencies
        encoding = torch.stack([angles.sin(), angles.cos()], dim=-1)
        self.register_buffer("pe", encoding.reshape(genome_length, hidden_size).float())

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return the encodings [..., T, hidden_size] of positions [..., T], which wrap."""
        return self.pe[position_ids % len(self.pe)]


class HeteroplasmyProjection(nn.Module):
    """Projects the heteroplasmy of each token into the embedding: Linear(1, h), then LayerNorm.

    A level of 0 gives the LayerNorm of the linear layer's bias, which is not 0.
    """

    def __init__(self, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.het_projection = nn.Linear(1, hidden_size)
        self.het_norm = nn.LayerNorm(hidden_size, eps=eps)

    def forward(self, het_values: Tensor) -> Tensor:
        """Return the projections [..., T, hidden_size] of levels [..., T]."""
        projected: Tensor = self.het_norm(self.het_projection(het_values.unsqueeze(-1)))
        return projected
