"""The call chunks: one text as overlapping chunks of at most so many ids, with their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.batching.work import EncodeWork, Result
from service.core.call import Call
from service.core.errors import InvalidRequest, RowRefused, TooLarge
from service.operations.context import Service
from service.operations.operation import Operation, Render, make_work
from service.operations.rendering.json_stream import flat_json, head, ragged_json
from service.operations.rendering.offset_units import convert_spans
from service.operations.schemas import ChunksRequest
from service.registry.entries import LoadedVocabulary
from vocabularies.batch.batch import Encoded, EncodeOptions
from vocabularies.batch.post_processing import (
    NO_ADDED_IDS,
    AddedIds,
    Content,
    count_kept,
    post_process,
)
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.sequences.chunks import count_chunks, find_chunks

LONGEST = np.array([2**62])


@dataclass(frozen=True, slots=True)
class Chunks:
    """The C chunks of one text.

    Attributes:
        ids: int32[T], the ids of all chunks, begin and end tokens included.
        offsets: int64[C + 1], where the ids of each chunk begin.
        starts: int64[C], the number of the first token of each chunk.
        spans: int64[C, 2], the begin and the end of each chunk in the text, in bytes.
        num_tokens: the number of the text's tokens.
    """

    ids: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]
    spans: NDArray[np.int64]
    num_tokens: int


def plan_chunks(
    service: Service, call: Call, entry: LoadedVocabulary, request: ChunksRequest
) -> tuple[EncodeWork, Callable[[Result[Encoded]], Chunks]]:
    """Make the work item of a request, and the function that cuts its result into chunks.

    Raises:
        ServiceError: the request is refused; the function may raise it as well.
    """
    added = AddedIds.of(entry.vocabulary) if request.add_special_tokens else NO_ADDED_IDS
    size = int(count_kept(LONGEST, added, request.chunk_size)[0])
    if size < 1:
        message = f"leaves no room beside {len(added)} begin and end tokens"
        raise InvalidRequest(message, "/chunk_size")
    if request.chunk_overlap >= size:
        message = f"must be less than the {size} tokens of the text that a chunk has"
        raise InvalidRequest(message, "/chunk_overlap")
    options = EncodeOptions(add_special_tokens=False, special=request.special, spans=True)
    work = make_work(service, call, EncodeWork, entry, [request.text], options, "/text")
    limit = service.settings.max_window_ids
    return work, partial(_cut, added, size, request.chunk_overlap, limit)


def _cut(added: AddedIds, size: int, overlap: int, max_ids: int, result: Result[Encoded]) -> Chunks:
    """Cut a result into chunks.

    Raises:
        ServiceError: the text is refused, or its chunks have too many ids.
    """
    if result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "/text")
    encoded = result.output
    assert encoded.spans is not None
    begin, end = result.offsets[result.begin], result.offsets[result.begin + 1]
    num_tokens = int(end - begin)
    width = min(size, num_tokens) + len(added)
    num_ids = count_chunks(num_tokens, size, overlap) * width
    if num_ids > max_ids:
        message = f"{num_ids} ids would be written; max_window_ids is {max_ids}"
        raise TooLarge(message, "/chunk_overlap")
    places = find_chunks(num_tokens, size, overlap)
    sizes = places[:, 1] - places[:, 0]
    index = ragged_indices(places[:, 0], sizes)
    content = Content(encoded.ids[begin:end][index], offsets_from_lengths(sizes))
    framed = post_process(content, added, EncodeOptions())
    spans = _cover(encoded.spans[begin:end], places)
    return Chunks(framed.ids, framed.offsets, places[:, 0].copy(), spans, num_tokens)


def _cover(spans: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the begin of each chunk's first token and the end of its last, int64[C, 2]."""
    if not len(spans):
        return np.zeros((1, 2), np.int64)
    ends = np.maximum.accumulate(spans[:, 1])
    return np.stack([spans[places[:, 0], 0], ends[places[:, 1] - 1]], axis=1)


def _plan(
    service: Service, call: Call, entry: LoadedVocabulary, request: ChunksRequest
) -> tuple[EncodeWork, Render]:
    work, cut = plan_chunks(service, call, entry, request)
    limit = service.settings.max_text_bytes
    return work, lambda result: _write_chunks(entry, request, result, cut(result), limit)


def _write_chunks(
    entry: LoadedVocabulary,
    request: ChunksRequest,
    result: Result[Encoded],
    chunks: Chunks,
    max_text_bytes: int,
) -> Iterator[bytes]:
    """Write the answer.

    Raises:
        TooLarge: the texts of all chunks together are too long.
    """
    num_bytes = int((chunks.spans[:, 1] - chunks.spans[:, 0]).sum())
    if request.return_texts and num_bytes > max_text_bytes:
        message = f"the chunks have {num_bytes} bytes; max_text_bytes is {max_text_bytes}"
        raise TooLarge(message, "/return_texts")
    return _write(entry, request, result, chunks)


def _write(
    entry: LoadedVocabulary, request: ChunksRequest, result: Result[Encoded], chunks: Chunks
) -> Iterator[bytes]:
    yield head(entry, b"ids")
    yield from ragged_json(chunks.ids, chunks.offsets, range(len(chunks.starts)))
    yield b',"offsets":'
    yield from flat_json(convert_spans(chunks.spans, request.text, request.offset_unit))
    yield b',"starts":'
    yield from flat_json(chunks.starts)
    if request.return_texts:
        yield b',"texts":['
        places = convert_spans(chunks.spans, request.text, "codepoints").tolist()
        for number, (begin, end) in enumerate(places):
            yield (b"," if number else b"") + orjson.dumps(request.text[begin:end])
        yield b"]"
    yield b',"num_tokens":%d,"engine":"%b"}' % (chunks.num_tokens, result.engine.encode())


CHUNKS = Operation(ChunksRequest, _plan)
