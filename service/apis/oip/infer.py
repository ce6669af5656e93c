"""Answers inference requests of the Open Inference Protocol, where a vocabulary is a model.

    model {vocabulary}            text BYTES [N], or text UINT8 [bytes] with offsets INT64 [N + 1]
                                  ─► input_ids [T], offsets INT64 [N + 1]
                                  ─► padded: input_ids [N, L], attention_mask INT8 [N, L]
                                  ─► offset_mapping INT64 [T, 2], padded [N, L, 2]
    model {vocabulary}.decode     input_ids [T], offsets INT64 [N + 1] ─► text BYTES [N]

Options are parameters of the request, named as in the JSON calls. A refused text makes the request
fail, unless the request names the output `errors`. This module depends on neither HTTP nor gRPC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.apis.oip.device_path import encode_shared
from service.apis.oip.models import own_name
from service.apis.oip.region_tensors import fetch
from service.apis.oip.requests import (
    OFFSET_MAPPING,
    DecodeParameters,
    EncodeParameters,
    Inference,
    InferenceResult,
    check_texts,
    find_offset_unit,
    make_error_tensor,
    parse_parameters,
    row_offsets,
)
from service.apis.oip.state import OipState
from service.apis.oip.tensors import (
    BYTES,
    Outputs,
    Tensor,
    make_bytes_tensor,
    make_tensor,
    read_rows,
)
from service.batching.work import AnyResult, EncodeWork, IdRows, Result
from service.core.errors import InvalidRequest, RowRefused, ServiceError, TooLarge
from service.operations.context import Service
from service.operations.encode import check_dtype, find_pad_id
from service.operations.operation import (
    LARGE_BYTES,
    check_digest,
    check_rows,
    find_entry,
    make_bulk_work,
    make_decode_work,
)
from service.operations.query_schemas import DTYPES
from service.operations.rendering.offset_units import convert_spans
from service.operations.rendering.padding import pad_rows
from service.operations.schemas import Unit
from service.registry.entries import DECODE_SUFFIX, LoadedVocabulary
from vocabularies.batch.batch import Batch, Encoded


async def infer(oip: OipState, request: Inference) -> list[Tensor]:
    """Compute the outputs of a request, in the order that it requests, and count the request.

    Raises:
        ServiceError: the request or a row of it is refused.
    """
    begin = perf_counter()
    statistics = oip.statistics.get(own_name(oip.service, request.model))
    is_decode = request.model.endswith(DECODE_SUFFIX)
    if request.call.may is not None:
        request.call.may("decode" if is_decode else "encode")
    try:
        if is_decode:
            result = await _decode(oip.service, request)
        else:
            result = await _encode(oip, request)
        selected = _select_outputs(request, result.outputs)
    except Exception as error:
        statistics.add_failure(perf_counter() - begin)
        if isinstance(error, ServiceError):
            _place_in_parameters(error)
        raise
    statistics.add_success(result.num_rows, result.queue_s, perf_counter() - begin)
    return selected


def _place_in_parameters(error: ServiceError) -> None:
    """Change the place of a wrong option, which is a JSON pointer, to that of the parameter."""
    if error.where.startswith("/"):
        error.where = "parameters" + error.where
    error.findings = tuple(
        replace(each, where="parameters" + each.where) if each.where.startswith("/") else each
        for each in error.findings
    )


def _select_outputs(request: Inference, outputs: Outputs) -> list[Tensor]:
    names = [output.name for output in request.outputs]
    if len(set(names)) < len(names):
        raise InvalidRequest("an output is named twice", "outputs")
    if not request.outputs:
        return [make() for name, make in outputs.items() if name not in ("num_tokens", "errors")]
    for output in request.outputs:
        if output.name not in outputs:
            known = ", ".join(outputs)
            raise InvalidRequest(
                f"is not an output of this model; the outputs are {known}", f"outputs/{output.name}"
            )
        if output.parameters.get("classification"):
            where = f"outputs/{output.name}/classification"
            raise InvalidRequest("is not possible; no output has classes", where)
    return [outputs[output.name]() for output in request.outputs]


async def _encode(oip: OipState, request: Inference) -> InferenceResult:
    service = oip.service
    entry = await find_entry(service, request.call, request.model, "model")
    parameters: EncodeParameters = parse_parameters(EncodeParameters, request)
    check_digest(entry, parameters.if_digest)
    check_dtype(entry.vocabulary, parameters.dtype)
    if (shared := await encode_shared(oip, request, entry, parameters)) is not None:
        return shared
    for tensor in request.inputs.values():
        fetch(service, tensor)
    batch = _texts(service, request.inputs)
    check_texts(service, batch.offsets)
    dtype = batch.id_dtype = DTYPES[parameters.dtype]
    unit = find_offset_unit(request, parameters)
    options = parameters.options()
    if unit is not None:
        options = replace(options, spans=True)
    work = make_bulk_work(service, request.call, EncodeWork, entry, batch, options)
    result = await service.batcher.run(work)
    _check_refused(request, result, "text")
    offsets = result.output.offsets[result.begin : result.end + 1]
    ids = result.output.ids[offsets[0] : offsets[-1]].astype(dtype, copy=False)
    offsets = offsets - offsets[0]
    outputs = _id_outputs(service, entry, parameters, ids, offsets)
    if unit is not None:
        outputs |= await _span_outputs(batch, result, unit, offsets, outputs.get("attention_mask"))
    outputs["num_tokens"] = lambda: make_tensor("num_tokens", np.diff(offsets))
    outputs["errors"] = lambda: make_error_tensor(result)
    return InferenceResult(outputs, len(batch), work.started - work.submitted)


def _texts(service: Service, inputs: dict[str, Tensor]) -> Batch:
    """Read the texts of a request, in either of their two forms."""
    unknown = inputs.keys() - {"text", "offsets"}
    if "text" not in inputs or unknown:
        given = ", ".join(inputs) or "none"
        raise InvalidRequest(
            f"the inputs must be text and, if text is UINT8, offsets, not {given}", "inputs"
        )
    text = inputs["text"]
    if text.datatype == BYTES:
        if "offsets" in inputs:
            raise InvalidRequest("is only allowed if text is UINT8", "inputs/offsets")
        check_rows(service, text.num_elements, "inputs/text")
        return read_rows(text)
    if text.datatype != "UINT8":
        raise InvalidRequest(f"must be BYTES or UINT8, not {text.datatype}", "inputs/text")
    return Batch(data=text.data, offsets=row_offsets(inputs, len(text.data)))


def _id_outputs(
    service: Service,
    entry: LoadedVocabulary,
    parameters: EncodeParameters,
    ids: NDArray[Any],
    offsets: NDArray[np.int64],
) -> Outputs:
    """Create the outputs that contain ids: rows with offsets, or a padded matrix with its mask.

    Raises:
        ServiceError: the vocabulary has no padding token, or the matrix has too many ids.
    """
    if parameters.padding is None:
        return {
            "input_ids": lambda: make_tensor("input_ids", ids),
            "offsets": lambda: make_tensor("offsets", offsets),
        }
    pad_id = find_pad_id(parameters.pad_id, entry.vocabulary)
    min_width = 0 if parameters.padding == "longest" else int(parameters.padding)
    width = max(min_width, int(np.diff(offsets).max(initial=0)))
    limit = service.settings.max_padded_ids
    if width * (len(offsets) - 1) > limit:
        message = f"{len(offsets) - 1} rows of {width} ids; max_padded_ids is {limit}"
        raise TooLarge(message, "/padding")
    side = parameters.padding_side or entry.vocabulary.padding_side
    padded, mask = pad_rows(ids, offsets, pad_id, min_width, side)
    return {
        "input_ids": lambda: make_tensor("input_ids", padded.astype(ids.dtype, copy=False)),
        "attention_mask": lambda: make_tensor("attention_mask", mask),
    }


async def _span_outputs(
    batch: Batch,
    result: Result[Encoded],
    unit: Unit,
    offsets: NDArray[np.int64],
    make_mask: Callable[[], Tensor] | None,
) -> Outputs:
    """Create the output that contains the start and the end of each id in its text.

    Args:
        batch: the texts.
        result: the ids and their spans in bytes.
        unit: the unit of the output.
        offsets: the start of the ids of each text.
        make_mask: creates the attention mask; None: the ids are not padded.
    """
    if len(batch.data) > LARGE_BYTES:
        spans = await asyncio.to_thread(_convert_spans, batch, result, unit)
    else:
        spans = _convert_spans(batch, result, unit)
    if make_mask is not None:
        mask = make_mask()
        padded = np.zeros((*mask.shape, 2), np.int64)
        padded[mask.data.view(np.bool_).reshape(mask.shape)] = spans
        spans = padded
    return {OFFSET_MAPPING: lambda: make_tensor(OFFSET_MAPPING, spans)}


def _convert_spans(batch: Batch, result: Result[Encoded], unit: Unit) -> NDArray[np.int64]:
    """Convert the spans of all ids of a request, one text after another."""
    encoded = result.output
    assert encoded.spans is not None
    offsets = encoded.offsets[result.begin : result.end + 1].tolist()
    spans = encoded.spans[offsets[0] : offsets[-1]].copy()
    if unit == "bytes":
        return spans
    for row, (begin, end) in enumerate(pairwise(offsets)):
        place = slice(begin - offsets[0], end - offsets[0])
        data = batch.data[batch.offsets[row] : batch.offsets[row + 1]]
        text = data.tobytes().decode(errors="replace")  # A refused text has no ids.
        spans[place] = convert_spans(spans[place], text, unit)
    return spans


def _check_refused(request: Inference, result: AnyResult, where: str) -> None:
    """Raise RowRefused if a row was refused, unless the request names the output `errors`."""
    errors = result.row_errors()
    if errors and all(output.name != "errors" for output in request.outputs):
        row = min(errors)
        raise RowRefused(errors[row], f"{where}[{row}]")


async def _decode(service: Service, request: Inference) -> InferenceResult:
    entry = await find_entry(
        service, request.call, request.model.removesuffix(DECODE_SUFFIX), "model"
    )
    parameters: DecodeParameters = parse_parameters(DecodeParameters, request)
    check_digest(entry, parameters.if_digest)
    ids = request.inputs.get("input_ids")
    unknown = request.inputs.keys() - {"input_ids", "offsets"}
    if ids is None or ids.datatype == BYTES or unknown:
        given = ", ".join(request.inputs) or "none"
        raise InvalidRequest(
            f"the inputs must be input_ids, of an integer type, and offsets, not {given}", "inputs"
        )
    if len(ids.shape) > 2:
        message = f"must have one or two dimensions, not {len(ids.shape)}"
        raise InvalidRequest(message, "inputs/input_ids")
    if len(ids.shape) == 2:
        check_rows(service, ids.shape[0], "inputs/input_ids")
    rows = IdRows(ids.data, _id_offsets(ids, request.inputs))
    check_rows(service, len(rows), "offsets")
    work = make_decode_work(service, request.call, entry, rows, parameters.skip_special_tokens)
    result = await service.batcher.run(work)
    _check_refused(request, result, "input_ids")
    decoded = result.output
    offsets = decoded.offsets[result.begin : result.end + 1]
    text = Batch(data=decoded.data[offsets[0] : offsets[-1]], offsets=offsets - offsets[0])
    outputs: Outputs = {
        "text": lambda: make_bytes_tensor("text", text),
        "errors": lambda: make_error_tensor(result),
    }
    return InferenceResult(outputs, len(rows), work.started - work.submitted)


def _id_offsets(ids: Tensor, inputs: dict[str, Tensor]) -> NDArray[np.int64]:
    """Return the offsets of rows of ids: the input `offsets`, or those of a matrix."""
    if "offsets" in inputs or len(ids.shape) != 2:
        return row_offsets(inputs, len(ids.data))
    num_rows, width = ids.shape
    return np.arange(num_rows + 1, dtype=np.int64) * width
