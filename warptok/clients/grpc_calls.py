"""Builds the gRPC messages of each call and parses the answers; it sends nothing.

Each call is a generator that yields requests, receives the answer to each, and returns the result,
so that `GrpcClient` and `AsyncGrpcClient` share it. Arguments are checked before the first request,
as in `Tokenizer`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from service.operations.rendering.offset_units import convert_spans
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Encoded, EncodeOptions, RowError
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.sequences.augmentation import Augmentation
from vocabularies.sequences.window_layout import Junction
from vocabularies.sequences.windows import Windows
from warptok.clients.service_calls import (
    MANY_IDS,
    PART_BYTES,
    REFUSED,
    UNITS,
    augmentation_fields,
    part_rows,
)
from warptok.errors import InvalidRequest
from warptok.inputs import as_channel, as_id_rows, as_ids, as_text, make_batch, one_text
from warptok.options import (
    ID_TYPES,
    TOKEN_FORMS,
    IdType,
    Padding,
    Refused,
    Side,
    TokenForm,
    Unit,
    augment_rows,
    check_counts,
    check_padding,
    choose,
    make_augmentation,
    make_options,
)
from warptok.results import (
    EncodedBatch,
    PaddedBatch,
    TextChunks,
    Truncated,
    map_offsets,
    raise_refused,
)

SERVICE = "/warptok.v1.Tokenizer/"
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


class GrpcRequest(NamedTuple):
    """One request.

    Attributes:
        name: the name of the method, such as "Encode".
        message: the message to send.
        answer: the class of the message that answers it.
    """

    name: str
    message: Any
    answer: Any


Result = TypeVar("Result")
GrpcCall = Generator[GrpcRequest, Any, Result]


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The optional parts of an answer beside the ids.

    Attributes:
        dtype: the type of its ids.
        unit: the unit of the offsets of ids; None: the answer has no offsets.
        has_tokens: whether the answer has the token of each id as a string.
        changes: the random changes to the texts; None: the texts are unchanged.
        token_form: how the strings of tokens are written.
    """

    dtype: IdType = "int32"
    unit: Unit | None = None
    has_tokens: bool = False
    changes: Augmentation | None = None
    token_form: TokenForm = "text"


@dataclass(slots=True)
class _Rows:
    """The answers to the parts of a batch, by row number."""

    ids: list[NDArray[Any]]
    spans: list[NDArray[np.int64]]
    tokens: list[list[str]]
    errors: dict[int, RowError] = field(default_factory=dict)
    truncated: dict[int, Truncated] = field(default_factory=dict)
    engine: str = ""
    digest: str = ""
    kernel_time: float = 0.0


