"""Implements the token calls of warptok.v1.Tokenizer.

Each call converts its request to a work item, and the result to a message. Limits and refusals are
the same as over HTTP; warptok.proto describes the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from service.apis.bulk.arrow_reader import check_sizes
from service.apis.grpc.conversions import (
    TextsRequest,
    error_messages,
    read_array,
    read_augmentation,
    read_dtype,
    read_offsets,
    read_options,
    truncated_messages,
)
from service.apis.grpc.large_fields import with_field
from service.batching.work import CountWork, EncodeWork, IdRows, Result
from service.core.call import Call
from service.core.errors import InvalidRequest, RowRefused, TooLarge
from service.core.problem_details import invalid_body
from service.engines.base import Decoded
from service.http.streaming_response import run_part
from service.operations.augmented_texts import RowAugmenter, check_augmentation
from service.operations.chunks import plan_chunks
from service.operations.context import Service
from service.operations.encode import check_dtype
from service.operations.operation import (
    LARGE_BYTES,
    check_digest,
    check_rows,
    find_entry,
    make_bulk_work,
    make_decode_work,
)
from service.operations.schemas import ChunksRequest, WindowsRequest
from service.operations.unknown_ids import find_unknown_share
from service.operations.windows import plan_windows
from service.protos import warptok_pb2 as pb
from service.registry.entries import LoadedVocabulary
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.model.vocabulary import TokenForm

READ_AHEAD = 2  # Maximum number of a stream's unsent answers.


async def encode(service: Service, call: Call, request: pb.EncodeRequest) -> pb.EncodeResponse:
    """Encode one text."""
    entry, dtype = await _vocabulary(service, call, request.vocabulary, request.options)
    _refuse(request.options, "augmentation", "is of EncodeBatch and EncodeStream")
    text = request.text
    _check_bytes(service, len(text), "text")
    batch = _one_row(text)
    batch.id_dtype = dtype
    work = make_bulk_work(service, call, EncodeWork, entry, batch, read_options(request.options))
    result = await service.batcher.run(work)
    if result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "text")
    if request.options.return_tokens and len(text) > LARGE_BYTES:
        return await asyncio.to_thread(_text_response, entry, result, dtype, request.options)
    return _text_response(entry, result, dtype, request.options)


async def encode_batch(service: Service, call: Call, request: TextsRequest) -> bytes:
    """Encode many texts."""
    message = request.message
    entry, dtype = await _vocabulary(service, call, message.vocabulary, message.options)
    augmenter = _make_augmenter(entry, message.options)
    batch = await _read_batch(service, request, augmenter)
    work = _batch_work(service, call, entry, batch, message.options, dtype)
    result = await service.batcher.run(work)
    return await _write_batch(entry, result, dtype, message.options)


async def encode_stream(
    service: Service, call: Call, requests: AsyncIterator[TextsRequest]
) -> AsyncIterator[bytes]:
    """Encode a stream of requests; answer in order, while later requests are read and encoded."""
    running: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(READ_AHEAD)
    reading = asyncio.create_task(_read_stream(service, call, requests, running))
    service.batcher.num_streams += 1
    try:
        while (task := await running.get()) is not None:
            yield await task
        await reading
    finally:
        service.batcher.num_streams -= 1
        reading.cancel()
        while not running.empty():
            if (task := running.get_nowait()) is not None:
                task.cancel()


async def _read_stream(
    service: Service,
    call: Call,
    requests: AsyncIterator[TextsRequest],
    running: asyncio.Queue[asyncio.Task[bytes] | None],
) -> None:
    """Read the requests of a stream, and start a task for each; a refused request ends the stream.

    The answers to earlier requests are sent first. The vocabulary and the options of the first
    request apply to all.
    """
    entry: LoadedVocabulary | None = None
    first = pb.EncodeBatchRequest()
    augmenter: RowAugmenter | None = None
    try:
        async for request in requests:
            if entry is None:
                first = request.message
                entry, dtype = await _vocabulary(service, call, first.vocabulary, first.options)
                augmenter = _make_augmenter(entry, first.options)
            batch = await _read_batch(service, request, augmenter)
            work = _batch_work(service, call, entry, batch, first.options, dtype)
            part = _answer_part(service, entry, work, dtype, first.options)
            await running.put(asyncio.create_task(part))
    finally:
        await running.put(None)


async def _answer_part(
    service: Service,
    entry: LoadedVocabulary,
    work: EncodeWork,
    dtype: type[np.integer[Any]],
    options: pb.Options,
) -> bytes:
    return await _write_batch(entry, await run_part(service.batcher, work), dtype, options)


async def count(service: Service, call: Call, request: TextsRequest) -> pb.CountResponse:
    """Count the ids of each text."""
    message = request.message
    entry, _ = await _vocabulary(service, call, message.vocabulary, message.options)
    for option in ("augmentation", "return_offsets", "return_tokens"):
        _refuse(message.options, option, "is not of Count")
    batch = _checked_batch(service, request)
    work = make_bulk_work(service, call, CountWork, entry, batch, read_options(message.options))
    result = await service.batcher.run(work)
    return pb.CountResponse(
        num_tokens=result.output.counts[result.begin : result.end].astype(np.int64).tobytes(),
        engine=result.engine,
        digest=entry.vocabulary.digest,
        errors=error_messages(result.row_errors()),
        kernel_time=result.seconds if message.options.return_kernel_time else 0.0,
    )


async def decode(service: Service, call: Call, request: pb.DecodeRequest) -> pb.DecodeResponse:
    """Decode one row of ids."""
    ids = read_array(request.ids, np.int32, "ids")
    result = await _decode(service, call, request, IdRows(ids, np.array([0, len(ids)])))
    if result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "ids")
    data, _ = _select_texts(result)
    return pb.DecodeResponse(text=data.tobytes(), engine=result.engine)


async def decode_batch(
    service: Service, call: Call, request: pb.DecodeBatchRequest
) -> pb.DecodeBatchResponse:
    """Decode many rows of ids."""
    ids = read_array(request.ids, np.int32, "ids")
    rows = IdRows(ids, read_offsets(request.offsets, len(ids)))
    check_rows(service, len(rows), "offsets")
    result = await _decode(service, call, request, rows)
    data, offsets = _select_texts(result)
    return pb.DecodeBatchResponse(
        data=data.tobytes(),
        offsets=offsets.tobytes(),
        engine=result.engine,
        errors=error_messages(result.row_errors()),
    )


async def windows(service: Service, call: Call, request: pb.WindowsRequest) -> pb.WindowsResponse:
    """Cut the tokens of one sequence into overlapping windows."""
    entry = await find_entry(service, call, request.vocabulary)
    check_digest(entry, request.if_digest or None)
    sequence = _decode_text(request.sequence, "sequence")
    given: dict[str, Any] = {"junction": request.junction} if request.junction else {}
    try:
        windows_request = WindowsRequest(
            vocabulary=request.vocabulary,
            sequence=sequence,
            window=request.window,
            stride=request.stride,
            circular=request.circular if request.HasField("circular") else None,
            channel=_channel(request.channel, len(sequence)),
            add_cls=request.add_cls,
            reverse_complement=request.reverse_complement,
            uppercase=request.uppercase,
            **given,
        )
    except ValidationError as error:
        raise invalid_body(error) from error
    work, cut = plan_windows(service, call, entry, windows_request)
    result = await service.batcher.run(work)
    made = cut(result)
    return pb.WindowsResponse(
        input_ids=made.input_ids.tobytes(),
        attention_mask=made.attention_mask.tobytes(),
        position_ids=made.position_ids.tobytes(),
        channel=made.channel.tobytes() if made.channel is not None else b"",
        num_windows=made.input_ids.shape[0],
        width=made.input_ids.shape[1],
        starts=made.starts.tobytes(),
        kernel_time=result.seconds if request.return_kernel_time else 0.0,
    )


async def chunks(service: Service, call: Call, request: pb.ChunksRequest) -> pb.ChunksResponse:
    """Cut one text into overlapping chunks of ids."""
    entry = await find_entry(service, call, request.vocabulary)
    check_digest(entry, request.if_digest or None)
    given: dict[str, Any] = {"text": _decode_text(request.text, "text")}
    if request.chunk_size:
        given["chunk_size"] = request.chunk_size
    if request.HasField("add_special_tokens"):
        given["add_special_tokens"] = request.add_special_tokens
    if request.special:
        given["special"] = request.special
    overlap = request.chunk_overlap
    try:
        chunks_request = ChunksRequest(
            vocabulary=request.vocabulary, chunk_overlap=overlap, **given
        )
    except ValidationError as error:
        raise invalid_body(error) from error
    work, cut = plan_chunks(service, call, entry, chunks_request)
    result = await service.batcher.run(work)
    made = cut(result)
    return pb.ChunksResponse(
        ids=made.ids.astype(np.int32, copy=False).tobytes(),
        offsets=made.offsets.tobytes(),
        spans=made.spans.tobytes(),
        starts=made.starts.tobytes(),
        num_tokens=made.num_tokens,
        engine=result.engine,
        digest=entry.vocabulary.digest,
        kernel_time=result.seconds if request.return_kernel_time else 0.0,
    )


def _decode_text(text: bytes, where: str) -> str:
    """Decode a text from UTF-8.

    Raises:
        RowRefused: the text is not UTF-8.
    """
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        message = f"the {where} is not UTF-8: {error.reason}"
        raise RowRefused(RowError("not_utf8", message, f"byte {error.start}"), where) from error


def _channel(data: bytes, num_bases: int) -> list[float] | None:
    """Read the channel, which contains a value for each base; return None if there is none.

    Raises:
        InvalidRequest: the number of values differs from the number of bases.
    """
    if not data:
        return None
    values = read_array(data, np.float32, "channel")
    if len(values) != num_bases:
        raise InvalidRequest(f"{len(values)} values for {num_bases} bases", "channel")
    levels: list[float] = values.tolist()
    return levels


async def _vocabulary(
    service: Service, call: Call, name: str, options: pb.Options
) -> tuple[LoadedVocabulary, type[np.integer[Any]]]:
    """Return the vocabulary of a request, and the dtype of its ids.

    The options of the request are checked against the vocabulary.
    """
    entry, dtype = await find_entry(service, call, name), read_dtype(options)
    check_digest(entry, options.if_digest or None, "options.if_digest")
    check_dtype(entry.vocabulary, np.dtype(dtype).name, "options.dtype")
    return entry, dtype


def _refuse(options: pb.Options, name: str, reason: str) -> None:
    """Check that a request does not set an option that the call does not support.

    Raises:
        InvalidRequest: the request sets the option.
    """
    if name in {field.name for field, _ in options.ListFields()}:
        raise InvalidRequest(f"{name} {reason}", f"options.{name}")


def _make_augmenter(entry: LoadedVocabulary, options: pb.Options) -> RowAugmenter | None:
    """Create the object that augments the rows of a call; return None if none is requested.

    Raises:
        InvalidRequest: the vocabulary is for text, or offsets are requested.
    """
    augmentation = read_augmentation(options)
    if augmentation is None:
        return None
    spans = "options.return_offsets" if options.return_offsets else None
    check_augmentation(entry.vocabulary, "options.augmentation", spans=spans)
    return RowAugmenter(augmentation, "row {}")


def _name_tokens(
    entry: LoadedVocabulary, options: pb.Options, ids: NDArray[np.integer[Any]]
) -> list[str]:
    """Return the token of each id as a string; [] if not requested."""
    if not options.return_tokens:
        return []
    form: TokenForm = "file" if options.token_form == "file" else "text"
    return [entry.vocabulary.show_token(token_id, form) for token_id in ids.tolist()]


def _check_bytes(service: Service, num_bytes: int, where: str) -> None:
    limit = service.settings.max_text_bytes
    if num_bytes > limit:
        raise TooLarge(f"the text has {num_bytes} bytes; max_text_bytes is {limit}", where)


def _one_row(text: bytes) -> Batch:
    return Batch(data=np.frombuffer(text, np.uint8), offsets=np.array([0, len(text)]))


def _checked_batch(service: Service, request: TextsRequest) -> Batch:
    batch = request.batch()
    check_rows(service, len(batch), "offsets")
    check_sizes(batch, service.settings.max_text_bytes, "row")
    return batch


async def _read_batch(
    service: Service, request: TextsRequest, augmenter: RowAugmenter | None
) -> Batch:
    """Read and augment the texts of a request, in a thread if they are large."""
    batch = _checked_batch(service, request)
    if augmenter is None:
        return batch
    if len(batch.data) > LARGE_BYTES:
        return await asyncio.to_thread(augmenter.augment, batch)
    return augmenter.augment(batch)


def _batch_work(
    service: Service,
    call: Call,
    entry: LoadedVocabulary,
    batch: Batch,
    options: pb.Options,
    dtype: type[np.integer[Any]],
) -> EncodeWork:
    batch.id_dtype = dtype
    return make_bulk_work(service, call, EncodeWork, entry, batch, read_options(options))


def _text_response(
    entry: LoadedVocabulary,
    result: Result[Encoded],
    dtype: type[np.integer[Any]],
    options: pb.Options,
) -> pb.EncodeResponse:
    """Create an EncodeResponse."""
    rows = _select_rows(result, dtype)
    truncated = truncated_messages(result)
    return pb.EncodeResponse(
        ids=rows.ids.tobytes(),
        num_tokens=len(rows.ids),
        spans=rows.spans.tobytes() if rows.spans is not None else b"",
        engine=result.engine,
        digest=entry.vocabulary.digest,
        truncated=truncated[0] if truncated else None,
        kernel_time=result.seconds if options.return_kernel_time else 0.0,
        unknown_share=find_unknown_share(entry.vocabulary, rows.ids) or 0.0,
        tokens=_name_tokens(entry, options, rows.ids),
    )


async def _write_batch(
    entry: LoadedVocabulary,
    result: Result[Encoded],
    dtype: type[np.integer[Any]],
    options: pb.Options,
) -> bytes:
    """Serialize an EncodeBatchResponse, in a thread if it contains tokens as strings."""
    if options.return_tokens:
        return await asyncio.to_thread(_batch_response, entry, result, dtype, options)
    return _batch_response(entry, result, dtype, options)


def _batch_response(
    entry: LoadedVocabulary,
    result: Result[Encoded],
    dtype: type[np.integer[Any]],
    options: pb.Options,
) -> bytes:
    """Serialize an EncodeBatchResponse; its ids are copied once."""
    rows = _select_rows(result, dtype)
    message = pb.EncodeBatchResponse(
        offsets=rows.offsets.tobytes(),
        spans=rows.spans.tobytes() if rows.spans is not None else b"",
        engine=result.engine,
        digest=entry.vocabulary.digest,
        truncated=truncated_messages(result),
        errors=error_messages(result.row_errors()),
        kernel_time=result.seconds if options.return_kernel_time else 0.0,
        unknown_share=find_unknown_share(entry.vocabulary, rows.ids) or 0.0,
        tokens=_name_tokens(entry, options, rows.ids),
    )
    number = pb.EncodeBatchResponse.IDS_FIELD_NUMBER
    return with_field(number, np.ascontiguousarray(rows.ids).data, message.SerializeToString())


class _Rows(NamedTuple):
    """The encoded rows of one request.

    Attributes:
        ids: the ids [T] of all rows.
        offsets: int64[B + 1], the start of each row.
        spans: int64[T, 2], the start and the end of each id in its text; None if not requested.
    """

    ids: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]
    spans: NDArray[np.int64] | None


def _select_rows(result: Result[Encoded], dtype: type[np.integer[Any]]) -> _Rows:
    """Select the ids of one request from the result of its batch."""
    encoded = result.output
    offsets = encoded.offsets[result.begin : result.end + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    spans = None if encoded.spans is None else encoded.spans[begin:end]
    return _Rows(encoded.ids[begin:end].astype(dtype, copy=False), offsets - begin, spans)


async def _decode(
    service: Service,
    call: Call,
    request: pb.DecodeRequest | pb.DecodeBatchRequest,
    rows: IdRows,
) -> Result[Decoded]:
    entry = await find_entry(service, call, request.vocabulary)
    check_digest(entry, request.if_digest or None)
    work = make_decode_work(service, call, entry, rows, request.skip_special_tokens)
    return await service.batcher.run(work)


def _select_texts(result: Result[Decoded]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the texts of one request as uint8, and their offsets int64[B + 1]."""
    decoded = result.output
    offsets = decoded.offsets[result.begin : result.end + 1]
    return decoded.data[offsets[0] : offsets[-1]], offsets - offsets[0]
