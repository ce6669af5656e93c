"""Isolates the rows on which an engine fails: a failing batch is halved until they are found.

An engine reports expected refusals in ``errors``; this module handles unexpected exceptions, so
that one row never fails the other rows of its batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.core.errors import DeadlinePassed
from service.engines.base import Abandoned, Codec, Counted, Decoded, LibraryFailed
from service.engines.concatenate import join_counted, join_decoded, join_encoded
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
PART_IDS = 1 << 16
FAILED = RowError("engine_failed", "the engine failed on this row; the log has the reason")


def encode_isolated(engine: Codec, vocabulary: Vocabulary, batch: Batch) -> Encoded:
    """Encode each text; a text on which the engine fails becomes an error of its row."""
    try:
        return engine.encode(vocabulary, batch)
    except BaseException as error:
        reraise_unless_failure(error)
        return encode_failed(engine, vocabulary, batch, error)


def encode_failed(
    engine: Codec, vocabulary: Vocabulary, batch: Batch, error: BaseException
) -> Encoded:
    """Encode the halves of a batch on which the engine failed; a single row becomes an error."""
    num_rows = len(batch)
    if num_rows <= 1:
        errors = _make_errors(vocabulary, num_rows, error)
        return Encoded(_empty_ids(), _no_rows(num_rows), errors=errors)
    return join_encoded([encode_isolated(engine, vocabulary, half) for half in _halves(batch)])


def count_isolated(engine: Codec, vocabulary: Vocabulary, batch: Batch) -> Counted:
    """Count the ids of each text; a text on which the engine fails becomes an error of its row."""
    try:
        return engine.count(vocabulary, batch)
    except BaseException as error:
        reraise_unless_failure(error)
        num_rows = len(batch)
        if num_rows <= 1:
            return Counted(np.zeros(num_rows, np.int64), _make_errors(vocabulary, num_rows, error))
        return join_counted([count_isolated(engine, vocabulary, half) for half in _halves(batch)])


def decode_isolated(
    engine: Codec, vocabulary: Vocabulary, rows: Sequence[Sequence[int]], skip: bool
) -> Decoded:
    """Decode each row of ids to bytes; a row on which the engine fails becomes an error of its row.

    Args:
        engine: the engine.
        vocabulary: the vocabulary of the ids.
        rows: the ids of each row, of any size.
        skip: whether special tokens are left out.
    """
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    try:
        ids = _join_rows(rows, int(offsets[-1]))
        return engine.decode(vocabulary, ids, offsets, skip)
    except BaseException as error:
        reraise_unless_failure(error)
        if len(rows) <= 1:
            if isinstance(error, OverflowError):
                message = "an id is larger than the ids of any vocabulary"
                errors = {0: RowError("id_out_of_range", message, _first_large(rows[0]))}
            else:
                errors = _make_errors(vocabulary, len(rows), error)
            return Decoded(np.zeros(0, np.uint8), _no_rows(len(rows)), errors)
        half = len(rows) // 2
        return join_decoded(
            [
                decode_isolated(engine, vocabulary, rows[:half], skip),
                decode_isolated(engine, vocabulary, rows[half:], skip),
            ]
        )


def _join_rows(rows: Sequence[Sequence[int]], num_ids: int) -> NDArray[np.int64]:
    """Join all rows to int64[T], in parts, as no other thread runs while one is converted.

    Raises:
        OverflowError: an id needs more than 64 bits.
    """
    ids = np.empty(num_ids, np.int64)
    values = chain.from_iterable(rows)
    for begin in range(0, num_ids, PART_IDS):
        part = ids[begin : begin + PART_IDS]
        part[:] = np.fromiter(values, np.int64, len(part))
    return ids


def reraise_unless_failure(error: BaseException) -> None:
    """Raise an error again unless it is a failure of the engine, such as a Rust panic.

    A batch that was abandoned or took too long is not a failure, as halving it would not help.
    """
    is_failure = isinstance(error, Exception) or type(error).__name__ == "PanicException"
    try:
        if isinstance(error, Abandoned | DeadlinePassed) or not is_failure:
            raise error
    finally:
        # Otherwise the exception and its traceback refer to each other, and keep all texts and ids
        # until the garbage collector runs: 300 MB for an abandoned text of 100 MB.
        del error


def _make_errors(
    vocabulary: Vocabulary, num_rows: int, error: BaseException
) -> dict[int, RowError]:
    if isinstance(error, LibraryFailed):
        logger.warning("%s: %s", vocabulary.digest, error)
        return {0: RowError("library_failed", str(error))}
    logger.exception("This is a bug. The engine failed on one row of %s", vocabulary.digest)
    return {0: FAILED} if num_rows else {}


def _first_large(row: Sequence[int]) -> str:
    limit = np.iinfo(np.int64)
    return next(f"ids[{i}]" for i, value in enumerate(row) if not limit.min <= value <= limit.max)


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    half = len(batch) // 2
    return batch.part(0, half), batch.part(half, len(batch))


def _empty_ids() -> NDArray[np.int32]:
    return np.zeros(0, np.int32)


def _no_rows(num_rows: int) -> NDArray[np.int64]:
    return np.zeros(num_rows + 1, np.int64)
