"""One bad row never fails its neighbours: a failing engine call is halved until the row is found.

Refusals that an engine foresees come back in ``errors``; this is for what it did not foresee.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.engines import Decoded, Engine
from vocabularies.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.vocabulary import Vocabulary

__all__ = [
    "count_isolated",
    "decode_isolated",
    "encode_isolated",
    "raise_if_not_the_engines",
]

logger = logging.getLogger(__name__)
Options = EncodeOptions | Sequence[EncodeOptions]
FAILED = RowError("engine_failed", "the engine failed on this row; the log has the reason")


def encode_isolated(
    engine: Engine, vocabulary: Vocabulary, texts: Sequence[str], options: Options
) -> Encoded:
    """The ids of each text; a text on which the engine fails becomes an error of its row."""
    try:
        return engine.encode(vocabulary, Batch(texts, options=options))
    except BaseException as error:
        raise_if_not_the_engines(error)
        if len(texts) <= 1:
            return Encoded(_empty_ids(), _no_rows(len(texts)), errors=_failed(vocabulary, texts))
        half = len(texts) // 2
        return _join(
            encode_isolated(engine, vocabulary, texts[:half], _part(options, 0, half)),
            encode_isolated(engine, vocabulary, texts[half:], _part(options, half, None)),
        )


def count_isolated(
    engine: Engine, vocabulary: Vocabulary, texts: Sequence[str], options: Options
) -> tuple[NDArray[np.int64], dict[int, RowError]]:
    """int64[B] numbers of ids, and the refused rows; see encode_isolated."""
    try:
        return engine.count(vocabulary, Batch(texts, options=options))
    except BaseException as error:
        raise_if_not_the_engines(error)
        if len(texts) <= 1:
            return np.zeros(len(texts), np.int64), _failed(vocabulary, texts)
        half = len(texts) // 2
        left, left_errors = count_isolated(
            engine, vocabulary, texts[:half], _part(options, 0, half)
        )
        right, right_errors = count_isolated(
            engine, vocabulary, texts[half:], _part(options, half, None)
        )
        return np.concatenate([left, right]), left_errors | _shift(right_errors, half)


def decode_isolated(
    engine: Engine, vocabulary: Vocabulary, rows: Sequence[Sequence[int]], skip: bool
) -> Decoded:
    """The bytes of each row of ids; see encode_isolated."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    try:
        ids = np.fromiter(chain.from_iterable(rows), np.int64, int(offsets[-1]))
        return engine.decode(vocabulary, ids, offsets, skip)
    except BaseException as error:
        raise_if_not_the_engines(error)
        if len(rows) <= 1:
            if isinstance(error, OverflowError):
                message = "an id is larger than any vocabulary's"
                errors = {0: RowError("id_out_of_range", message, _first_large(rows[0]))}
            else:
                errors = _failed(vocabulary, rows)
            return Decoded(np.zeros(0, np.uint8), _no_rows(len(rows)), errors)
        half = len(rows) // 2
        left = decode_isolated(engine, vocabulary, rows[:half], skip)
        right = decode_isolated(engine, vocabulary, rows[half:], skip)
        return Decoded(
            np.concatenate([left.data, right.data]),
            np.concatenate([left.offsets, left.offsets[-1] + right.offsets[1:]]),
            left.errors | _shift(right.errors, half),
        )


def raise_if_not_the_engines(error: BaseException) -> None:
    """Let through what ends a process; a Rust panic is no Exception, but a failure all the same."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _failed(vocabulary: Vocabulary, rows: Sequence[object]) -> dict[int, RowError]:
    logger.exception("This is a bug. The engine failed on one row of %s", vocabulary.digest)
    return {0: FAILED} if rows else {}


def _first_large(row: Sequence[int]) -> str:
    limit = np.iinfo(np.int64)
    return next(f"ids[{i}]" for i, value in enumerate(row) if not limit.min <= value <= limit.max)


def _part(options: Options, begin: int, end: int | None) -> Options:
    return options if isinstance(options, EncodeOptions) else options[begin:end]


def _shift(errors: dict[int, RowError], rows: int) -> dict[int, RowError]:
    return {row + rows: error for row, error in errors.items()}


def _empty_ids() -> NDArray[np.int32]:
    return np.zeros(0, np.int32)


def _no_rows(num_rows: int) -> NDArray[np.int64]:
    return np.zeros(num_rows + 1, np.int64)


def _join(left: Encoded, right: Encoded) -> Encoded:
    """Two batches as one; a report that only one of them has is filled in for the other."""
    num_left, num_right = len(left.offsets) - 1, len(right.offsets) - 1
    spans = num_tokens = kept = None
    if left.spans is not None or right.spans is not None:
        spans = np.concatenate(
            [
                np.zeros((len(part.ids), 2), np.int64) if part.spans is None else part.spans
                for part in (left, right)
            ]
        )
    if left.num_tokens is not None or right.num_tokens is not None:
        num_tokens = np.concatenate([_num_tokens(left), _num_tokens(right)])
        kept = np.concatenate([_kept(left, num_left), _kept(right, num_right)])
    return Encoded(
        ids=np.concatenate([left.ids, right.ids]),
        offsets=np.concatenate([left.offsets, left.offsets[-1] + right.offsets[1:]]),
        spans=spans,
        num_tokens=num_tokens,
        kept=kept,
        errors=left.errors | _shift(right.errors, num_left),
        engine=left.engine,
    )


def _num_tokens(part: Encoded) -> NDArray[np.int64]:
    return np.diff(part.offsets) if part.num_tokens is None else part.num_tokens


def _kept(part: Encoded, num_rows: int) -> NDArray[np.int64]:
    if part.kept is not None:
        return part.kept
    return np.stack([np.zeros(num_rows, np.int64), np.diff(part.offsets)], axis=1)
