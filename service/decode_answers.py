"""Ids in, text out: the calls decode and decode/batch, from their JSON to their JSON."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import orjson

from service.calls import ROW_BYTES, Body, Call, check_rows, deadline, find_entry, parse, row_faults
from service.errors import RowRefused
from service.json_pieces import head
from service.schemas import DecodeBatchRequest, DecodeRequest
from service.work import Result, Work

if TYPE_CHECKING:
    from service.registry import Entry
    from service.state import Service

__all__ = ["decode", "decode_batch"]


async def _run_ids(
    service: Service, call: Call, rows: list[list[int]], skip: bool, entry: Entry
) -> Result:
    work = Work("decode", entry.vocabulary, rows, skip_special_tokens=skip)
    work.num_bytes = 4 * sum(map(len, rows)) + ROW_BYTES * len(rows)
    work.deadline, work.receive = deadline(service, call), call.receive
    return await service.batcher.run(work)


def _row_data(result: Result, row: int) -> bytes:
    assert result.decoded is not None
    begin, end = result.offsets[row], result.offsets[row + 1]
    return result.decoded.data[begin:end].tobytes()


async def decode(service: Service, body: bytes, call: Call) -> Body:
    """POST /v1/decode: The text of one row of ids."""
    request = parse(DecodeRequest, body)
    entry = await find_entry(service, request.vocabulary, request.if_digest)
    result = await _run_ids(service, call, [request.ids], request.skip_special_tokens, entry)
    if result.errors and result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "/ids")
    data = _row_data(result, result.begin)
    pieces = [head(entry, b"text"), orjson.dumps(data.decode(errors="replace"))]
    if request.as_base64:
        pieces.append(b',"base64":"%b"' % base64.b64encode(data))
    return [*pieces, b"}"]


async def decode_batch(service: Service, body: bytes, call: Call) -> Body:
    """POST /v1/decode/batch: The text of each row; a refused row leaves the others answered."""
    request = parse(DecodeBatchRequest, body)
    check_rows(service, len(request.ids), "/ids")
    entry = await find_entry(service, request.vocabulary, request.if_digest)
    result = await _run_ids(service, call, request.ids, request.skip_special_tokens, entry)
    rows = [_row_data(result, row) for row in range(result.begin, result.end)]
    pieces = [head(entry, b"texts"), orjson.dumps([row.decode(errors="replace") for row in rows])]
    if request.as_base64:
        encoded = [base64.b64encode(row).decode() for row in rows]
        pieces.append(b',"base64":' + orjson.dumps(encoded))
    if errors := result.row_errors():
        pieces.append(b',"errors":' + orjson.dumps(row_faults(errors)))
    return [*pieces, b"}"]
