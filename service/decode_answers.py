"""Ids in, text out: the calls decode and decode/batch, from their JSON to their JSON."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING

import orjson

from service.calls import (
    Body,
    Call,
    Operation,
    Render,
    check_rows,
    decode_work,
    row_faults,
)
from service.errors import RowRefused
from service.json_pieces import head
from service.schemas import DecodeBatchRequest, DecodeRequest
from service.work import Result, Work

if TYPE_CHECKING:
    from service.registry import Entry
    from service.state import Service

__all__ = ["DECODE", "DECODE_BATCH"]


def _row_data(result: Result, row: int) -> bytes:
    assert result.decoded is not None
    begin, end = result.offsets[row], result.offsets[row + 1]
    return result.decoded.data[begin:end].tobytes()


def _plan_row(
    service: Service, call: Call, entry: Entry, request: DecodeRequest
) -> tuple[Work, Render]:
    work = decode_work(service, call, entry, [request.ids], request.skip_special_tokens)
    return work, partial(_render_row, entry, request)


def _render_row(entry: Entry, request: DecodeRequest, result: Result) -> Body:
    if result.errors and result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "/ids")
    data = _row_data(result, result.begin)
    pieces = [head(entry, b"text"), orjson.dumps(data.decode(errors="replace"))]
    if request.as_base64:
        pieces.append(b',"base64":"%b"' % base64.b64encode(data))
    return [*pieces, b"}"]


def _plan_rows(
    service: Service, call: Call, entry: Entry, request: DecodeBatchRequest
) -> tuple[Work, Render]:
    check_rows(service, len(request.ids), "/ids")
    work = decode_work(service, call, entry, request.ids, request.skip_special_tokens)
    return work, partial(_render_rows, entry, request)


def _render_rows(entry: Entry, request: DecodeBatchRequest, result: Result) -> Body:
    rows = [_row_data(result, row) for row in range(result.begin, result.end)]
    pieces = [head(entry, b"texts"), orjson.dumps([row.decode(errors="replace") for row in rows])]
    if request.as_base64:
        encoded = [base64.b64encode(row).decode() for row in rows]
        pieces.append(b',"base64":' + orjson.dumps(encoded))
    if errors := result.row_errors():
        pieces.append(b',"errors":' + orjson.dumps(row_faults(errors)))
    return [*pieces, b"}"]


DECODE = Operation(DecodeRequest, _plan_row)
DECODE_BATCH = Operation(DecodeBatchRequest, _plan_rows)
