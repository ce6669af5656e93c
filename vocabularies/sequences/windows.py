"""Cuts the tokens of a sequence into overlapping windows, as input of models.

The input is ids and their positions; the result is rectangular arrays. This module does not depend
on vocabularies.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIELDS = "input_ids", "attention_mask", "position_ids"


@dataclass(frozen=True, slots=True)
class Windows:
    """W windows of C = len(prefix) + window columns; the caller owns every array.

    Attributes:
        input_ids: int32[W, C].
        attention_mask: int8[W, C], 0 over padding.
        position_ids: int64[W, C], the position of each token's first base in the whole sequence; 0
            for prefix and padding.
        channel: float32[W, C], the channel's value at that base; 0.0 for prefix and padding. None
            if no channel was given.
        starts: int64[W], the number of the first token of each window.
        kernel_time: the seconds that an engine took to compute the tokens; None if not measured.
    """

    input_ids: NDArray[np.int32]
    attention_mask: NDArray[np.int8]
    position_ids: NDArray[np.int64]
    channel: NDArray[np.float32] | None
    starts: NDArray[np.int64]
    kernel_time: float | None = None

    def fields(self, channel_name: str = "channel") -> dict[str, NDArray[Any]]:
        """Return {name: array} for the inputs of a model; the channel, if any, is `channel_name`.

        Example: input_ids, attention_mask, position_ids and het_values for the mtDNA model.
        """
        return named_fields(self, channel_name)


def named_fields(windows: Any, channel_name: str) -> dict[str, Any]:
    """Return {name: array} as `Windows.fields` does, for windows in any kind of memory."""
    named = {name: getattr(windows, name) for name in FIELDS}
    return named if windows.channel is None else {**named, channel_name: windows.channel}


def token_positions(
    spans: NDArray[np.int64], *, circular: bool, reverse_complement: bool
) -> NDArray[np.int64]:
    """Return the base at which each token of a sequence begins, int64[T].

    It is the first base that the token covers, counted along the sequence as it was sent. Spans end
    at the junction of a circle. On the other strand, this cuts the first bases of the k-mers over
    the junction, so the places of these are computed from the ends of their spans.

    Args:
        spans: int64[T, 2], the begin and end of each token.
        circular: whether the sequence is circular.
        reverse_complement: whether the tokens are those of the other strand.

    Example, k = 3: the other strand of a circle of 5 bases has the spans 2 5, 1 4, 0 3, 0 2, 0 1
    and the positions 2 1 0 4 3.
    """
    begins, ends = spans[:, 0], spans[:, 1]
    if not (circular and reverse_complement) or len(spans) == 0:
        return begins
    length = int(ends.max())
    if length != len(spans):  # Some k-mers are several tokens, which may be shorter.
        return begins
    k = int((ends - begins).max())
    positions: NDArray[np.int64] = (ends - k) % length
    return positions


def make_windows(
    ids: NDArray[np.integer[Any]],
    positions: NDArray[np.int64],
    *,
    window: int,
    stride: int,
    circular: bool,
    pad_id: int,
    prefix: Sequence[int] = (),
    channel: NDArray[np.float32] | None = None,
    numbers: range | None = None,
) -> Windows:
    """Make the windows that begin at tokens 0, stride, 2 * stride ... below T.

    If the sequence is circular, token t is token t modulo T, and nothing is padded. Otherwise the
    last windows are padded on the right. If the stride is larger than the window, some tokens are
    in no window. A sequence without tokens has no windows.

    Args:
        ids: int32[T], tokens of the sequence without begin and end tokens.
        positions: int64[T], the base at which each token begins.
        window: the number of tokens in a window, without the prefix.
        stride: the number of tokens from the begin of one window to the begin of the next.
        circular: whether windows wrap instead of being padded.
        pad_id: the id of the padding.
        prefix: the ids in front of every window, such as [CLS].
        channel: float32[L], one value for each base, such as heteroplasmy.
        numbers: the numbers of the windows to make; None: all windows.

    Raises:
        TypeError: window or stride is not an integer.
        ValueError: window or stride is below 1, or the lengths of arrays do not fit together.

    Source: mtdna-foundation-model, mtdna_fm/data/dataset.py (65 windows for 16,569 tokens at
    stride 256, wrapping, absolute positions) and docs/02_tokenization.md ([CLS] before each
    window; the position is not stated there and is 0 here, as for padding).

    Example: ids 5 6 7, window 2 and stride 2 give the windows 5 6 and 7 pad, or, if circular, 5 6
    and 7 5.
    """
    window, stride = operator.index(window), operator.index(stride)
    _check(ids, positions, window, stride, channel)
    num_tokens, num_prefix = len(ids), len(prefix)
    starts = np.arange(0, num_tokens, stride, dtype=np.int64)
    if numbers is not None:
        starts = starts[numbers.start : numbers.stop : numbers.step]
    index = starts[:, None] + np.arange(window, dtype=np.int64)
    is_token = np.ones_like(index, np.bool_) if circular else index < num_tokens
    index = index % max(num_tokens, 1) if circular else np.minimum(index, num_tokens - 1)
    shape = (len(starts), num_prefix + window)

    input_ids = np.empty(shape, np.int32)
    input_ids[:, :num_prefix] = np.asarray(prefix, np.int32)
    input_ids[:, num_prefix:] = np.where(is_token, ids[index], pad_id)
    attention_mask = np.ones(shape, np.int8)
    attention_mask[:, num_prefix:] = is_token
    position_ids = np.zeros(shape, np.int64)
    position_ids[:, num_prefix:] = np.where(is_token, positions[index], 0)
    values = None
    if channel is not None:
        values = np.zeros(shape, np.float32)
        values[:, num_prefix:] = np.where(is_token, channel[positions[index]], 0.0)
    return Windows(input_ids, attention_mask, position_ids, values, starts)


def _check(
    ids: NDArray[np.integer[Any]],
    positions: NDArray[np.int64],
    window: int,
    stride: int,
    channel: NDArray[np.float32] | None,
) -> None:
    if window < 1:
        raise ValueError(f"window is {window}; it must be at least 1")
    if stride < 1:
        raise ValueError(f"stride is {stride}; it must be at least 1")
    if len(positions) != len(ids):
        raise ValueError(f"there are {len(positions)} positions for {len(ids)} ids")
    if channel is not None and len(ids):
        first, last = int(positions.min()), int(positions.max())
        if first < 0 or last >= len(channel):
            raise ValueError(
                f"positions go from {first} to {last}; the channel has {len(channel)} values"
            )
