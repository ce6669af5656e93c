"""Derives the layout of windows from options and a vocabulary.

All calls and commands that cut windows use it, so that they refuse the same options.
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
"""Where the k-mers over the junction are placed: after the others, or before them."""

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
    """The layout of the windows of a vocabulary's sequences.

    Attributes:
        window: the number of tokens in a window, without the prefix.
        stride: the number of tokens from the begin of one window to the begin of the next.
        circular: whether the sequences are circular.
        pad_id: the id of the padding of a short window; 0 if nothing is padded.
        prefix: the ids in front of each window, such as [CLS].
        num_moved: the number of tokens that are moved from the end of a sequence to its front; if
            it is negative, from the front to the end.
    """

    window: int
    stride: int
    circular: bool
    pad_id: int
    prefix: tuple[int, ...]
    num_moved: int

    def in_order(self, values: NDArray[Item]) -> NDArray[Item]:
        """Move the values of the tokens over the junction to the place that the layout requires."""
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
            ids: [T], the ids of the sequence in the vocabulary's order.
            positions: int64[T], the base at which each token begins.
            channel: float32[L], one value for each base.
            numbers: the numbers of the windows to cut; None: all windows.
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
    """Derive the layout of windows from options and a vocabulary.

    Args:
        vocabulary: the vocabulary, which has the ids of padding and [CLS] and the defaults of
            options.
        window: the number of tokens in a window, without [CLS].
        stride: the number of tokens from the begin of one window to the begin of the next.
        circular: whether sequences are circular; None: the vocabulary's default.
        junction: where the k-mers over the junction are placed; None: the vocabulary's default.
        add_cls: whether [CLS] is put before each window.
        padding: whether the last windows of a linear sequence are padded.

    Raises:
        LayoutError: the vocabulary lacks a token or does not support the order, or a junction is
            given for linear sequences.
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
        raise LayoutError("must not be given, because the sequence is not circular", "junction")
    num_moved = _count_moved(model, junction) if isinstance(model, Kmers) else 0
    return WindowLayout(window, stride, circular, pad_id, prefix, num_moved)


def _count_moved(model: Kmers, junction: Junction | None) -> int:
    """Return the number of k-mers over the junction to move to the front; negative: to the end.

    Raises:
        LayoutError: a k-mer may become several tokens, so the number is unknown.
    """
    if junction is None or junction == model.junction:
        return 0
    if model.whitespace == "words":
        message = "must not be given, because k-mers of this vocabulary may be several tokens"
        raise LayoutError(message, "junction")
    return model.k - 1 if junction == "prepend" else 1 - model.k
