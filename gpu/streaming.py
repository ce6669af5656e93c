"""Encodes text of any size into the caller's memory, of the host or of the device.

While one chunk is copied in, another is encoded and a third is copied out; see `pipeline`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.batch.resources import Resources
from gpu.batch.row_options import NOTHING_ADDED
from gpu.engine import GpuEngine
from gpu.errors import OutOfMemory
from gpu.host.arrays import address_of, put_begins
from gpu.large.chunk_in_flight import Work
from gpu.large.chunk_sizes import BY_BUS, TO_DEVICE, ChunkSizes
from gpu.large.chunking import Chunk, chunks_of
from gpu.large.pageable_output import PageableOutput
from gpu.large.pipeline import Pipeline
from gpu.large.stream_answer import StreamAnswer
from gpu.memory.output_buffer import OutputBuffer
from gpu.small import fused
from gpu.small.call import SmallCall
from gpu.small.direct_to_device import encode_direct
from gpu.small.fused import kernel_for, size_of
from gpu.small.zero_copy_letters import fetch_letters
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
ONE_THREAD_BYTES = 1 << 17  # Up to here, one thread copies ids faster than several wake up.


def _stream(
    pipeline: Pipeline,
    vocabulary: Vocabulary,
    resident: Resident,
    batch: Batch,
    out: OutputBuffer,
    id_bits: int,
    sizes: ChunkSizes,
) -> StreamAnswer:
    data, offsets, resources = batch.data, batch.offsets, pipeline.resources
    work = Work(resident, data, resources.device.is_pinned(data), id_bits=id_bits)
    pageable = PageableOutput(resources.leases, resources.staging) if out.is_pageable else None

    def answer() -> StreamAnswer:
        return StreamAnswer(out, len(offsets) - 1, pageable)

    def chunks(size: int) -> Iterator[Chunk]:
        return chunks_of(data, offsets, vocabulary, size, ends=sizes.ends)

    try:
        return pipeline.answer(work, chunks, answer, sizes.chunk_bytes, sizes.in_flight)
    finally:
        if pageable is not None:
            pageable.finish()


def encode_stream(
    engine: GpuEngine,
    vocabulary: Vocabulary,
    data: Bytes,
    offsets: Int64s,
    out: Any,
    *,
    chunk_bytes: int | None = None,
    in_flight: int = BY_BUS.in_flight,
) -> Int64s:
    """Encode UTF-8 rows into `out`; return the offsets int64[B + 1] in host memory.

    Special tokens are matched and nothing is added. Copies overlap with kernels. Data in pinned
    memory is copied directly, other data through pinned memory.

    Args:
        engine: the engine.
        vocabulary: the vocabulary.
        data: uint8[N], the rows joined.
        offsets: int64[B + 1], where each row begins.
        out: a flat array of int32, uint16 or uint8 that is long enough: a NumPy array, or an array
            of the device with `__cuda_array_interface__`, such as CuPy's and torch's. Work on it
            that was queued before must be done, unless the array names its stream. The ids are
            complete when this returns.
        chunk_bytes: the bytes of a chunk; None: a suitable size.
        in_flight: the largest number of chunks in flight.

    Raises:
        ValueError: `out` is too short, of another type, or too narrow for the vocabulary's ids;
            an offset is negative or beyond the end of the data; a row is refused.
        OutOfMemory: a row that must not be split does not fit into memory.
    """
    target = OutputBuffer.of(out, engine.device, ("<i4", "<u2", "|u1"))
    bits = 8 * target.item_bytes
    if bits < 32 and len(vocabulary) > 1 << bits:
        raise ValueError(f"{len(vocabulary)} ids do not fit in {bits} bits")
    pipeline, next_kernel = engine.pipeline, None
    resources = pipeline.resources
    if chunk_bytes is None and in_flight > 0:
        answer = fused.encode_to(resources, vocabulary.digest, data, offsets, target)
        if isinstance(answer, np.ndarray):
            return answer
        next_kernel = answer
    batch = Batch(data=data, offsets=offsets)
    sizes = TO_DEVICE if target.on_device else BY_BUS.of(len(batch.data))
    if chunk_bytes or in_flight != sizes.in_flight:
        sizes = ChunkSizes(chunk_bytes or sizes.chunk_bytes, in_flight, sizes.ends)
    with resources.residents.using(vocabulary) as resident:
        begins = None
        if target.on_device and resident.family.plain:
            begins = _encode_plain(resources, resident, batch, target)
        if begins is None and len(batch.data) <= sizes.chunk_bytes:
            begins = _encode_small(resources, vocabulary, resident, batch, target, next_kernel)
        if begins is None:
            stream = _stream(pipeline, vocabulary, resident, batch, target, bits, sizes)
            begins = stream.offsets
        return begins


def _encode_plain(
    resources: Resources, resident: Resident, batch: Batch, out: OutputBuffer
) -> Int64s | None:
    """Encode a batch of characters, or of k-mers up to some size, without fallback kernels.

    Returns None if the batch must be encoded in another way.
    """
    data, bits = batch.data, 8 * out.item_bytes
    if not len(data) or len(data) * out.item_bytes > out.num_bytes:
        return None
    with suppress(OutOfMemory):
        if not resident.family.fetch:
            return encode_direct(resources, resident, batch, out.address, bits)
        put_begins(offsets := np.empty_like(batch.offsets), batch.offsets)
        if fetch_letters(resources, resident, data, out.address, bits):
            return offsets
    return None  # Smaller chunks may fit.


def _encode_small(
    resources: Resources,
    vocabulary: Vocabulary,
    resident: Resident,
    batch: Batch,
    out: OutputBuffer,
    next_kernel: str | None,
) -> Int64s | None:
    """Encode a batch by a fused kernel; return None if there is none.

    `next_kernel`: "" if a fused kernel has been tried and could not finish the batch.

    The kernels write into pinned memory and device memory with room for one id a byte. The host
    fills other memory.
    """
    size, bits = (len(batch.data), len(batch)), 8 * out.item_bytes
    has_room = len(batch.data) * out.item_bytes <= out.num_bytes
    is_direct = has_room and not out.is_pageable
    if not resources.workspaces.is_small(*size) or (out.on_device and not has_room):
        return None
    try:
        kernel = (
            kernel_for(resources, resident, size_of(*size)) if next_kernel is None else next_kernel
        )
        if not kernel and next_kernel is None:
            return None
        workspace = resources.workspaces.take(*size, resident.family.layout)
    except OutOfMemory:
        return None  # Smaller chunks may fit.
    with SmallCall(
        resources, vocabulary, workspace, resident, batch, NOTHING_ADDED, validate=False
    ) as call:
        if is_direct:
            return call.encode_to(out.address, bits, kernel)
        begins = call.encode_to(address_of(workspace.ids), bits, kernel)
        ids = workspace.ids.view(np.uint8)[: out.item_bytes * int(begins[-1])]
        out.check_room(len(ids))
        if len(ids) > ONE_THREAD_BYTES:
            resources.staging.share(out.part(0, len(ids)), ids)
        else:
            out.part(0, len(ids))[:] = ids
        return begins
