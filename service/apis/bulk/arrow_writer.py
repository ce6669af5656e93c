"""Writes ids in Arrow's stream format: a schema, record batches, and an end.

If an error occurs after the answer has begun, the last record batch has one row, in which only the
column `error` is not null. The metadata of this record batch distinguish it from a refused text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.apis.bulk.arrow_buffers import PieceWriter
from service.apis.bulk.arrow_reader import CONTINUATION
from service.apis.bulk.fasta_batches import RecordNames
from service.apis.bulk.text_chunks import shift_error
from service.batching.work import Result
from service.core.errors import ServiceError
from vocabularies.batch.batch import Encoded

try:
    import pyarrow as pa
except ModuleNotFoundError:  # The routes call `check_installed` first.
    pa = None

NULL_TEXT = "the text is null"
END = CONTINUATION + bytes(4)
QUICK_ROWS = 256  # Up to this number, writing rows is faster than passing them to a thread.


def error_texts(result: Result[Encoded], begin: int = 0) -> list[str | None]:
    """Return the error of each row of a request; None for a row without an error.

    Args:
        result: the result of the request.
        begin: the position in its record, in bytes, at which the first row begins.
    """
    errors: list[str | None] = [None] * (result.end - result.begin)
    for row, refusal in result.row_errors().items():
        error = shift_error(refusal, begin)
        errors[row] = f"{error.code}: {error.message} {error.where}".strip()
    return errors


def select_rows(
    result: Result[Encoded], dtype: type[np.integer[Any]]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the ids of a request's rows, and their offsets int64[B + 1]."""
    encoded = result.output
    offsets = encoded.offsets[result.begin : result.end + 1]
    ids = encoded.ids[offsets[0] : offsets[-1]].astype(dtype, copy=False)
    return ids, offsets - offsets[0]


def make_lists(
    ids: NDArray[Any], offsets: NDArray[np.int64], nulls: pa.Array | None = None
) -> pa.ListArray:
    """Create a column of lists of integers.

    Args:
        ids: the items of all lists, joined.
        offsets: int64[B + 1], where each list begins; below 2**31.
        nulls: bool[B], true for null lists; None: no list is null.
    """
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids), mask=nulls)


class StreamMessages:
    """Writes an Arrow stream.

    Args:
        dtype: the type of an id.
        schema: the columns of each record batch.

    Attributes:
        has_kernel_time: whether the metadata of a record batch contain the time of its computation
            and the engine.
    """

    END = END
    has_kernel_time = False

    def __init__(self, dtype: type[np.integer[Any]], schema: pa.Schema) -> None:
        self._dtype = dtype
        self._schema = schema
        self._writer = PieceWriter(schema)
        self._metadata: dict[str, str] | None = None

    def head(self) -> memoryview:
        """Return the message that begins the stream."""
        return self._writer.head

    def is_quick(self, result: Result[Encoded]) -> bool:
        """Return whether writing a result is faster than passing it to a thread."""
        return False

    def message(self, result: Result[Encoded], metadata: Any) -> list[memoryview]:
        """Return a record batch of ids as pieces; `metadata` is that of the texts."""
        if self.has_kernel_time:
            self._metadata = {
                "warptok.kernel_time": f"{result.seconds:.7f}",
                "warptok.engine": result.engine,
            }
        return self._write_rows(result, metadata)

    def _write_rows(self, result: Result[Encoded], metadata: Any) -> list[memoryview]:
        raise NotImplementedError

    def failure(self, error: ServiceError) -> list[memoryview]:
        """Return the record batch that describes why the stream ends too early."""
        place = f" ({error.where})" if error.where not in error.message else ""
        row = {"error": f"{error.code}: {error.message}{place}"}
        metadata = {
            "warptok.error": error.code,
            "warptok.message": error.message,
            "warptok.where": error.where,
        }
        return self._writer.pieces(pa.RecordBatch.from_pylist([row], self._schema), metadata)

    def _write_columns(self, columns: list[pa.Array]) -> list[memoryview]:
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return self._writer.pieces(batch, self._metadata)


def id_list_type(dtype: type[np.integer[Any]]) -> pa.DataType:
    """Return the type of a column that contains rows of ids."""
    return pa.list_(pa.from_numpy_dtype(dtype))


class IdMessages(StreamMessages):
    """Writes the columns `ids` and `error`; a refused text has null ids and an error.

    Args:
        dtype: the type of an id.
    """

    def __init__(self, dtype: type[np.integer[Any]]) -> None:
        super().__init__(dtype, pa.schema([("ids", id_list_type(dtype)), ("error", pa.string())]))

    def is_quick(self, result: Result[Encoded]) -> bool:
        """Return whether there are at most QUICK_ROWS rows whose ids need no conversion."""
        return result.output.ids.dtype == self._dtype and result.end - result.begin <= QUICK_ROWS

    @override
    def _write_rows(self, result: Result[Encoded], metadata: NDArray[np.bool_]) -> list[memoryview]:
        """Write the rows of a request; `metadata` is bool[B], true for null texts."""
        errors = error_texts(result)
        for row in np.flatnonzero(metadata).tolist():
            errors[row] = NULL_TEXT
        error_column = pa.array(errors, pa.string())
        ids, offsets = select_rows(result, self._dtype)
        return self._write_columns(
            [make_lists(ids, offsets, error_column.is_valid()), error_column]
        )


class RecordMessages(StreamMessages):
    """Writes the columns `name`, `ids` and `error`; a refused record has null ids and an error."""

    def __init__(self, dtype: type[np.integer[Any]]) -> None:
        columns = [("name", pa.string()), ("ids", id_list_type(dtype)), ("error", pa.string())]
        super().__init__(dtype, pa.schema(columns))

    @override
    def _write_rows(self, result: Result[Encoded], metadata: RecordNames) -> list[memoryview]:
        """Write the rows of a request; `metadata` contains the names of the records."""
        errors = pa.array(error_texts(result), pa.string())
        ids, offsets = select_rows(result, self._dtype)
        names = pa.array(metadata.names, pa.string())
        return self._write_columns([names, make_lists(ids, offsets, errors.is_valid()), errors])
