"""Converts sequences in any supported form to a Batch.

Lists of strings are joined; buffers of bytes, Arrow arrays, matrices and mapped files are not
copied. This module uses neither tokenizers nor torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Copy, Memory

_ARROW_OFFSETS = {
    "string": np.int32,
    "binary": np.int32,
    "large_string": np.int64,
    "large_binary": np.int64,
}


BLOCK_ROWS = 1 << 16
"""The largest number of rows of a generator that are read at once."""

BLOCK_BYTES = 1 << 26
"""The number of characters or bytes after which no more rows of a generator are read at once."""


def as_batch(sequences: Any, memory: Memory | None = None, copy: Copy | None = None) -> Batch:
    """Join the rows of sequences in any supported form.

    Args:
        sequences: a Batch; a list of str, or of bytes, bytearrays or memoryviews, or a generator
            of them; an Arrow array of strings or binaries (`buffers()`), chunked or not; a column
            of pandas or polars; a matrix uint8[B, T] with one row
            for each sequence, such as a NumPy memmap or a tensor of the host; or a pair of values
            and offsets, of which the values are uint8[N] or any buffer, such as a mapped file, and
            the offsets int64[B + 1].
        memory: allocates the memory in which many strings are joined; None: NumPy does.
        copy: copies strings there; None: see `batch.join_texts`.

    Raises:
        TypeError: the sequences have none of these forms.
        ValueError: offsets do not fit, a string has a lone surrogate, an Arrow row is null (the
            message names the row), or a Batch has options.

    Values are not copied, so they must not change while the batch is in use.
    """
    if isinstance(sequences, Batch):
        if sequences.options != DEFAULT_OPTIONS:
            raise ValueError("the batch has options; only engines know what they mean")
        return _join(sequences, memory, copy)
    if isinstance(sequences, str | bytes):
        raise TypeError("one sequence was given; give a list of them")
    if isinstance(sequences, Iterator):
        return _from_list(list(sequences), memory, copy)
    if type(sequences).__module__.partition(".")[0] in ("pandas", "polars"):
        sequences = _from_column(sequences)
    if hasattr(sequences, "combine_chunks"):
        sequences = sequences.combine_chunks()
    if callable(getattr(sequences, "buffers", None)):
        return _from_arrow(sequences)
    sequences = _to_numpy(sequences)
    if isinstance(sequences, np.ndarray) and sequences.ndim == 2:
        return _from_matrix(sequences)
    if isinstance(sequences, tuple) and len(sequences) == 2 and not _is_sequence(sequences[1]):
        values, offsets = sequences
        return _from_values(_to_numpy(values), _to_numpy(offsets))
    if isinstance(sequences, Sequence):
        return _from_list(sequences, memory, copy)
    if isinstance(sequences, np.ndarray) and sequences.ndim == 1:
        return _from_list(sequences.tolist(), memory, copy)
    raise TypeError(f"a {type(sequences).__name__} is not a supported type of sequences")


def read_blocks(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """Read rows of str or bytes, BLOCK_ROWS at a time, and fewer where they are long.

    A block ends with the row with which it reaches BLOCK_BYTES characters or bytes.
    """
    block: list[Any] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row) if hasattr(row, "__len__") else 0
        if len(block) == BLOCK_ROWS or size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _from_column(column: Any) -> Any:
    """Turn a column of pandas or polars into an Arrow array, or a list where that is missing.

    Raises:
        TypeError: a whole frame was given.
        ValueError: a row is null.
    """
    if hasattr(column, "columns"):
        raise TypeError(
            "a data frame has several columns; give the column of sequences, such as frame['dna']"
        )
    nulls = np.flatnonzero(
        np.asarray(column.isna() if hasattr(column, "isna") else column.is_null())
    )
    if len(nulls):
        raise ValueError(f"row {nulls[0]} is null")
    array: Any = None
    if find_spec("pyarrow") is not None:
        if hasattr(column, "to_arrow"):
            array = column.to_arrow()
        elif hasattr(column.array, "__arrow_array__"):
            array = column.array.__arrow_array__()
    if array is None:
        return column.to_list()
    kind = str(array.type)
    if "view" in kind or kind.startswith("dictionary"):
        return array.cast("large_string" if "string" in kind else "large_binary")
    return array


def _to_numpy(array: Any) -> Any:
    """Turn a tensor of the host into a NumPy array of the same memory; return others unchanged."""
    is_foreign = hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray)
    return np.from_dlpack(array) if is_foreign else array


def _is_sequence(value: Any) -> bool:
    """Return whether a value is a sequence of letters, and not an array of offsets."""
    return isinstance(value, str | bytes | bytearray) or (
        isinstance(value, memoryview) and value.format == "B"
    )


def _join(batch: Batch, memory: Memory | None, copy: Copy | None) -> Batch:
    """Join the strings of a batch and drop them, so that parts of it are not joined again."""
    if memory is not None:
        batch.join_in(memory, copy)
    return Batch(data=batch.data, offsets=batch.offsets)


def _from_list(rows: Sequence[Any], memory: Memory | None, copy: Copy | None) -> Batch:
    """Join a list of strings, or of bytes, bytearrays or memoryviews."""
    with suppress(TypeError):  # Checking the type of each string takes as long as joining all.
        if not rows or isinstance(rows[0], str):
            return _join(Batch(rows), memory, copy)
    kinds = set(map(type, rows))
    if all(issubclass(kind, bytes | bytearray | memoryview) for kind in kinds):
        return Batch.from_bytes([_make_contiguous(row) for row in rows])
    first = type(rows[0])
    row = next((i for i, row in enumerate(rows) if type(row) is not first), 0)
    raise TypeError(f"row {row} is a {type(rows[row]).__name__}; all must be str, or all bytes")


def _make_contiguous(row: Any) -> Any:
    """Copy a memoryview with gaps; return anything else unchanged."""
    return row.tobytes() if isinstance(row, memoryview) and not row.c_contiguous else row


def _from_matrix(matrix: NDArray[Any]) -> Batch:
    """Make a batch of uint8[B, T]: B rows of T letters."""
    if matrix.dtype not in (np.uint8, np.dtype("S1")):
        raise TypeError(f"a matrix of {matrix.dtype}; sequences are uint8")
    num_rows, length = matrix.shape
    data = np.ascontiguousarray(matrix).reshape(-1).view(np.uint8)
    offsets = np.arange(0, num_rows * length + 1, length) if length else np.zeros(num_rows + 1)
    return Batch(data=data, offsets=offsets.astype(np.int64, copy=False))


def _from_values(values: Any, offsets: Any) -> Batch:
    """Make a batch of B rows of a buffer of uint8[N] and integer offsets [B + 1]."""
    data = values if isinstance(values, np.ndarray) else np.frombuffer(values, np.uint8)
    offsets = np.asarray(offsets)
    if data.dtype != np.uint8 or data.ndim != 1 or offsets.ndim != 1:
        raise TypeError("values must be uint8[N] and offsets int64[B + 1]")
    if offsets.dtype.kind not in "iu" or not len(offsets):
        raise TypeError(f"offsets is {offsets.dtype}[{len(offsets)}]; it must be int64[B + 1]")
    offsets = offsets.astype(np.int64, copy=False)
    shrinking = np.flatnonzero(offsets[1:] < offsets[:-1])  # A difference may overflow.
    if len(shrinking):
        raise ValueError(f"row {shrinking[0]} ends before it begins")
    return Batch(data=data, offsets=offsets)


def _from_arrow(array: Any) -> Batch:
    """Make a batch of an Arrow array of strings or binaries without copying its values."""
    name = str(array.type)
    if name not in _ARROW_OFFSETS:
        raise TypeError(
            f"the Arrow array has the type {name}; sequences must be strings or binaries"
        )
    if array.null_count:
        nulls = np.asarray(array.is_null())
        raise ValueError(f"row {int(np.flatnonzero(nulls)[0])} is null")
    if not len(array):
        return Batch.from_bytes([])
    _, offsets, values = array.buffers()
    begin, end = array.offset, array.offset + len(array) + 1
    places = np.frombuffer(offsets, _ARROW_OFFSETS[name])[begin:end]
    return _from_values(b"" if values is None else values, places)
