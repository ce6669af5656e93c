"""The operations decode and decode/batch, from the JSON of ids to the JSON of texts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import orjson

from service.batching.work import DecodeWork, Result
from service.core.call import Call
from service.core.errors import RowRefused
from service.engines.base import Decoded
from service.operations.operation import (
    AnswerPieces,
    Operation,
    Render,
    check_rows,
    make_decode_work,
    make_row_faults,
)
from service.operations.rendering.json_stream import (
    base64_json,
    base64_texts_json,
    head,
    text_json,
    texts_json,
)
from service.operations.schemas import DecodeBatchRequest, DecodeRequest

if TYPE_CHECKING:
    from service.operations.context import Service
    from service.registry.entries import LoadedVocabulary


def _plan_row(
    service: Service, call: Call, entry: LoadedVocabulary, request: DecodeRequest
) -> tuple[DecodeWork, Render]:
    work = make_decode_work(service, call, entry, [request.ids], request.skip_special_tokens)
    return work, partial(_render_row, entry, request)


def _render_row(
    entry: LoadedVocabulary, request: DecodeRequest, result: Result[Decoded]
) -> AnswerPieces:
    if result.errors and result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "/ids")
    return _write_row(entry, request, result)


def _write_row(
    entry: LoadedVocabulary, request: DecodeRequest, result: Result[Decoded]
) -> Iterator[bytes]:
    begin, end = result.offsets[result.begin : result.begin + 2]
    data = result.output.data[begin:end]
    yield head(entry, b"text")
    yield from text_json(data)
    if request.as_base64:
        yield b',"base64":'
        yield from base64_json(data)
    yield b"}"


def _plan_rows(
    service: Service, call: Call, entry: LoadedVocabulary, request: DecodeBatchRequest
) -> tuple[DecodeWork, Render]:
    check_rows(service, len(request.ids), "/ids")
    work = make_decode_work(service, call, entry, request.ids, request.skip_special_tokens)
    return work, partial(_render_rows, entry, request)


def _render_rows(
    entry: LoadedVocabulary, request: DecodeBatchRequest, result: Result[Decoded]
) -> AnswerPieces:
    data, offsets = result.output.data, result.offsets
    rows = range(result.begin, result.end)
    yield head(entry, b"texts")
    yield from texts_json(data, offsets, rows)
    if request.as_base64:
        yield b',"base64":'
        yield from base64_texts_json(data, offsets, rows)
    if errors := result.row_errors():
        yield b',"errors":' + orjson.dumps(make_row_faults(errors))
    yield b"}"


DECODE = Operation(DecodeRequest, _plan_row)
DECODE_BATCH = Operation(DecodeBatchRequest, _plan_rows)
