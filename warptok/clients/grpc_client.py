"""A client of a service by gRPC that waits for each answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.operations.rendering.offset_units import convert_spans
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.sequences.window_layout import Junction
from vocabularies.sequences.windows import Windows
from warptok.clients.grpc_errors import make_error
from warptok.clients.service_calls import MANY_IDS, PART_BYTES, REFUSED, UNITS, part_rows
from warptok.clients.transport import RetryPolicy
from warptok.errors import InvalidRequest
from warptok.inputs import as_channel, as_id_rows, as_ids, as_text, make_batch, one_text
from warptok.options import (
    ID_TYPES,
    BatchOptions,
    IdType,
    Padding,
    Refused,
    Side,
    Special,
    TextOptions,
    Unit,
    check_counts,
    check_padding,
    choose,
    make_options,
)
from warptok.results import (
    EncodedBatch,
    PaddedBatch,
    TextChunks,
    Truncated,
    import_library,
    map_offsets,
    raise_refused,
)

if TYPE_CHECKING:
    import grpc

SERVICE = "/warptok.v1.Tokenizer/"
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


@dataclass(slots=True)
class _Rows:
    """The answers to the parts of a batch, by the numbers of its rows."""

    ids: list[NDArray[Any]]
    spans: list[NDArray[np.int64]]
    errors: dict[int, RowError] = field(default_factory=dict)
    truncated: dict[int, Truncated] = field(default_factory=dict)
    engine: str = ""
    digest: str = ""
    kernel_time: float = 0.0


class GrpcClient:
    """A running service with the methods of a `Tokenizer`, over gRPC.

    Args:
        target: the address of its port for gRPC, such as "127.0.0.1:8001".
        vocabulary: the name of the vocabulary that all calls use.
        api_key: the key; None: the service needs none.
        if_digest: refuse another vocabulary than the one with this digest; `windows` and calls that
            decode cannot check it by gRPC, and raise InvalidRequest.
        timeout_s: the longest time of one request; the service, too, stops after it.
        retries: how often a request is sent again where the service is busy, starts or stops, or
            the connection breaks. Every call may be: a text has the same ids each time.
        channel: a grpc.Channel with settings of its own, such as certificates, which the caller
            closes; None: one without TLS is made.

    Raises:
        NotInstalled: grpcio is not installed.

    Calls raise the errors of `warptok.errors`, with the codes of docs/errors.md. Several threads
    may use one client. Tokens as strings are `Client`'s alone, and padding needs `pad_id` and
    `padding_side`.
    """

    def __init__(
        self,
        target: str,
        vocabulary: str,
        *,
        api_key: str | None = None,
        if_digest: str | None = None,
        timeout_s: float = 30.0,
        retries: int = 3,
        channel: grpc.Channel | None = None,
    ) -> None:
        self._grpc = import_library("grpc", "GrpcClient")
        import_library("grpc_status", "GrpcClient")
        self._pb = import_module("service.protos.warptok_pb2")
        self.target, self.vocabulary = target, vocabulary
        self._if_digest = if_digest or ""
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        self._timeout_s, self._policy = timeout_s, RetryPolicy(retries)
        self._owns_channel = channel is None
        if channel is None:
            channel = self._grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._channel: grpc.Channel = channel

    def __repr__(self) -> str:
        return f"<warptok.GrpcClient {self.vocabulary!r} of {self.target}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, unless the caller gave the channel."""
        if self._owns_channel:
            self._channel.close()

    def encode(self, text: str | bytes, **options: Unpack[TextOptions]) -> list[int]:
        """Return the ids of one text; as `Tokenizer.encode`."""
        answer = self._encode_one("encode", text, options)
        ids: list[int] = np.frombuffer(answer.ids, np.int32).tolist()
        return ids

    def count(self, text: str | bytes, **options: Unpack[TextOptions]) -> int:
        """Count the ids of one text; as `Tokenizer.count`."""
        made = make_options("count", options)
        return int(self._count(one_text("count", text, options).with_options(made))[0])

    def offsets(
        self, text: str | bytes, unit: Unit = "codepoints", **options: Unpack[TextOptions]
    ) -> NDArray[np.int64]:
        """Return the place of each id in one text, int64[T, 2]; as `Tokenizer.offsets`."""
        choose("unit", unit, UNITS)
        answer = self._encode_one("offsets", text, options, spans=True)
        spans = np.frombuffer(answer.spans, np.int64).reshape(-1, 2).copy()
        return (
            spans if unit == "bytes" else convert_spans(spans, as_text(text, unit, options), unit)
        )

    @overload
    def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> EncodedBatch: ...

    @overload
    def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: Padding,
        padding_side: Side | None = None,
        pad_id: int | None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> PaddedBatch: ...

    def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: Padding | None = None,
        padding_side: Side | None = None,
        pad_id: int | None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> EncodedBatch | PaddedBatch:
        """Return the ids of several texts; as `Tokenizer.encode_batch`.

        Large batches are several requests, one after another, as are texts with options of their
        own.
        """
        choose("errors", errors, REFUSED)
        choose("dtype", dtype, tuple(ID_TYPES))
        check_padding(padding, padding_side, pad_id, dtype, MANY_IDS)
        if return_tokens:
            raise InvalidRequest("gRPC has no tokens; warptok.Client has", where="return_tokens")
        if padding is not None and (padding_side is None or pad_id is None):
            message = "gRPC does not say how the vocabulary pads: give padding_side= and pad_id="
            raise InvalidRequest(message, where="padding")
        if return_offsets is not None:
            choose("return_offsets", return_offsets, UNITS)
        batch = make_batch(texts, offsets, surrogates=options.get("surrogates", "refuse"))
        spans = return_offsets is not None
        batch = batch.with_options(make_options("encode_batch", options, len(batch), spans=spans))
        rows = self._encode_rows(batch, dtype)
        if errors == "raise":
            raise_refused(rows.errors)
        made = self._join(rows, batch, return_offsets, dtype)
        if padding is None:
            return made
        min_length = 0 if padding == "longest" else padding
        return made.pad(min_length, padding_side=padding_side, pad_id=pad_id)

    def count_batch(
        self, texts: Any, *, offsets: ArrayLike | None = None, **options: Unpack[BatchOptions]
    ) -> NDArray[np.int64]:
        """Count the ids of several texts, int64[B]; as `Tokenizer.count_batch`."""
        batch = make_batch(texts, offsets, surrogates=options.get("surrogates", "refuse"))
        return self._count(batch.with_options(make_options("count_batch", options, len(batch))))

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of one row of ids; as `Tokenizer.decode`."""
        data = self.decode_bytes(ids, skip_special_tokens=skip_special_tokens)
        return data.decode(errors="replace")

    def decode_bytes(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> bytes:
        """Return the bytes of one row of ids; as `Tokenizer.decode_bytes`."""
        self._refuse_digest("DecodeRequest")
        request = self._pb.DecodeRequest(
            vocabulary=self.vocabulary,
            ids=as_ids(ids).astype(np.int32).tobytes(),
            skip_special_tokens=skip_special_tokens,
        )
        data: bytes = self._call("Decode", request, self._pb.DecodeResponse).text
        return data

    def decode_batch(self, rows: Any, *, skip_special_tokens: bool = False) -> list[str]:
        """Return the texts of several rows of ids; as `Tokenizer.decode_batch`."""
        self._refuse_digest("DecodeBatchRequest")
        ids, offsets = as_id_rows(rows)
        texts: list[str] = []
        for begin, end in part_rows(offsets, PART_BYTES // 8):
            places = offsets[begin : end + 1]
            request = self._pb.DecodeBatchRequest(
                vocabulary=self.vocabulary,
                ids=ids[places[0] : places[-1]].astype(np.int32).tobytes(),
                offsets=(places - places[0]).tobytes(),
                skip_special_tokens=skip_special_tokens,
            )
            answer = self._call("DecodeBatch", request, self._pb.DecodeBatchResponse)
            raise_refused(_read_errors(answer, range(begin, end)))
            bounds = np.frombuffer(answer.offsets, np.int64).tolist()
            texts += [answer.data[a:b].decode(errors="replace") for a, b in pairwise(bounds)]
        return texts

    def chunks(
        self,
        text: str | bytes,
        *,
        chunk_size: int = 512,
        chunk_overlap: int = 0,
        add_special_tokens: bool = True,
        special: Special = "match",
        offset_unit: Unit = "codepoints",
        return_texts: bool = False,
    ) -> TextChunks:
        """Cut one text into chunks; as `Tokenizer.chunks`."""
        choose("offset_unit", offset_unit, UNITS)
        check_counts(chunk_size=(chunk_size, 1), chunk_overlap=(chunk_overlap, 0))
        make_options("chunks", {"add_special_tokens": add_special_tokens, "special": special})
        one_text("chunks", text, {})
        whole = as_text(text, "codepoints", {})
        request = self._pb.ChunksRequest(
            vocabulary=self.vocabulary,
            text=whole.encode(),
            chunk_size=chunk_size,
            chunk_overlap=chunk_overlap,
            add_special_tokens=add_special_tokens,
            special=special,
            if_digest=self._if_digest,
        )
        answer = self._call("Chunks", request, self._pb.ChunksResponse)
        spans = np.frombuffer(answer.spans, np.int64).reshape(-1, 2)
        texts = None
        if return_texts:
            places = convert_spans(spans, whole, "codepoints").tolist()
            texts = [whole[begin:end] for begin, end in places]
        return TextChunks(
            ids=np.frombuffer(answer.ids, np.int32).copy(),
            offsets=np.frombuffer(answer.offsets, np.int64).copy(),
            offset_mapping=convert_spans(spans, whole, offset_unit).copy(),
            starts=np.frombuffer(answer.starts, np.int64).copy(),
            texts=texts,
            num_tokens=answer.num_tokens,
            engine=answer.engine,
        )

    def windows(
        self,
        sequence: str | bytes,
        *,
        window: int = 512,
        stride: int = 256,
        circular: bool | None = None,
        junction: Junction | None = None,
        channel: ArrayLike | None = None,
        add_cls: bool = False,
        reverse_complement: bool = False,
        uppercase: bool = False,
    ) -> Windows:
        """Cut one sequence into windows; as `Tokenizer.windows`."""
        self._refuse_digest("WindowsRequest")
        check_counts(window=(window, 1), stride=(stride, 1))
        one_text("windows", sequence, {})
        text = as_text(sequence, "codepoints", {})
        values = as_channel(channel, len(text))
        request = self._pb.WindowsRequest(
            vocabulary=self.vocabulary,
            sequence=text.encode(),
            window=window,
            stride=stride,
            circular=circular,
            junction=junction or "",
            channel=b"" if values is None else values.astype(np.float32).tobytes(),
            add_cls=add_cls,
            reverse_complement=reverse_complement,
            uppercase=uppercase,
        )
        answer = self._call("Windows", request, self._pb.WindowsResponse)
        shape = answer.num_windows, answer.width

        def read(data: bytes, dtype: type[Any]) -> NDArray[Any]:
            return np.frombuffer(data, dtype).reshape(shape).copy()

        return Windows(
            input_ids=read(answer.input_ids, np.int32),
            attention_mask=read(answer.attention_mask, np.int8),
            position_ids=read(answer.position_ids, np.int64),
            channel=None if values is None else read(answer.channel, np.float32),
            starts=np.frombuffer(answer.starts, np.int64).copy(),
        )

    def vocabularies(self) -> list[dict[str, Any]]:
        """List the vocabularies of the service."""
        request = self._pb.ListVocabulariesRequest()
        answer = self._call("ListVocabularies", request, self._pb.ListVocabulariesResponse)
        names = self._pb.Vocabulary.DESCRIPTOR.fields_by_name
        return [{name: getattr(each, name) for name in names} for each in answer.vocabularies]

    def _encode_one(
        self, call: str, text: str | bytes, options: Mapping[str, Any], *, spans: bool = False
    ) -> Any:
        """Encode one text, and return the answer."""
        made = make_options(call, options, spans=spans)
        assert isinstance(made, EncodeOptions)
        request = self._pb.EncodeRequest(
            vocabulary=self.vocabulary,
            text=one_text(call, text, options).row_bytes(0),
            options=self._write_options(made, "int32"),
        )
        return self._call("Encode", request, self._pb.EncodeResponse)

    def _encode_rows(self, batch: Batch, dtype: IdType) -> _Rows:
        """Encode a batch, whose rows may have options of their own, part by part."""
        no_ids = np.zeros(0, ID_TYPES[dtype])
        rows = _Rows([no_ids] * len(batch), [np.zeros((0, 2), np.int64)] * len(batch))
        for options, numbers in batch.groups():
            part = batch.select(numbers, options)
            for begin, end in part_rows(part.offsets, PART_BYTES):
                request = self._write_batch(part.part(begin, end), options, dtype)
                answer = self._call("EncodeBatch", request, self._pb.EncodeBatchResponse)
                self._add(rows, answer, numbers[begin:end], dtype)
        return rows

    def _add(self, rows: _Rows, answer: Any, numbers: Any, dtype: IdType) -> None:
        """Add the answer to the rows of some numbers."""
        ids = np.frombuffer(answer.ids, ID_TYPES[dtype])
        spans = np.frombuffer(answer.spans, np.int64).reshape(-1, 2)
        places = pairwise(np.frombuffer(answer.offsets, np.int64).tolist())
        for row, (begin, end) in zip(numbers, places, strict=True):
            rows.ids[row] = ids[begin:end]
            rows.spans[row] = spans[begin:end]
        rows.errors |= _read_errors(answer, numbers)
        for cut in answer.truncated:
            kept = cut.kept_begin, cut.kept_end
            rows.truncated[numbers[cut.row]] = Truncated(cut.num_tokens, kept)
        rows.engine, rows.digest = answer.engine, answer.digest
        rows.kernel_time += answer.kernel_time

    def _join(self, rows: _Rows, batch: Batch, unit: Unit | None, dtype: IdType) -> EncodedBatch:
        """Make the answer of the ids of all rows."""
        sizes = np.fromiter(map(len, rows.ids), np.int64, len(rows.ids))
        offsets = offsets_from_lengths(sizes)
        ids = np.concatenate([np.zeros(0, ID_TYPES[dtype]), *rows.ids])
        mapping = None
        if unit is not None:
            spans = np.concatenate([np.zeros((0, 2), np.int64), *rows.spans])
            mapping = map_offsets(Encoded(ids, offsets, spans, errors=rows.errors), batch, unit)
        return EncodedBatch(
            ids=ids,
            offsets=offsets,
            engine=rows.engine,
            digest=rows.digest,
            offset_mapping=mapping,
            truncated=rows.truncated,
            errors=rows.errors,
            padding_side=None,
            kernel_time=rows.kernel_time,
        )

    def _count(self, batch: Batch) -> NDArray[np.int64]:
        """Count the ids of a batch, whose rows may have options of their own."""
        counts = np.zeros(len(batch), np.int64)
        for options, numbers in batch.groups():
            part = batch.select(numbers, options)
            for begin, end in part_rows(part.offsets, PART_BYTES):
                request = self._write_batch(part.part(begin, end), options, "int32")
                answer = self._call("Count", request, self._pb.CountResponse)
                raise_refused(_read_errors(answer, numbers[begin:end]))
                counts[list(numbers[begin:end])] = np.frombuffer(answer.num_tokens, np.int64)
        return counts

    def _write_batch(self, batch: Batch, options: EncodeOptions, dtype: IdType) -> Any:
        """Write the request of a batch with one set of options."""
        return self._pb.EncodeBatchRequest(
            vocabulary=self.vocabulary,
            data=batch.data.tobytes(),
            offsets=batch.offsets.tobytes(),
            options=self._write_options(options, dtype),
        )

    def _write_options(self, options: EncodeOptions, dtype: IdType) -> Any:
        """Write options, as the message has them."""
        return self._pb.Options(
            add_special_tokens=options.add_special_tokens,
            special=options.special,
            max_length=options.max_length,
            truncation_side=options.truncation_side,
            reverse_complement=options.reverse_complement,
            circular=options.circular,
            dtype=dtype,
            return_offsets=options.spans,
            if_digest=self._if_digest,
            invalid_utf8=options.invalid_utf8,
            return_kernel_time=True,
            uppercase=options.uppercase,
        )

    def _refuse_digest(self, message: str) -> None:
        """Raise InvalidRequest where `if_digest` is set, for a message without this field."""
        if self._if_digest:
            problem = f"{message} has no such field; warptok.Client checks it in every call"
            raise InvalidRequest(problem, where="if_digest")

    def _call(self, name: str, request: Any, response: Any) -> Any:
        """Send a request; send it again after an error that may pass.

        Raises:
            WarptokError: it is refused, or the service is not reached.
        """
        send = self._channel.unary_unary(
            SERVICE + name,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        for attempt in count():
            try:
                return send(request, timeout=self._timeout_s, metadata=self._metadata)
            except self._grpc.RpcError as failure:
                error = make_error(failure, self.target)
                wait_s = self._policy.wait_s(attempt, error)
                if wait_s is None:
                    raise error from failure
            time.sleep(wait_s)
        raise AssertionError("the loop has no end")


def _read_errors(answer: Any, numbers: Any) -> dict[int, RowError]:
    """Read the refused rows of an answer to the rows of some numbers."""
    return {
        numbers[each.row]: RowError(each.code, each.message, each.where) for each in answer.errors
    }
