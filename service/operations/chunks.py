"""The operation chunks, which cuts one text into overlapping chunks of ids with their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import orjson

from service.batching.work import EncodeWork, Result
from service.core.call import Call, Times
from service.core.errors import InvalidRequest, RowRefused, TooLarge
from service.operations.context import Service
from service.operations.encode import write_kernel_time
from service.operations.operation import Operation, Render, make_work
from service.operations.rendering.json_stream import flat_json, head, ragged_json
from service.operations.rendering.offset_units import convert_spans
from service.operations.schemas import ChunksRequest
from service.registry.entries import LoadedVocabulary
from vocabularies.batch.batch import Encoded, EncodeOptions
from vocabularies.batch.post_processing import NO_ADDED_IDS, AddedIds
from vocabularies.sequences.chunks import (
    ChunkLayout,
    Chunks,
    ChunkTooSmall,
    OverlapTooLarge,
    cut_chunks,
)


def plan_chunks(
    service: Service, call: Call, entry: LoadedVocabulary, request: ChunksRequest
) -> tuple[EncodeWork, Callable[[Result[Encoded]], Chunks]]:
    """Create the work item of a request, and the function that cuts its result into chunks.

    Raises:
        ServiceError: the request is refused; the returned function may raise it as well.
    """
    added = AddedIds.of(entry.vocabulary) if request.add_special_tokens else NO_ADDED_IDS
    try:
        layout = ChunkLayout.of(added, request.chunk_size, request.chunk_overlap)
    except ChunkTooSmall as error:
        raise InvalidRequest(str(error), "/chunk_size") from error
    except OverlapTooLarge as error:
        raise InvalidRequest(str(error), "/chunk_overlap") from error
    options = EncodeOptions(add_special_tokens=False, special=request.special, spans=True)
    work = make_work(service, call, EncodeWork, entry, [request.text], options, "/text")
    return work, partial(_cut, layout, service.settings.max_window_ids)


def _cut(layout: ChunkLayout, max_ids: int, result: Result[Encoded]) -> Chunks:
    """Cut a result into chunks.

    Raises:
        ServiceError: the text is refused, or its chunks have too many ids.
    """
    if result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "/text")
    encoded = result.output
    assert encoded.spans is not None
    begin, end = result.offsets[result.begin], result.offsets[result.begin + 1]
    num_ids = layout.count_ids(int(end - begin))
    if num_ids > max_ids:
        message = f"the answer would have {num_ids} ids; max_window_ids is {max_ids}"
        raise TooLarge(message, "/chunk_overlap")
    return cut_chunks(layout, encoded.ids[begin:end], encoded.spans[begin:end])


def _plan(
    service: Service, call: Call, entry: LoadedVocabulary, request: ChunksRequest
) -> tuple[EncodeWork, Render]:
    work, cut = plan_chunks(service, call, entry, request)
    limit, times = service.settings.max_text_bytes, call.times
    return work, lambda result: _write_chunks(entry, request, result, cut(result), limit, times)


def _write_chunks(
    entry: LoadedVocabulary,
    request: ChunksRequest,
    result: Result[Encoded],
    chunks: Chunks,
    max_text_bytes: int,
    times: Times,
) -> Iterator[bytes]:
    """Write the answer.

    Raises:
        TooLarge: the texts of all chunks together are too long.
    """
    num_bytes = int((chunks.spans[:, 1] - chunks.spans[:, 0]).sum())
    if request.return_texts and num_bytes > max_text_bytes:
        message = (
            f"the texts of all chunks have {num_bytes} bytes; max_text_bytes is {max_text_bytes}"
        )
        raise TooLarge(message, "/return_texts")
    return _write(entry, request, result, chunks, times)


def _write(
    entry: LoadedVocabulary,
    request: ChunksRequest,
    result: Result[Encoded],
    chunks: Chunks,
    times: Times,
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
    yield b',"num_tokens":%d,"engine":"%b"' % (chunks.num_tokens, result.engine.encode())
    yield from write_kernel_time(request, times)
    yield b"}"


CHUNKS = Operation(ChunksRequest, _plan)
