"""Decides how the windows of sequences are made, by options and a vocabulary.

The calls and commands that cut windows share it, so that they refuse the same options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.windows import Windows, make_windows

Junction = Literal["append", "prepend"]
"""Where the k-mers over the junction stand: behind the others, or in front of them."""

Item = TypeVar("Item", bound=np.generic)


class LayoutError(ValueError):
    """An option of windows does not fit the vocabulary or another option.

    Attributes:
        option: the option's name.
    """

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class WindowLayout:
    """How windows are made.

    Attributes:
        window: tokens in a window, the prefix not counted.
        stride: tokens from one window's begin to the next one's.
        circular: whether the sequences wrap.
        pad_id: the id behind the last token of a short window; 0 if nothing is padded.
        prefix: the ids before the tokens of each window.
        num_moved: how many tokens move from the end of a sequence to its front, or from the front
            to the end where it is negative.
    """

    window: int
    stride: int
    circular: bool
    pad_id: int
    prefix: tuple[int, ...]
    num_moved: int

    def in_order(self, values: NDArray[Item]) -> NDArray[Item]:
        """Put one value for each token of a sequence into the order of the junction."""
        return np.roll(values, self.num_moved, axis=0) if self.num_moved else values

    def cut(
        self,
        ids: NDArray[np.integer[Any]],
        positions: NDArray[np.int64],
        channel: NDArray[np.float32] | None = None,
        numbers: range | None = None,
    ) -> Windows:
        """Cut the tokens of one sequence into windows, as `make_windows` does.

        Args:
            ids: [T], the ids of the sequence in the vocabulary's own order.
            positions: int64[T], the base at which each token begins.
            channel: float32[L], one value for each base.
            numbers: which windows to cut; None: all.
        """
        return make_windows(
            self.in_order(ids),
            self.in_order(positions),
            window=self.window,
            stride=self.stride,
            circular=self.circular,
            pad_id=self.pad_id,
            prefix=self.prefix,
            channel=channel,
            numbers=numbers,
        )


def make_layout(
    vocabulary: Vocabulary,
    *,
    window: int,
    stride: int,
    circular: bool | None = None,
    junction: Junction | None = None,
    add_cls: bool = False,
    padding: bool = True,
) -> WindowLayout:
    """Decide how the windows of a vocabulary's sequences are made.

    Args:
        vocabulary: gives the ids of padding and [CLS], and what the options leave open.
        window: tokens in a window, [CLS] not counted.
        stride: tokens from one window's begin to the next one's.
        circular: whether sequences wrap; None: as the vocabulary says.
        junction: where the k-mers over the junction of a circle stand; None: as the vocabulary
            says.
        add_cls: put [CLS] before each window.
        padding: the last windows of a linear sequence are padded.

    Raises:
        LayoutError: the vocabulary has no such token or order, or a linear sequence has no
            junction.
    """
    model = vocabulary.model
    if circular is None:
        circular = isinstance(model, Kmers) and model.circular
    pad_id = vocabulary.roles.get("pad") if padding else 0
    if pad_id is None:
        raise LayoutError("the vocabulary has no padding token for windows", "vocabulary")
    prefix: tuple[int, ...] = ()
    if add_cls:
        if "cls" not in vocabulary.roles:
            raise LayoutError("the vocabulary has no [CLS] token", "add_cls")
        prefix = (vocabulary.roles["cls"],)
    if junction is not None and not circular:
        raise LayoutError("only a circular sequence has a junction", "junction")
    num_moved = _count_moved(model, junction) if isinstance(model, Kmers) else 0
    return WindowLayout(window, stride, circular, pad_id, prefix, num_moved)


def _count_moved(model: Kmers, junction: Junction | None) -> int:
    """Return how many k-mers move to the front, negative for the end: all over the junction.

    Raises:
        LayoutError: a k-mer may be several tokens, so that their number is not known.
    """
    if junction is None or junction == model.junction:
        return 0
    if model.whitespace == "words":
        message = "the vocabulary's k-mers may be several tokens, which stay in their order"
        raise LayoutError(message, "junction")
    return model.k - 1 if junction == "prepend" else 1 - model.k
