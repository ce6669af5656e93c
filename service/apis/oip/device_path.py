"""Encodes texts in shared memory on the device, which writes the ids to shared memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.apis.oip.region_tensors import find_device_slice
from service.apis.oip.requests import (
    EncodeParameters,
    Inference,
    InferenceResult,
    check_texts,
    find_offset_unit,
    make_error_tensor,
    row_offsets,
)
from service.apis.oip.state import OipState
from service.apis.oip.tensors import DATATYPE_NAMES, EMPTY, Outputs, Tensor, make_tensor
from service.operations.operation import make_shared_work
from service.operations.query_schemas import DTYPES
from service.registry.entries import LoadedVocabulary
from vocabularies.batch.shared_rows import SharedRows, SharedText


async def encode_shared(
    oip: OipState, request: Inference, entry: LoadedVocabulary, parameters: EncodeParameters
) -> InferenceResult | None:
    """Encode texts on the device; return None if the host is needed or no device can encode them.

    Raises:
        ServiceError: the request is invalid, or exceeds a limit.
    """
    source = request.inputs["text"].device_slice if "text" in request.inputs else None
    output_parameters = {each.name: each.parameters for each in request.outputs}
    target = find_device_slice(oip.regions, "input_ids", output_parameters.get("input_ids", {}))
    if source is None or target is None or parameters.padding is not None:
        return None
    if parameters.uppercase or find_offset_unit(request, parameters) is not None:
        return None
    dtype = np.dtype(DTYPES[parameters.dtype])
    offsets = row_offsets(request.inputs, source.byte_size)
    check_texts(oip.service, offsets)
    text = SharedText(source.memory, source.offset, source.byte_size)
    rows = SharedRows(
        text,
        offsets,
        out=target.memory,
        out_begin=target.offset,
        out_bytes=target.byte_size,
        id_bytes=dtype.itemsize,
        options=parameters.options(),
    )
    work = make_shared_work(oip.service, request.call, entry, rows)
    result = await oip.service.batcher.run(work)
    if result.output.offsets is None:
        return None
    offsets = result.output.offsets
    num_ids = int(offsets[-1])
    written = replace(target, byte_size=num_ids * dtype.itemsize)
    ids = Tensor("input_ids", DATATYPE_NAMES[dtype], (num_ids,), EMPTY, device_slice=written)
    outputs: Outputs = {
        "input_ids": lambda: ids,
        "offsets": lambda: make_tensor("offsets", offsets),
        "num_tokens": lambda: make_tensor("num_tokens", np.diff(offsets)),
        "errors": lambda: make_error_tensor(result),
    }
    return InferenceResult(outputs, len(offsets) - 1, work.started - work.submitted)
