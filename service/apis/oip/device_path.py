"""Encodes texts in shared memory on the device, which also writes the ids to shared memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.apis.oip.region_tensors import find_place
from service.apis.oip.requests import (
    EncodeParameters,
    Inference,
    check_texts,
    make_error_tensor,
    row_offsets,
)
from service.apis.oip.state import OipState
from service.apis.oip.tensors import NAMES, NOTHING, Outputs, Tensor, make_tensor
from service.operations.operation import shared_work
from service.operations.query_schemas import DTYPES
from service.registry.entries import LoadedVocabulary
from vocabularies.batch.shared_rows import SharedRows, SharedText


async def encode_shared(
    oip: OipState, request: Inference, entry: LoadedVocabulary, asked: EncodeParameters
) -> tuple[Outputs, int, float] | None:
    """Encode on the device; None if the request needs the host or no device can do it.

    Returns:
        The outputs, the number of rows, and the seconds in the queue.

    Raises:
        ServiceError: the request is invalid, or a limit refuses it.
    """
    source = request.inputs["text"].place if "text" in request.inputs else None
    wanted = {each.name: each.parameters for each in request.outputs}.get("input_ids", {})
    target = find_place(oip.regions, "input_ids", wanted)
    if source is None or target is None or asked.padding is not None:
        return None
    offsets, dtype = row_offsets(request.inputs, source.byte_size), np.dtype(DTYPES[asked.dtype])
    check_texts(oip.service, offsets)
    text = SharedText(source.memory, source.offset, source.byte_size)
    rows = SharedRows(
        text,
        offsets,
        out=target.memory,
        out_begin=target.offset,
        out_bytes=target.byte_size,
        id_bytes=dtype.itemsize,
        options=asked.options(),
    )
    work = shared_work(oip.service, request.call, entry, rows)
    result = await oip.service.batcher.run(work)
    if result.output.offsets is None:
        return None
    offsets = result.output.offsets
    place = replace(target, byte_size=int(offsets[-1]) * dtype.itemsize)
    ids = Tensor("input_ids", NAMES[dtype], (int(offsets[-1]),), NOTHING, place=place)
    outputs: Outputs = {
        "input_ids": lambda: ids,
        "offsets": lambda: make_tensor("offsets", offsets),
        "num_tokens": lambda: make_tensor("num_tokens", np.diff(offsets)),
        "errors": lambda: make_error_tensor(result),
    }
    return outputs, len(offsets) - 1, work.started - work.submitted
