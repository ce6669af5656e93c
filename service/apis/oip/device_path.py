"""Ids of texts in shared memory that a device reads where they lie, put where they are wanted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import numpy as np

from service.apis.oip.region_tensors import place_of
from service.apis.oip.requests import (
    EncodeParameters,
    Inference,
    check_texts,
    errors_of,
    row_offsets,
)
from service.apis.oip.state import OipState
from service.apis.oip.tensors import NAMES, NOTHING, Outputs, Tensor, tensor_of
from service.operations.operation import shared_work
from service.operations.query_schemas import DTYPES
from service.registry.entries import LoadedVocabulary
from vocabularies.batch.shared_rows import SharedRows, SharedText


def _awake() -> None:
    """Nothing is to be done yet: a loop that has just been awake wakes sooner for the result."""


async def encode_shared(
    oip: OipState, request: Inference, entry: LoadedVocabulary, asked: EncodeParameters
) -> tuple[Outputs, int, float] | None:
    """Outputs, rows, and seconds in the queue; None where no device can, or the host is needed.

    Raises:
        ServiceError: the request is refused.
    """
    source = request.inputs["text"].place if "text" in request.inputs else None
    wanted = {each.name: each.parameters for each in request.outputs}.get("input_ids", {})
    target = place_of(oip.regions, "input_ids", wanted)
    if source is None or target is None or asked.padding is not None:
        return None
    offsets, dtype = row_offsets(request.inputs, source.byte_size), np.dtype(DTYPES[asked.dtype])
    check_texts(oip.service, offsets)
    text = SharedText(source.memory, source.offset, source.byte_size)
    out = target.memory, target.offset, target.byte_size, dtype.itemsize
    wake_loop = partial(asyncio.get_running_loop().call_soon_threadsafe, _awake)
    rows = SharedRows(text, offsets, *out, asked.options(), wake_loop)
    work = shared_work(oip.service, request.call, entry, rows)
    result = await oip.service.batcher.run(work)
    if result.output.offsets is None:
        return None
    offsets = result.output.offsets
    place = replace(target, byte_size=int(offsets[-1]) * dtype.itemsize)
    ids = Tensor("input_ids", NAMES[dtype], (int(offsets[-1]),), NOTHING, place=place)
    outputs: Outputs = {
        "input_ids": lambda: ids,
        "offsets": lambda: tensor_of("offsets", offsets),
        "num_tokens": lambda: tensor_of("num_tokens", np.diff(offsets)),
        "errors": lambda: errors_of(result),
    }
    return outputs, len(offsets) - 1, work.started - work.submitted