class GrpcCalls:
    """The calls on one vocabulary of a service.

    Args:
        vocabulary: the name of the vocabulary.
        if_digest: the digest that the vocabulary must have, or calls fail; None: any.
    """

    def __init__(self, vocabulary: str, if_digest: str | None = None) -> None:
        self._pb = import_module("service.protos.warptok_pb2")
        self._vocabulary = vocabulary
        self._if_digest = if_digest or ""

    def encode(self, text: Any, options: Mapping[str, Any]) -> GrpcCall[list[int]]:
        """Return the ids of one text."""
        answer = yield from self._encode_one("encode", text, options)
        ids: list[int] = np.frombuffer(answer.ids, np.int32).tolist()
        return ids

    def count(self, text: Any, options: Mapping[str, Any]) -> GrpcCall[int]:
        """Count the ids of one text."""
        made = make_options("count", options)
        batch = one_text("count", text, options).with_options(made)
        return int((yield from self._count(batch))[0])

    def offsets(
        self, text: Any, unit: Unit, options: Mapping[str, Any]
    ) -> GrpcCall[NDArray[np.int64]]:
        """Return the begin and end of each id in one text, int64[T, 2]."""
        choose("unit", unit, UNITS)
        answer = yield from self._encode_one("offsets", text, options, spans=True)
        spans = np.frombuffer(answer.spans, np.int64).reshape(-1, 2).copy()
        return (
            spans if unit == "bytes" else convert_spans(spans, as_text(text, unit, options), unit)
        )

    def encode_batch(
        self,
        texts: Any,
        offsets: Any,
        padding: Padding | None,
        padding_side: Side | None,
        pad_id: int | None,
        augmentation: Augmentation | Mapping[str, Any] | None,
        return_offsets: Unit | None,
        return_tokens: bool,
        token_form: TokenForm,
        dtype: IdType,
        errors: Refused,
        options: Mapping[str, Any],
    ) -> GrpcCall[EncodedBatch | PaddedBatch]:
        """Return the ids of several texts."""
        choose("errors", errors, REFUSED)
        choose("dtype", dtype, tuple(ID_TYPES))
        choose("token_form", token_form, TOKEN_FORMS)
        check_padding(padding, padding_side, pad_id, dtype, MANY_IDS)
        if padding is not None and (padding_side is None or pad_id is None):
            message = "gRPC does not say how the vocabulary pads: give padding_side= and pad_id="
            raise InvalidRequest(message, where="padding")
        if return_offsets is not None:
            choose("return_offsets", return_offsets, UNITS)
        changes = make_augmentation(augmentation, return_offsets)
        form = AnswerForm(dtype, return_offsets, return_tokens, changes, token_form)
        batch = make_batch(texts, offsets, surrogates=options.get("surrogates", "refuse"))
        spans = return_offsets is not None
        batch = batch.with_options(make_options("encode_batch", options, len(batch), spans=spans))
        rows = yield from self._encode_rows(batch, form)
        if errors == "raise":
            raise_refused(rows.errors)
        made = _join(rows, batch, form)
        if padding is None:
            return made
        min_length = 0 if padding == "longest" else padding
        return made.pad(min_length, padding_side=padding_side, pad_id=pad_id)

    def count_batch(
        self, texts: Any, offsets: Any, options: Mapping[str, Any]
    ) -> GrpcCall[NDArray[np.int64]]:
        """Count the ids of several texts, int64[B]."""
        batch = make_batch(texts, offsets, surrogates=options.get("surrogates", "refuse"))
        made = make_options("count_batch", options, len(batch))
        return (yield from self._count(batch.with_options(made)))

    def decode(self, ids: Any, skip_special_tokens: bool) -> GrpcCall[str]:
        """Return the text of one row of ids."""
        data = yield from self.decode_bytes(ids, skip_special_tokens)
        return data.decode(errors="replace")

    def decode_bytes(self, ids: Any, skip_special_tokens: bool) -> GrpcCall[bytes]:
        """Return the bytes of one row of ids."""
        message = self._pb.DecodeRequest(
            vocabulary=self._vocabulary,
            ids=_as_int32(as_ids(ids)),
            skip_special_tokens=skip_special_tokens,
            if_digest=self._if_digest,
        )
        data: bytes = (yield GrpcRequest("Decode", message, self._pb.DecodeResponse)).text
        return data

    def decode_batch(self, rows: Any, skip_special_tokens: bool) -> GrpcCall[list[str]]:
        """Return the texts of several rows of ids."""
        ids, offsets = as_id_rows(rows)
        texts: list[str] = []
        for begin, end in part_rows(offsets, PART_BYTES // 8):
            places = offsets[begin : end + 1]
            message = self._pb.DecodeBatchRequest(
                vocabulary=self._vocabulary,
                ids=_as_int32(ids[places[0] : places[-1]]),
                offsets=(places - places[0]).tobytes(),
                skip_special_tokens=skip_special_tokens,
                if_digest=self._if_digest,
            )
            answer = yield GrpcRequest("DecodeBatch", message, self._pb.DecodeBatchResponse)
            raise_refused(_read_errors(answer, range(begin, end)))
            bounds = np.frombuffer(answer.offsets, np.int64).tolist()
            texts += [answer.data[a:b].decode(errors="replace") for a, b in pairwise(bounds)]
        return texts

    def chunks(
        self,
        text: Any,
        chunk_size: int,
        chunk_overlap: int,
        add_special_tokens: bool,
        special: str,
        offset_unit: Unit,
        return_texts: bool,
    ) -> GrpcCall[TextChunks]:
        """Cut one text into chunks."""
        choose("offset_unit", offset_unit, UNITS)
        check_counts(chunk_size=(chunk_size, 1), chunk_overlap=(chunk_overlap, 0))
        make_options("chunks", {"add_special_tokens": add_special_tokens, "special": special})
        one_text("chunks", text, {})
        whole = as_text(text, "codepoints", {})
        message = self._pb.ChunksRequest(
            vocabulary=self._vocabulary,
            text=whole.encode(),
            chunk_size=chunk_size,
            chunk_overlap=chunk_overlap,
            add_special_tokens=add_special_tokens,
            special=special,
            if_digest=self._if_digest,
            return_kernel_time=True,
        )
        answer = yield GrpcRequest("Chunks", message, self._pb.ChunksResponse)
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
            kernel_time=answer.kernel_time,
        )

    def windows(
        self,
        sequence: Any,
        window: int,
        stride: int,
        circular: bool | None,
        junction: Junction | None,
        channel: Any,
        add_cls: bool,
        reverse_complement: bool,
        uppercase: bool,
    ) -> GrpcCall[Windows]:
        """Cut one sequence into windows."""
        check_counts(window=(window, 1), stride=(stride, 1))
        one_text("windows", sequence, {})
        text = as_text(sequence, "codepoints", {})
        values = as_channel(channel, len(text))
        message = self._pb.WindowsRequest(
            vocabulary=self._vocabulary,
            sequence=text.encode(),
            window=window,
            stride=stride,
            circular=circular,
            junction=junction or "",
            channel=b"" if values is None else values.astype(np.float32).tobytes(),
            add_cls=add_cls,
            reverse_complement=reverse_complement,
            uppercase=uppercase,
            if_digest=self._if_digest,
            return_kernel_time=True,
        )
        answer = yield GrpcRequest("Windows", message, self._pb.WindowsResponse)
        shape = answer.num_windows, answer.width

        def read(data: bytes, dtype: type[Any]) -> NDArray[Any]:
            return np.frombuffer(data, dtype).reshape(shape).copy()

        return Windows(
            input_ids=read(answer.input_ids, np.int32),
            attention_mask=read(answer.attention_mask, np.int8),
            position_ids=read(answer.position_ids, np.int64),
            channel=None if values is None else read(answer.channel, np.float32),
            starts=np.frombuffer(answer.starts, np.int64).copy(),
            kernel_time=answer.kernel_time,
        )

    def vocabularies(self) -> GrpcCall[list[dict[str, Any]]]:
        """List the vocabularies of the service."""
        message = self._pb.ListVocabulariesRequest()
        request = GrpcRequest("ListVocabularies", message, self._pb.ListVocabulariesResponse)
        answer = yield request
        names = self._pb.Vocabulary.DESCRIPTOR.fields_by_name
        return [{name: getattr(each, name) for name in names} for each in answer.vocabularies]

    def info(self) -> GrpcCall[dict[str, Any]]:
        """Describe the service."""
        message = self._pb.GetInfoRequest()
        answer = yield GrpcRequest("GetInfo", message, self._pb.GetInfoResponse)
        info: dict[str, Any] = orjson.loads(answer.json)
        return info

    def _encode_one(
        self, call: str, text: Any, options: Mapping[str, Any], *, spans: bool = False
    ) -> GrpcCall[Any]:
        """Encode one text, and return the answer."""
        made = make_options(call, options, spans=spans)
        assert isinstance(made, EncodeOptions)
        message = self._pb.EncodeRequest(
            vocabulary=self._vocabulary,
            text=one_text(call, text, options).row_bytes(0),
            options=self.write_options(made, AnswerForm()),
        )
        return (yield GrpcRequest("Encode", message, self._pb.EncodeResponse))

    def _encode_rows(self, batch: Batch, form: AnswerForm) -> GrpcCall[_Rows]:
        """Encode a batch in parts; rows may have different options."""
        num_rows = len(batch)
        no_ids, no_spans = np.zeros(0, ID_TYPES[form.dtype]), np.zeros((0, 2), np.int64)
        rows = _Rows([no_ids] * num_rows, [no_spans] * num_rows, [[]] * num_rows)
        if form.changes is not None and not isinstance(batch.options, EncodeOptions):
            # A request has one set of options, and rows that follow each other: change them here.
            message = self._write_batch(batch.part(0, 0), DEFAULT_OPTIONS, form, 0)
            yield GrpcRequest("EncodeBatch", message, self._pb.EncodeBatchResponse)
            batch, form = augment_rows(batch, form.changes), replace(form, changes=None)
        for numbers, part, options in _parts(batch):
            message = self._write_batch(part, options, form, numbers[0])
            answer = yield GrpcRequest("EncodeBatch", message, self._pb.EncodeBatchResponse)
            _add(rows, answer, numbers, form)
        return rows

    def _count(self, batch: Batch) -> GrpcCall[NDArray[np.int64]]:
        """Count the ids of a batch; rows may have different options."""
        counts = np.zeros(len(batch), np.int64)
        for numbers, part, options in _parts(batch):
            message = self._write_batch(part, options, AnswerForm(), 0)
            answer = yield GrpcRequest("Count", message, self._pb.CountResponse)
            raise_refused(_read_errors(answer, numbers))
            counts[list(numbers)] = np.frombuffer(answer.num_tokens, np.int64)
        return counts

    def _write_batch(
        self, batch: Batch, options: EncodeOptions, form: AnswerForm, begin: int
    ) -> Any:
        """Build the request of rows with the same options; the first one is row `begin`."""
        written = self.write_options(options, form)
        if form.changes is not None:
            fields = augmentation_fields(form.changes, begin)
            written.augmentation.CopyFrom(self._pb.Augmentation(**fields))
        return self._pb.EncodeBatchRequest(
            vocabulary=self._vocabulary,
            data=batch.data.tobytes(),
            offsets=batch.offsets.tobytes(),
            options=written,
        )

    def write_options(self, options: EncodeOptions, form: AnswerForm) -> Any:
        """Write options as fields of the message."""
        return self._pb.Options(
            add_special_tokens=options.add_special_tokens,
            special=options.special,
            max_length=options.max_length,
            truncation_side=options.truncation_side,
            reverse_complement=options.reverse_complement,
            circular=options.circular,
            dtype=form.dtype,
            return_offsets=options.spans,
            if_digest=self._if_digest,
            invalid_utf8=options.invalid_utf8,
            return_kernel_time=True,
            uppercase=options.uppercase,
            return_tokens=form.has_tokens,
            token_form=form.token_form if form.has_tokens else "",
        )


