"""Writes ids in Arrow's stream format: a schema, record batches, an end.

If the request turns out to be wrong after the answer has begun, the last record batch has one row,
in which only the column `error` is not null. The metadata of that batch, beside the row, let
clients distinguish it from a refused text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.apis.bulk.arrow_buffers import PieceWriter
from service.apis.bulk.arrow_reader import CONTINUATION
from service.apis.bulk.fasta_batches import RecordNames
from service.apis.bulk.text_chunks import shift_error
from service.batching.work import Result
from service.core.errors import ServiceError, TooLarge
from vocabularies.batch.batch import Encoded
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices

try:
    import pyarrow as pa
except ModuleNotFoundError:  # The routes call `check_installed` first.
    pa = None

NULL_TEXT = "the text is null"
END = CONTINUATION + bytes(4)
QUICK_ROWS = 256  # Up to so many rows are written faster than they are handed to a thread.


def _error_texts(result: Result[Encoded], begin: int = 0) -> list[str | None]:
    """Return the error of each row of a request; None for a row without one.

    Args:
        result: the result of the request.
        begin: the place in its record at which the first row begins, in bytes.
    """
    errors: list[str | None] = [None] * (result.end - result.begin)
    for row, refusal in result.row_errors().items():
        error = shift_error(refusal, begin)
        errors[row] = f"{error.code}: {error.message} {error.where}".strip()
    return errors


def _select_rows(
    result: Result[Encoded], dtype: type[np.integer[Any]]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Select the ids of a request's rows, and their offsets int64[B + 1]."""
    encoded = result.output
    offsets = encoded.offsets[result.begin : result.end + 1]
    ids = encoded.ids[offsets[0] : offsets[-1]].astype(dtype, copy=False)
    return ids, offsets - offsets[0]


def _lists(
    ids: NDArray[Any], offsets: NDArray[np.int64], nulls: pa.Array | None = None
) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids), mask=nulls)


class _Messages:
    """Writes an Arrow stream.

    Args:
        dtype: the type of an id.
        schema: the columns of each record batch.
    """

    END = END

    def __init__(self, dtype: type[np.integer[Any]], schema: pa.Schema) -> None:
        self._dtype = dtype
        self._schema = schema
        self._writer = PieceWriter(schema)

    def head(self) -> memoryview:
        """Get the message that begins the stream."""
        return self._writer.head

    def is_quick(self, result: Result[Encoded]) -> bool:
        """Return whether writing a result is quicker than handing it to a thread."""
        return False

    def failure(self, error: ServiceError) -> list[memoryview]:
        """Write the record batch that says why the stream ends too early."""
        place = f" ({error.where})" if error.where not in error.message else ""
        row = {"error": f"{error.code}: {error.message}{place}"}
        metadata = {
            "warptok.error": error.code,
            "warptok.message": error.message,
            "warptok.where": error.where,
        }
        return self._writer.pieces(pa.RecordBatch.from_pylist([row], self._schema), metadata)

    def _write_columns(self, columns: list[pa.Array]) -> list[memoryview]:
        return self._writer.pieces(pa.RecordBatch.from_arrays(columns, schema=self._schema))


def _id_list(dtype: type[np.integer[Any]]) -> pa.DataType:
    """Return the type of a column of rows of ids."""
    return pa.list_(pa.from_numpy_dtype(dtype))


class IdMessages(_Messages):
    """Writes the columns `ids` and `error`; a refused text has null ids and an error.

    Args:
        dtype: the type of an id.
    """

    def __init__(self, dtype: type[np.integer[Any]]) -> None:
        super().__init__(dtype, pa.schema([("ids", _id_list(dtype)), ("error", pa.string())]))

    def is_quick(self, result: Result[Encoded]) -> bool:
        """Return whether there are at most QUICK_ROWS rows, and their ids need no conversion."""
        return result.output.ids.dtype == self._dtype and result.end - result.begin <= QUICK_ROWS

    def message(self, result: Result[Encoded], nulls: NDArray[np.bool_]) -> list[memoryview]:
        """Write the rows of a request as one record batch; `nulls` is bool[B] of the null texts."""
        errors = _error_texts(result)
        for row in np.flatnonzero(nulls).tolist():
            errors[row] = NULL_TEXT
        error_column = pa.array(errors, pa.string())
        ids, offsets = _select_rows(result, self._dtype)
        return self._write_columns([_lists(ids, offsets, error_column.is_valid()), error_column])


