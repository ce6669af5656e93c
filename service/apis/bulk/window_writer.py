"""Writes windows over the records of a file as an Arrow stream, with one row for each window."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.apis.bulk.arrow_writer import (
    StreamMessages,
    error_texts,
    id_list_type,
    make_lists,
    select_rows,
)
from service.apis.bulk.fasta_batches import RecordNames
from service.batching.work import Result
from service.core.errors import TooLarge
from vocabularies.batch.batch import Encoded
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.sequences.window_layout import WindowLayout
from vocabularies.sequences.windows import token_positions

try:
    import pyarrow as pa
except ModuleNotFoundError:  # The routes call `check_installed` first.
    pa = None

PREFIX, PADDING = -1, -2  # Marks places in a window without a token.
IDS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """The columns of an answer besides name, start, input_ids and error.

    Attributes:
        padding: whether the last windows of a record are padded, with a column for the mask.
        positions: whether there is a column for positions.
        channel_name: the name of the channel's column; None if there is no channel.
    """

    padding: bool = False
    positions: bool = False
    channel_name: str | None = None


class WindowMessages(StreamMessages):
    """Writes the columns `name`, `start`, `input_ids` and `error`, and those in `columns`.

    Args:
        dtype: the type of an id.
        layout: how windows are cut; without padding, the last windows of a linear record may have
            fewer ids.
        columns: the optional columns.
        max_ids: the maximum number of ids of a record batch.
        reverse_complement: whether the tokens are those of the other strand.

    A refused record becomes one row with its error and without ids.
    """

    def __init__(
        self,
        dtype: type[np.integer[Any]],
        layout: WindowLayout,
        columns: WindowColumns,
        max_ids: int,
        *,
        reverse_complement: bool = False,
    ) -> None:
        fields = [("name", pa.string()), ("start", pa.int64()), (IDS, id_list_type(dtype))]
        if columns.padding:
            fields.append((MASK, pa.list_(pa.int8())))
        if columns.positions:
            fields.append((POSITIONS, pa.list_(pa.int64())))
        if columns.channel_name is not None:
            fields.append((columns.channel_name, pa.list_(pa.float32())))
        super().__init__(dtype, pa.schema([*fields, ("error", pa.string())]))
        self._layout = layout
        self._columns = columns
        self._max_ids = max_ids
        self._reverse_complement = reverse_complement
        # State of the record that continues in the next batch:
        self._kept: dict[str, NDArray[Any]] = {}  # The tokens of its next windows, by column.
        self._skipped = 0  # How many next tokens lie between two windows.
        self._first = 0  # The number of its first kept token.
        self._is_refused = False

    @override
    def _write_rows(self, result: Result[Encoded], metadata: RecordNames) -> list[memoryview]:
        """Write the windows of records.

        If a record continues in the next batch, only its whole windows are written, and the tokens
        of the others are stored.

        Raises:
            TooLarge: the windows overlap so much that they contain too many ids.
        """
        records = metadata
        errors = error_texts(result, records.begin)
        tokens, offsets = self._tokens(result, records)
        if records.begin:
            skipped = min(self._skipped, len(self._kept[IDS]) + len(tokens[IDS]))
            tokens = {
                name: np.concatenate([self._kept[name], values])[skipped:]
                for name, values in tokens.items()
            }
            self._skipped -= skipped
            offsets = np.array([0, len(tokens[IDS])])
        else:
            self._first = 0
            self._skipped = 0
            self._is_refused = False
        sizes = np.diff(offsets)
        window, stride = self._layout.window, self._layout.stride
        counts = -(-sizes // stride)
        if records.continues:
            counts[-1] = max(0, (sizes[-1] - window) // stride + 1)
        is_refused = np.array([error is not None for error in errors], np.bool_)
        counts[is_refused] = 0 if self._is_refused else 1
        firsts = np.zeros(len(sizes), np.int64)
        firsts[0] = self._first
        written = self._write_windows(tokens, offsets, counts, firsts, records.names, errors)
        if records.continues:
            self._is_refused = self._is_refused or bool(is_refused[-1])
            self._keep(tokens, stride * int(counts[-1]))
        return written

    def _tokens(
        self, result: Result[Encoded], records: RecordNames
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
        """Return the values of all tokens by column, and the rows' offsets int64[B + 1]."""
        ids, offsets = select_rows(result, self._dtype)
        tokens: dict[str, NDArray[Any]] = {IDS: ids}
        columns = self._columns
        if columns.positions or columns.channel_name is not None:
            spans = result.output.spans
            assert spans is not None
            first = result.output.offsets[result.begin]
            begins = self._positions(spans[first : first + len(ids)], offsets)
            if columns.positions:
                tokens[POSITIONS] = begins + records.begin
            if columns.channel_name is not None:
                assert records.channel is not None
                rows = np.repeat(records.channel.offsets[:-1], np.diff(offsets))
                tokens[columns.channel_name] = records.channel.values[rows + begins]
        return tokens, offsets

    def _positions(self, spans: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the base at which each token begins in its row, int64[T]."""
        if not (self._layout.circular and self._reverse_complement):
            return spans[:, 0]
        rows = [
            token_positions(spans[begin:end], circular=True, reverse_complement=True)
            for begin, end in pairwise(offsets.tolist())
        ]
        return np.concatenate(rows) if rows else spans[:, 0]

    def _keep(self, tokens: dict[str, NDArray[Any]], begin: int) -> None:
        """Store the tokens of a record from `begin` on, for the windows of its next part."""
        begin = 0 if self._is_refused else begin
        self._kept = {name: values[begin:].copy() for name, values in tokens.items()}
        self._first += begin
        self._skipped += max(0, begin - len(tokens[IDS]))

    def _write_windows(
        self,
        tokens: dict[str, NDArray[Any]],
        offsets: NDArray[np.int64],
        counts: NDArray[np.int64],
        firsts: NDArray[np.int64],
        names: list[str],
        errors: list[str | None],
    ) -> list[memoryview]:
        """Write windows as one record batch.

        Args:
            tokens: the values of the tokens of all rows, by column.
            offsets: int64[B + 1], the start of each row.
            counts: int64[B], the number of windows of each row.
            firsts: int64[B], the number of each row's first token in its record.
            names: the name of each row's record.
            errors: the error of each row; None for a row without an error.
        """
        if int(counts.sum()) > self._max_ids:
            raise TooLarge(
                f"there are more windows than max_window_ids, {self._max_ids}", "/stride"
            )
        rows = np.repeat(np.arange(len(names)), counts)
        starts = ragged_indices(np.zeros_like(counts), counts, self._layout.stride)
        window_errors = pa.array(errors, pa.string()).take(pa.array(rows))
        lengths = self._lengths(np.diff(offsets)[rows] - starts)
        lengths[window_errors.is_valid().to_numpy(zero_copy_only=False)] = 0
        if (num_ids := int(lengths.sum())) > self._max_ids:
            limit = f"max_window_ids is {self._max_ids}"
            raise TooLarge(f"the windows of a few records have {num_ids} ids; {limit}", "/stride")
        lists = self._fill_lists(tokens, offsets, rows, starts, lengths)
        list_offsets = offsets_from_lengths(lengths)
        nulls = window_errors.is_valid()
        columns = [
            pa.array(names, pa.string()).take(pa.array(rows)),
            pa.array(starts + firsts[rows]),
            *(make_lists(values, list_offsets, nulls) for values in lists),
            window_errors,
        ]
        return self._write_columns(columns)

    def _lengths(self, num_left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of ids of each window, given the number of tokens from its start."""
        layout = self._layout
        is_full = layout.circular or self._columns.padding
        lengths = np.full_like(num_left, layout.window)
        return len(layout.prefix) + (lengths if is_full else np.minimum(lengths, num_left))

    def _fill_lists(
        self,
        tokens: dict[str, NDArray[Any]],
        offsets: NDArray[np.int64],
        rows: NDArray[np.int64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> list[NDArray[Any]]:
        """Return the concatenated values of all windows for each column of lists."""
        layout, columns = self._layout, self._columns
        is_plain = not (layout.circular or columns.padding or layout.prefix)
        if is_plain:
            index = ragged_indices(offsets[:-1][rows] + starts, lengths)
            return [values[index] for values in tokens.values()]
        index = self._places(offsets, rows, starts, lengths)
        is_token = index >= 0
        filled = []
        for name, values in tokens.items():
            column = np.zeros(len(index), values.dtype)
            column[is_token] = values[index[is_token]]
            if name == IDS:
                column[index == PADDING] = layout.pad_id
                is_prefix = index == PREFIX
                repeats = np.count_nonzero(lengths)
                column[is_prefix] = np.tile(np.array(layout.prefix, values.dtype), repeats)
            filled.append(column)
        if columns.padding:
            filled.insert(1, (index != PADDING).astype(np.int8))
        return filled

    def _places(
        self,
        offsets: NDArray[np.int64],
        rows: NDArray[np.int64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return the index of the token at each place of all windows, or PREFIX or PADDING."""
        layout = self._layout
        begins, sizes = offsets[:-1][rows], np.diff(offsets)[rows]
        num_prefix = len(layout.prefix)
        # The number of each place's token in its row; prefix places get numbers below the start.
        numbers = ragged_indices(starts - num_prefix, lengths)
        begin, size = np.repeat(begins, lengths), np.repeat(sizes, lengths)
        is_prefix = numbers < np.repeat(starts, lengths)
        if layout.circular:
            index = begin + (numbers - layout.num_moved) % size
        else:
            index = np.where(numbers < size, begin + numbers, PADDING)
        return np.where(is_prefix, PREFIX, index)
