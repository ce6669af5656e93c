"""Converts batches and their results to messages of a link, and back.

Strings are sent as joined UTF-8 with the lengths in characters, so that the peer decodes once and
then slices. Joined bytes and rows of ids are sent unchanged.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.batching.work import (
    AnyResult,
    AnyWork,
    CountWork,
    DecodeWork,
    EncodeWork,
    IdRows,
)
from service.engines.base import Counted, Decoded
from service.multiprocess.link.frames import Message
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.model.vocabulary import Vocabulary

ID_DTYPES: dict[str, type[np.integer[Any]]] = {
    "int32": np.int32,
    "uint16": np.uint16,
    "uint8": np.uint8,
}
ID_DTYPE_NAMES = {dtype: name for name, dtype in ID_DTYPES.items()}
get_values = attrgetter(*(each.name for each in fields(EncodeOptions)))
SURROGATES = "surrogatepass"  # The engine refuses half a surrogate pair, in the reference's words.


def make_texts_message(operation: str, digest: str, batch: Batch) -> Message:
    """Make the message of texts to encode or count, with their options."""
    kinds, chosen = _number_options(batch.options)
    values = {
        "operation": operation,
        "digest": digest,
        "options": kinds,
        "id_dtype": ID_DTYPE_NAMES[batch.id_dtype],
        "are_texts": batch.has_texts,
    }
    if batch.has_texts:
        texts, _ = batch.texts()
        data = np.frombuffer("".join(texts).encode("utf-8", SURROGATES), np.uint8)
        sizes: NDArray[Any] = np.fromiter(map(len, texts), np.int64, len(texts))
    else:
        data, sizes = batch.data, batch.offsets
    arrays = [data, sizes] if chosen is None else [data, sizes, chosen]
    return Message("batch", values, arrays)


def _number_options(
    options: EncodeOptions | Any,
) -> tuple[list[tuple[Any, ...]], NDArray[np.int32] | None]:
    """List the distinct options, and the number of each row's options; None if all are the same."""
    if isinstance(options, EncodeOptions):
        return [get_values(options)], None
    kinds: dict[EncodeOptions, int] = {}
    chosen = [kinds.setdefault(each, len(kinds)) for each in options]
    return [get_values(kind) for kind in kinds], np.array(chosen, np.int32)


def make_decode_message(
    digest: str, ids: NDArray[np.int64], offsets: NDArray[np.int64], skip_special_tokens: bool
) -> Message:
    """Make the message of ids int64[T] to decode, whose rows begin at offsets int64[B + 1]."""
    values = {"operation": "decode", "digest": digest, "skip_special_tokens": skip_special_tokens}
    return Message("batch", values, [ids, offsets])


def read_work(message: Message, vocabulary: Vocabulary) -> AnyWork:
    """Make the work item of a message with strings, joined bytes or rows of ids."""
    values = message.values
    operation = values["operation"]
    if operation == DecodeWork.operation:
        ids, offsets = message.arrays
        return DecodeWork(vocabulary, IdRows(ids, offsets), values["skip_special_tokens"])
    kind = EncodeWork if operation == EncodeWork.operation else CountWork
    data, sizes, *chosen = message.arrays
    kinds = [make_options(*each) for each in values["options"]]
    options = [kinds[i] for i in chosen[0].tolist()] if chosen else kinds[0]
    if not values["are_texts"]:
        id_dtype = ID_DTYPES[values["id_dtype"]]
        batch = Batch(data=data, offsets=sizes, options=options, id_dtype=id_dtype)
        return kind(vocabulary, batch, options)
    joined = data.tobytes().decode("utf-8", SURROGATES)
    places = pairwise(accumulate(sizes.tolist(), initial=0))
    return kind(vocabulary, [joined[begin:end] for begin, end in places], options)


@lru_cache(256)
def make_options(*values: Any) -> EncodeOptions:
    """Make options; equal values return the same object, so that batches of front ends share it."""
    return EncodeOptions(*values)


def make_result_message(result: AnyResult) -> Message:
    """Make the message of the rows of one work item, numbered from 0."""
    errors = [
        [row, error.code, error.message, error.where] for row, error in result.row_errors().items()
    ]
    values: dict[str, Any] = {"engine": result.engine, "errors": errors}
    rows = slice(result.begin, result.end)
    output = result.output
    if isinstance(output, Counted):
        return Message("answer", values, [output.counts[rows]])
    begin, end = result.offsets[result.begin], result.offsets[result.end]
    offsets = output.offsets[result.begin : result.end + 1] - begin
    if isinstance(output, Decoded):
        return Message("answer", values, [output.data[begin:end], offsets])
    arrays = [output.ids[begin:end], offsets]
    values["has_spans"] = output.spans is not None
    if output.spans is not None:
        arrays.append(output.spans[begin:end])
    if output.num_tokens is not None and output.kept is not None:
        arrays += [output.num_tokens[rows], output.kept[rows]]
    return Message("answer", values, arrays)


def read_encoded(message: Message) -> Encoded:
    """Read the ids of a batch of texts."""
    ids, offsets, *rest = message.arrays
    encoded = Encoded(ids, offsets, errors=_read_errors(message), engine=message.values["engine"])
    if message.values["has_spans"]:
        encoded.spans = rest.pop(0)
    if rest:
        encoded.num_tokens, encoded.kept = rest
    return encoded


def read_counted(message: Message) -> Counted:
    """Read the number of ids of each text of a batch."""
    return Counted(message.arrays[0], _read_errors(message), message.values["engine"])


def read_decoded(message: Message) -> Decoded:
    """Read the bytes of each row of ids of a batch."""
    data, offsets = message.arrays
    return Decoded(data, offsets, _read_errors(message), message.values["engine"])


def _read_errors(message: Message) -> dict[int, RowError]:
    return {row: RowError(code, text, where) for row, code, text, where in message.values["errors"]}
