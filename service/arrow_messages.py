"""Ids as Arrow's stream format: a schema, record batches, an end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from service.arrow_wire import CONTINUATION
from service.errors import TooLarge
from service.fasta_batches import Named
from service.piecewise import shifted
from service.work import Result
from vocabularies.framing import offsets_of, ragged

__all__ = ["IdMessages", "RecordMessages", "WindowMessages"]

NULL_TEXT = "the text is null"
END = CONTINUATION + bytes(4)


def _error_texts(result: Result, begin: int = 0) -> list[str | None]:
    """Why rows of a request are refused; None for those that are not.

    Args:
        result: of the request.
        begin: where in its text a row begins that is a part of one.
    """
    errors: list[str | None] = [None] * (result.end - result.begin)
    for row, refusal in result.row_errors().items():
        error = shifted(refusal, begin)
        errors[row] = f"{error.code}: {error.message} {error.where}".strip()
    return errors


def _rows(result: Result, dtype: type[np.integer[Any]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The ids of a request's rows, and int64[B + 1] where each begins."""
    encoded = result.encoded
    assert encoded is not None
    offsets = encoded.offsets[result.begin : result.end + 1]
    ids = encoded.ids[offsets[0] : offsets[-1]].astype(dtype, copy=False)
    return ids, offsets - offsets[0]


def _lists(
    ids: NDArray[Any], offsets: NDArray[np.int64], nulls: pa.Array | None = None
) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids), mask=nulls)


class IdMessages:
    """A stream of the columns `ids` and `error`; a refused text has null ids and says why.

    Args:
        dtype: of an id.
    """

    END = END

    def __init__(self, dtype: type[np.integer[Any]]) -> None:
        ids = pa.list_(pa.from_numpy_dtype(dtype))
        self._dtype = dtype
        self._schema = pa.schema([("ids", ids), ("error", pa.string())])

    def head(self) -> memoryview:
        """What the stream begins with."""
        return memoryview(self._schema.serialize())

    def message(self, result: Result, nulls: NDArray[np.bool_]) -> memoryview:
        """One record batch: the rows of a request, in order; bool[B] says which were null."""
        errors = _error_texts(result)
        for row in np.flatnonzero(nulls).tolist():
            errors[row] = NULL_TEXT
        error_column = pa.array(errors, pa.string())
        columns = [_lists(*_rows(result, self._dtype), error_column.is_valid()), error_column]
        return memoryview(pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize())


class RecordMessages:
    """A stream of the columns `name`, `ids` and `error`."""

    END = END

    def __init__(self, dtype: type[np.integer[Any]]) -> None:
        ids = pa.list_(pa.from_numpy_dtype(dtype))
        self._dtype = dtype
        fields = [("name", pa.string()), ("ids", ids), ("error", pa.string())]
        self._schema = pa.schema(fields)

    def head(self) -> memoryview:
        """What the stream begins with."""
        return memoryview(self._schema.serialize())

    def message(self, result: Result, named: Named) -> memoryview:
        """One record batch: records of a file, in order."""
        errors = pa.array(_error_texts(result), pa.string())
        ids = _lists(*_rows(result, self._dtype), errors.is_valid())
        columns = [pa.array(named.names, pa.string()), ids, errors]
        return memoryview(pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize())


class WindowMessages:
    """A stream of the columns `name`, `start`, `input_ids` and `error`: a row for each window.

    Args:
        window, stride: in ids; the last windows of a record are as short as what is left.
        max_ids: the most that a record batch may hold.

    A refused record is one row without ids that says why.
    """

    END = END

    def __init__(
        self, dtype: type[np.integer[Any]], window: int, stride: int, max_ids: int
    ) -> None:
        ids = pa.list_(pa.from_numpy_dtype(dtype))
        self._dtype, self._window, self._stride = dtype, window, stride
        self._max_ids = max_ids
        self._kept: NDArray[Any] = np.zeros(0, dtype)
        self._skipped = self._first = 0
        self._is_refused = False
        fields = [("name", pa.string()), ("start", pa.int64()), ("input_ids", ids)]
        self._schema = pa.schema([*fields, ("error", pa.string())])

    def head(self) -> memoryview:
        """What the stream begins with."""
        return memoryview(self._schema.serialize())

    def message(self, result: Result, named: Named) -> memoryview:
        """One record batch: the windows of records, in order.

        Of a record that goes on, those that are whole; what the others need is kept.

        Raises:
            TooLarge: they hold too many ids; the windows overlap too much.
        """
        errors = _error_texts(result, named.begin)
        ids, offsets = _rows(result, self._dtype)
        if named.begin:
            ids = np.concatenate([self._kept, ids])
            ids, self._skipped = ids[self._skipped :], max(0, self._skipped - len(ids))
            offsets = np.array([0, len(ids)])
        else:
            self._first, self._skipped, self._is_refused = 0, 0, False
        sizes = np.diff(offsets)
        counts = -(-sizes // self._stride)
        if named.goes_on:
            counts[-1] = max(0, (sizes[-1] - self._window) // self._stride + 1)
        is_refused = np.array([error is not None for error in errors], np.bool_)
        counts[is_refused] = 0 if self._is_refused else 1
        firsts = np.zeros(len(sizes), np.int64)
        firsts[0] = self._first
        written = self._written(ids, offsets, counts, firsts, named.names, errors)
        if named.goes_on:
            self._is_refused = self._is_refused or bool(is_refused[-1])
            self._keep(ids, self._stride * int(counts[-1]))
        return written

    def _keep(self, ids: NDArray[Any], begin: int) -> None:
        """The ids of a record that the windows of its next part begin with."""
        begin = 0 if self._is_refused else begin
        self._kept, self._first = ids[begin:].copy(), self._first + begin
        self._skipped += max(0, begin - len(ids))

    def _written(
        self,
        ids: NDArray[Any],
        offsets: NDArray[np.int64],
        counts: NDArray[np.int64],
        firsts: NDArray[np.int64],
        names: list[str],
        errors: list[str | None],
    ) -> memoryview:
        """So many windows of each row, of whose record the first id has the number `firsts`."""
        if int(counts.sum()) > self._max_ids:
            raise TooLarge(f"more windows than max_window_ids, {self._max_ids}", "/stride")
        rows = np.repeat(np.arange(len(names)), counts)
        starts = ragged(np.zeros_like(counts), counts, self._stride)
        lengths = np.minimum(self._window, np.diff(offsets)[rows] - starts)
        if (num_ids := int(lengths.sum())) > self._max_ids:
            limit = f"max_window_ids is {self._max_ids}"
            raise TooLarge(f"the windows of some records hold {num_ids} ids; {limit}", "/stride")
        values = ids[ragged(offsets[:-1][rows] + starts, lengths)]
        window_errors = pa.array(errors, pa.string()).take(pa.array(rows))
        columns = [
            pa.array(names, pa.string()).take(pa.array(rows)),
            pa.array(starts + firsts[rows]),
            _lists(values, offsets_of(lengths), window_errors.is_valid()),
            window_errors,
        ]
        return memoryview(pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize())
