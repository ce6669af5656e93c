"""Sequences in any form as one Batch, and the micro-batches that rows are embedded in.

Lists of strings cost a join; bytes, Arrow arrays, matrices and mapped files are taken as they lie.
Knows neither tokenizers nor torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch
from vocabularies.batch.string_join import Copy, Memory

__all__ = ["as_batch", "next_rows"]

_ARROW_OFFSETS = {
    "string": np.int32,
    "binary": np.int32,
    "large_string": np.int64,
    "large_binary": np.int64,
}


def as_batch(sequences: Any, memory: Memory | None = None, copy: Copy | None = None) -> Batch:
    """The rows of anything that holds sequences, joined.

    Args:
        sequences: a Batch; a list of str, or of bytes, bytearrays or memoryviews; an Arrow array
            of strings or binaries (`buffers()`), chunked or not; a matrix uint8[B, T] with one row
            for each sequence, such as a NumPy memmap or a tensor of the host; or a pair of values
            and offsets, of which the values are uint8[N] or any buffer, such as a mapped file, and
            the offsets int64[B + 1].
        memory: where strings are joined, if they are many; None: any will do.
        copy: copies them there; None: see `string_join.join_texts`.

    Raises:
        TypeError: it is nothing of this.
        ValueError: offsets do not fit, a string has a lone surrogate, or an Arrow row is null (the
            message names the row); a Batch has options.

    Values are not copied: they must stay as they are while the batch is in use.
    """
    if isinstance(sequences, Batch):
        if sequences.options != DEFAULT_OPTIONS:
            raise ValueError("the batch has options; only engines know what they mean")
        return _joined(sequences, memory, copy)
    if isinstance(sequences, str | bytes):
        raise TypeError("one sequence was given; give a list of them")
    if hasattr(sequences, "combine_chunks"):
        sequences = sequences.combine_chunks()
    if callable(getattr(sequences, "buffers", None)):
        return _of_arrow(sequences)
    sequences = _of_host(sequences)
    if isinstance(sequences, np.ndarray) and sequences.ndim == 2:
        return _of_matrix(sequences)
    if isinstance(sequences, tuple) and len(sequences) == 2 and not _is_sequence(sequences[1]):
        return _of_values(*map(_of_host, sequences))
    if isinstance(sequences, Sequence):
        return _of_list(sequences, memory, copy)
    if isinstance(sequences, np.ndarray) and sequences.ndim == 1:
        return _of_list(sequences.tolist(), memory, copy)
    raise TypeError(f"a {type(sequences).__name__} holds no sequences that are known here")


def _of_host(array: Any) -> Any:
    """A tensor of the host as NumPy's array of the same memory; anything else as it is."""
    is_foreign = hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray)
    return np.from_dlpack(array) if is_foreign else array


def _is_sequence(value: Any) -> bool:
    """Whether it is one, and no offsets."""
    return isinstance(value, str | bytes | bytearray) or (
        isinstance(value, memoryview) and value.format == "B"
    )


def _joined(batch: Batch, memory: Memory | None, copy: Copy | None) -> Batch:
    """A batch that remembers no strings, so that parts of it are not joined again."""
    if memory is not None:
        batch.join_in(memory, copy)
    return Batch(data=batch.data, offsets=batch.offsets)


def _of_list(rows: Sequence[Any], memory: Memory | None, copy: Copy | None) -> Batch:
    with suppress(TypeError):  # Asking each string for its type takes as long as joining all.
        if not rows or isinstance(rows[0], str):
            return _joined(Batch(rows), memory, copy)
    kinds = set(map(type, rows))
    if all(issubclass(kind, bytes | bytearray | memoryview) for kind in kinds):
        return Batch.from_bytes([_in_one_piece(row) for row in rows])
    first = type(rows[0])
    row = next((i for i, row in enumerate(rows) if type(row) is not first), 0)
    raise TypeError(f"row {row} is a {type(rows[row]).__name__}; all must be str, or all bytes")


def _in_one_piece(row: Any) -> Any:
    return row.tobytes() if isinstance(row, memoryview) and not row.c_contiguous else row


def _of_matrix(matrix: NDArray[Any]) -> Batch:
    if matrix.dtype not in (np.uint8, np.dtype("S1")):
        raise TypeError(f"a matrix of {matrix.dtype}; sequences are uint8")
    num_rows, length = matrix.shape
    data = np.ascontiguousarray(matrix).reshape(-1).view(np.uint8)
    offsets = np.arange(0, num_rows * length + 1, length) if length else np.zeros(num_rows + 1)
    return Batch(data=data, offsets=offsets.astype(np.int64, copy=False))


def _of_values(values: Any, offsets: Any) -> Batch:
    data = values if isinstance(values, np.ndarray) else np.frombuffer(values, np.uint8)
    offsets = np.asarray(offsets)
    if data.dtype != np.uint8 or data.ndim != 1 or offsets.ndim != 1:
        raise TypeError("values must be uint8[N] and offsets int64[B + 1]")
    if offsets.dtype.kind not in "iu" or not len(offsets):
        raise TypeError(f"offsets are {offsets.dtype}[{len(offsets)}]; they must be int64[B + 1]")
    offsets = offsets.astype(np.int64, copy=False)
    shrinking = np.flatnonzero(offsets[1:] < offsets[:-1])  # A difference may not fit 64 bits.
    if len(shrinking):
        raise ValueError(f"row {shrinking[0]} ends before it begins")
    return Batch(data=data, offsets=offsets)


def _of_arrow(array: Any) -> Batch:
    name = str(array.type)
    if name not in _ARROW_OFFSETS:
        raise TypeError(f"an Arrow array of {name}; strings or binaries hold sequences")
    if array.null_count:
        nulls = np.asarray(array.is_null())
        raise ValueError(f"row {int(np.flatnonzero(nulls)[0])} is null")
    if not len(array):
        return Batch.from_bytes([])
    _, offsets, values = array.buffers()
    begin, end = array.offset, array.offset + len(array) + 1
    places = np.frombuffer(offsets, _ARROW_OFFSETS[name])[begin:end]
    return _of_values(b"" if values is None else values, places)


def next_rows(
    counts: NDArray[np.int64],
    begin: int,
    least_width: int,
    max_ids: int,
    max_rows: int,
    group: int = 1,
) -> int:
    """The row behind the next ones that are embedded together: as many as fit, at least one.

    Each is padded to the longest, so b rows of equal length T' are min(max_rows, max(1,
    max_ids // T')), as in DNATok's Algorithm 2.

    Args:
        counts: int64[B], ids of each row.
        begin: the first row.
        least_width: every row is padded to so many ids at least.
        max_ids: of a micro-batch; a single row may have more.
        max_rows: of a micro-batch.
        group: micro-batches that are taken at once, where no row is longer than the first.
    """
    first = max(int(counts[begin]), least_width, 1)
    num_rows = max(1, min(max_rows, max_ids // first))
    nearest = counts[begin : begin + group * num_rows]
    if int(nearest.max()) <= first:
        return begin + len(nearest)
    nearest = nearest[:num_rows]
    widths = np.maximum(np.maximum.accumulate(nearest), least_width)
    fits = widths * np.arange(1, len(nearest) + 1) <= max_ids
    # Neither factor shrinks from row to row, so what fits is a beginning.
    return begin + max(1, int(np.count_nonzero(fits)))