class RecordMessages(_Messages):
    """Writes the columns `name`, `ids` and `error`; a refused record has null ids and an error."""

    def __init__(self, dtype: type[np.integer[Any]]) -> None:
        columns = [("name", pa.string()), ("ids", _id_list(dtype)), ("error", pa.string())]
        super().__init__(dtype, pa.schema(columns))

    def message(self, result: Result[Encoded], records: RecordNames) -> list[memoryview]:
        """Write records of a file as one record batch."""
        errors = pa.array(_error_texts(result), pa.string())
        ids, offsets = _select_rows(result, self._dtype)
        names = pa.array(records.names, pa.string())
        return self._write_columns([names, _lists(ids, offsets, errors.is_valid()), errors])


class WindowMessages(_Messages):
    """Writes the columns `name`, `start`, `input_ids` and `error`, with a row for each window.

    Args:
        window: the ids in a window; the last windows of a record may have fewer.
        stride: the ids from the start of a window to the next.
        max_ids: the most ids of a record batch.

    A refused record is one row without ids, with its error.
    """

    def __init__(
        self, dtype: type[np.integer[Any]], window: int, stride: int, max_ids: int
    ) -> None:
        columns = [
            ("name", pa.string()),
            ("start", pa.int64()),
            ("input_ids", _id_list(dtype)),
            ("error", pa.string()),
        ]
        super().__init__(dtype, pa.schema(columns))
        self._window = window
        self._stride = stride
        self._max_ids = max_ids
        # About the record that continues in the next batch:
        self._kept: NDArray[Any] = np.zeros(0, dtype)  # Ids for its next windows.
        self._skipped = 0  # The number of its next ids that lie between two windows.
        self._first = 0  # The number of its first kept id.
        self._is_refused = False

    def message(self, result: Result[Encoded], records: RecordNames) -> list[memoryview]:
        """Write the windows of records as one record batch.

        Of a record that continues in the next batch only whole windows are written; the ids of the
        others are kept.

        Raises:
            TooLarge: the windows overlap so much that they hold too many ids.
        """
        errors = _error_texts(result, records.begin)
        ids, offsets = _select_rows(result, self._dtype)
        if records.begin:
            ids = np.concatenate([self._kept, ids])
            skipped = min(self._skipped, len(ids))
            ids = ids[skipped:]
            self._skipped -= skipped
            offsets = np.array([0, len(ids)])
        else:
            self._first = 0
            self._skipped = 0
            self._is_refused = False
        sizes = np.diff(offsets)
        counts = -(-sizes // self._stride)
        if records.continues:
            counts[-1] = max(0, (sizes[-1] - self._window) // self._stride + 1)
        is_refused = np.array([error is not None for error in errors], np.bool_)
        counts[is_refused] = 0 if self._is_refused else 1
        firsts = np.zeros(len(sizes), np.int64)
        firsts[0] = self._first
        written = self._write_windows(ids, offsets, counts, firsts, records.names, errors)
        if records.continues:
            self._is_refused = self._is_refused or bool(is_refused[-1])
            self._keep(ids, self._stride * int(counts[-1]))
        return written

    def _keep(self, ids: NDArray[Any], begin: int) -> None:
        """Keep the ids of a record from `begin` on for the windows of its next part."""
        begin = 0 if self._is_refused else begin
        self._kept = ids[begin:].copy()
        self._first += begin
        self._skipped += max(0, begin - len(ids))

    def _write_windows(
        self,
        ids: NDArray[Any],
        offsets: NDArray[np.int64],
        counts: NDArray[np.int64],
        firsts: NDArray[np.int64],
        names: list[str],
        errors: list[str | None],
    ) -> list[memoryview]:
        """Write windows as one record batch.

        Args:
            ids: the ids of all rows.
            offsets: int64[B + 1], where each row begins.
            counts: int64[B], the number of windows of each row.
            firsts: int64[B], the number of each row's first id in its record.
            names: the name of each row's record.
            errors: the error of each row; None for a row without one.
        """
        if int(counts.sum()) > self._max_ids:
            raise TooLarge(f"more windows than max_window_ids, {self._max_ids}", "/stride")
        rows = np.repeat(np.arange(len(names)), counts)
        starts = ragged_indices(np.zeros_like(counts), counts, self._stride)
        lengths = np.minimum(self._window, np.diff(offsets)[rows] - starts)
        if (num_ids := int(lengths.sum())) > self._max_ids:
            limit = f"max_window_ids is {self._max_ids}"
            raise TooLarge(f"the windows of some records hold {num_ids} ids; {limit}", "/stride")
        values = ids[ragged_indices(offsets[:-1][rows] + starts, lengths)]
        window_errors = pa.array(errors, pa.string()).take(pa.array(rows))
        columns = [
            pa.array(names, pa.string()).take(pa.array(rows)),
            pa.array(starts + firsts[rows]),
            _lists(values, offsets_from_lengths(lengths), window_errors.is_valid()),
            window_errors,
        ]
        return self._write_columns(columns)