def _as_int32(ids: NDArray[np.int64]) -> bytes:
    """Return ids as int32 bytes; clip larger ids to a value that the service refuses as well."""
    limits = np.iinfo(np.int32)
    return ids.clip(limits.min, limits.max).astype(np.int32).tobytes()


def _parts(batch: Batch) -> Iterator[tuple[Sequence[int], Batch, EncodeOptions]]:
    """Yield parts of a batch: the numbers, the texts and the common options of a part's rows."""
    for options, numbers in batch.groups():
        selected = batch.select(numbers, options)
        for begin, end in part_rows(selected.offsets, PART_BYTES):
            yield numbers[begin:end], selected.part(begin, end), options


def _add(rows: _Rows, answer: Any, numbers: Sequence[int], form: AnswerForm) -> None:
    """Add the answer to the rows with these numbers."""
    ids = np.frombuffer(answer.ids, ID_TYPES[form.dtype])
    spans = np.frombuffer(answer.spans, np.int64).reshape(-1, 2)
    tokens = list(answer.tokens)
    places = pairwise(np.frombuffer(answer.offsets, np.int64).tolist())
    for row, (begin, end) in zip(numbers, places, strict=True):
        rows.ids[row] = ids[begin:end]
        rows.spans[row] = spans[begin:end]
        rows.tokens[row] = tokens[begin:end]
    rows.errors |= _read_errors(answer, numbers)
    for cut in answer.truncated:
        kept = cut.kept_begin, cut.kept_end
        rows.truncated[numbers[cut.row]] = Truncated(cut.num_tokens, kept)
    rows.engine, rows.digest = answer.engine, answer.digest
    rows.kernel_time += answer.kernel_time


def _join(rows: _Rows, batch: Batch, form: AnswerForm) -> EncodedBatch:
    """Make one answer from the ids of all rows."""
    sizes = np.fromiter(map(len, rows.ids), np.int64, len(rows.ids))
    offsets = offsets_from_lengths(sizes)
    ids = np.concatenate([np.zeros(0, ID_TYPES[form.dtype]), *rows.ids])
    mapping = None
    if form.unit is not None:
        spans = np.concatenate([np.zeros((0, 2), np.int64), *rows.spans])
        mapping = map_offsets(Encoded(ids, offsets, spans, errors=rows.errors), batch, form.unit)
    return EncodedBatch(
        ids=ids,
        offsets=offsets,
        engine=rows.engine,
        digest=rows.digest,
        offset_mapping=mapping,
        tokens=rows.tokens if form.has_tokens else None,
        truncated=rows.truncated,
        errors=rows.errors,
        padding_side=None,
        kernel_time=rows.kernel_time,
    )


def _read_errors(answer: Any, numbers: Sequence[int]) -> dict[int, RowError]:
    """Read the refused rows of the answer to the rows with these numbers."""
    return {
        numbers[each.row]: RowError(each.code, each.message, each.where) for each in answer.errors
    }
