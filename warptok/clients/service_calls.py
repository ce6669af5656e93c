"""Builds the HTTP requests of each call and parses the answers; it sends nothing.

Each call is a generator that yields requests, receives the answer to each, and returns the result,
so that `Client` and `AsyncClient` share it. Arguments are checked before the first request, as in
`Tokenizer`.
"""

from __future__ import annotations

import base64
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch, RowError
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.sequences.augmentation import Augmentation
from vocabularies.sequences.window_layout import Junction
from vocabularies.sequences.windows import Windows
from warptok.clients.transport import Request, Response
from warptok.errors import error_class
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
    check_counts,
    check_options,
    check_padding,
    choose,
    is_list,
    make_augmentation,
    make_options,
    plain_options,
)
from warptok.results import (
    EncodedBatch,
    PaddedBatch,
    TextChunks,
    Truncated,
    import_library,
    raise_refused,
)

Result = TypeVar("Result")
Call = Generator[Request, Response, Result]
PART_BYTES = 8 << 20  # Of texts in one request: answers stay below what a service keeps unsent.
PART_ROWS = 16_384
MANY_IDS = 1 << 31  # More than any vocabulary has; the service knows how many there are.
UNITS: tuple[Unit, ...] = ("codepoints", "utf16", "bytes")
REFUSED: tuple[Refused, ...] = ("raise", "keep")
ARROW = "application/vnd.apache.arrow.stream"
OCTETS = "application/octet-stream"
JSON = "application/json"
PROBE, PROBE_LENGTH = "ACGTACGTACGTACGT", 64


@dataclass(frozen=True, slots=True)
class PaddingRule:
    """The id that pads rows, and the side that is padded."""

    pad_id: int
    side: Side


class ServiceCalls:
    """The calls on one vocabulary of a service.

    Args:
        vocabulary: the name of the vocabulary.
        if_digest: the digest that the vocabulary must have, or calls fail; None: any.
    """

    def __init__(self, vocabulary: str, if_digest: str | None = None) -> None:
        self._names = {"vocabulary": vocabulary}
        if if_digest is not None:
            self._names["if_digest"] = if_digest
        self._padding: dict[int | None, PaddingRule] = {}

    def encode(self, text: Any, options: Mapping[str, Any]) -> Call[list[int]]:
        """Return the ids of one text."""
        options = plain_options(options)
        make_options("encode", options)
        body = one_text("encode", text, options).row_bytes(0)
        answer = yield self._send_text(body, options, {}, OCTETS)
        ids: list[int] = np.frombuffer(answer.content, "<i4").tolist()
        return ids

    def count(self, text: Any, options: Mapping[str, Any]) -> Call[int]:
        """Count the ids of one text."""
        options = plain_options(options)
        make_options("count", options)
        batch = one_text("count", text, options)
        return int((yield from self._count(batch, options))[0])

    def offsets(self, text: Any, unit: Unit, options: Mapping[str, Any]) -> Call[NDArray[np.int64]]:
        """Return the begin and end of each id in one text, int64[T, 2]."""
        choose("unit", unit, UNITS)
        options = plain_options(options)
        make_options("offsets", options)
        body = one_text("offsets", text, options).row_bytes(0)
        answer = yield self._send_text(body, options, {"return_offsets": unit}, JSON)
        return np.array(answer.json()["offsets"], np.int64).reshape(-1, 2)

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
    ) -> Call[EncodedBatch | PaddedBatch]:
        """Return the ids of several texts; use Arrow if the bulk route supports these options."""
        choose("errors", errors, REFUSED)
        choose("dtype", dtype, tuple(ID_TYPES))
        choose("token_form", token_form, TOKEN_FORMS)
        check_padding(padding, padding_side, pad_id, dtype, MANY_IDS)
        if return_offsets is not None:
            choose("return_offsets", return_offsets, UNITS)
        batch = make_batch(texts, offsets, surrogates=options.get("surrogates", "refuse"))
        options = plain_options(options)
        make_options("encode_batch", options, len(batch))
        changes = make_augmentation(augmentation, return_offsets)
        own: dict[str, Any] = {"dtype": dtype, "return_kernel_time": True}
        if return_offsets is not None or return_tokens or any(map(is_list, options.values())):
            own |= {"return_offsets": return_offsets, "return_tokens": return_tokens}
            own["token_form"] = token_form
            rows = yield from self._encode_by_json(batch, own, options, changes)
        elif find_spec("pyarrow") is not None:
            rows = yield from self._encode_by_arrow(batch, own, options, changes)
        else:
            rows = yield from self._encode_by_json(batch, own, options, changes)
        if errors == "raise":
            raise_refused(rows.errors)
        if padding is None:
            return rows
        rule = yield from self._find_padding(pad_id)
        min_length = 0 if padding == "longest" else padding
        return rows.pad(min_length, padding_side=padding_side or rule.side, pad_id=rule.pad_id)

    def count_batch(
        self, texts: Any, offsets: Any, options: Mapping[str, Any]
    ) -> Call[NDArray[np.int64]]:
        """Count the ids of several texts, int64[B]."""
        batch = make_batch(texts, offsets, surrogates=options.get("surrogates", "refuse"))
        options = plain_options(options)
        make_options("count_batch", options, len(batch))
        return (yield from self._count(batch, options))

    def decode(self, ids: Any, skip_special_tokens: bool) -> Call[str]:
        """Return the text of one row of ids."""
        body = {"ids": as_ids(ids).tolist(), "skip_special_tokens": skip_special_tokens}
        answer = yield self._post("/v1/decode", body)
        text: str = answer.json()["text"]
        return text

    def decode_bytes(self, ids: Any, skip_special_tokens: bool) -> Call[bytes]:
        """Return the bytes of one row of ids."""
        body = {"ids": as_ids(ids).tolist(), "skip_special_tokens": skip_special_tokens}
        answer = yield self._post("/v1/decode", {**body, "as_base64": True})
        return base64.b64decode(answer.json()["base64"])

    def decode_batch(self, rows: Any, skip_special_tokens: bool) -> Call[list[str]]:
        """Return the texts of several rows of ids."""
        ids, offsets = as_id_rows(rows)
        texts: list[str] = []
        for begin, end in part_rows(offsets, PART_BYTES // 8):
            places = offsets[begin : end + 1]
            part = [row.tolist() for row in np.split(ids[: places[-1]], places[:-1])[1:]]
            body = {"ids": part, "skip_special_tokens": skip_special_tokens}
            answer = (yield self._post("/v1/decode/batch", body)).json()
            raise_refused(read_errors(answer, begin))
            texts += answer["texts"]
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
    ) -> Call[TextChunks]:
        """Cut one text into chunks."""
        choose("offset_unit", offset_unit, UNITS)
        check_counts(chunk_size=(chunk_size, 1), chunk_overlap=(chunk_overlap, 0))
        options = {"add_special_tokens": add_special_tokens, "special": special}
        make_options("chunks", options)
        one_text("chunks", text, {})
        body = {
            **options,
            "text": as_text(text, "codepoints", {}),
            "chunk_size": chunk_size,
            "chunk_overlap": chunk_overlap,
            "offset_unit": offset_unit,
            "return_texts": return_texts,
            "return_kernel_time": True,
        }
        answer = (yield self._post("/v1/chunks", body)).json()
        ids, offsets = join_rows(answer["ids"], np.int32)
        return TextChunks(
            ids=ids,
            offsets=offsets,
            offset_mapping=np.array(answer["offsets"], np.int64).reshape(-1, 2),
            starts=np.array(answer["starts"], np.int64),
            texts=answer.get("texts"),
            num_tokens=answer["num_tokens"],
            engine=answer["engine"],
            kernel_time=answer["kernel_time"],
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
    ) -> Call[Windows]:
        """Cut one sequence into windows."""
        check_counts(window=(window, 1), stride=(stride, 1))
        one_text("windows", sequence, {})
        text = as_text(sequence, "codepoints", {})
        values = as_channel(channel, len(text))
        body: dict[str, Any] = {
            "sequence": text,
            "window": window,
            "stride": stride,
            "circular": circular,
            "junction": junction,
            "channel_name": "channel",
            "add_cls": add_cls,
            "reverse_complement": reverse_complement,
            "uppercase": uppercase,
            "return_kernel_time": True,
        }
        if values is not None:
            body["channel"] = values.astype(np.float64)
        answer = (yield self._post("/v1/windows", body)).json()
        shape = len(answer["starts"]), -1 if answer["starts"] else window + add_cls
        matrices = {
            name: np.array(answer[name], kind).reshape(shape) for name, kind in WINDOW_TYPES.items()
        }
        if values is not None:
            values = np.array(answer["channel"], np.float32).reshape(shape)
        starts = np.array(answer["starts"], np.int64)
        kernel_time: float = answer["kernel_time"]
        return Windows(**matrices, channel=values, starts=starts, kernel_time=kernel_time)

    def vocabularies(self) -> Call[list[dict[str, Any]]]:
        """List the vocabularies of the service."""
        answer = (yield Request("GET", "/v1/vocabularies")).json()
        listed: list[dict[str, Any]] = answer["vocabularies"]
        return listed

    def info(self) -> Call[dict[str, Any]]:
        """Describe the service."""
        answer: dict[str, Any] = (yield Request("GET", "/v1/info")).json()
        return answer

    def _post(self, path: str, body: Mapping[str, Any]) -> Request:
        content = orjson.dumps({**self._names, **body}, option=orjson.OPT_SERIALIZE_NUMPY)
        return Request("POST", path, content=content, headers={"content-type": JSON})

    def _send_text(
        self, body: bytes, options: Mapping[str, Any], own: Mapping[str, str], accept: str
    ) -> Request:
        """Build the request of one text, which is the body."""
        params = {**self._names, **write_query(options), **own}
        return Request(
            "POST", "/v1/encode", params, body, {"content-type": OCTETS, "accept": accept}
        )

    def _count(self, batch: Batch, options: Mapping[str, Any]) -> Call[NDArray[np.int64]]:
        if options.get("invalid_utf8") == "bytes":  # Only calls with plain bodies have the option.
            rows = yield from self._encode_by_arrow(batch, {}, options)
            raise_refused(rows.errors)
            return rows.num_tokens
        counts: list[int] = []
        for begin, part, fields in self._json_parts(batch, options):
            answer = (yield self._post("/v1/count", {"texts": part, **fields})).json()
            raise_refused(read_errors(answer, begin))
            counts += answer["num_tokens"]
        return np.array(counts, np.int64)

    def _encode_by_json(
        self,
        batch: Batch,
        own: Mapping[str, Any],
        options: Mapping[str, Any],
        changes: Augmentation | None,
    ) -> Call[EncodedBatch]:
        rows: list[list[int]] = []
        mapping: list[list[int]] = []
        tokens: list[list[str]] = []
        errors: dict[int, RowError] = {}
        truncated: dict[int, Truncated] = {}
        engine = digest = ""
        kernel_time = 0.0
        for begin, part, fields in self._json_parts(batch, options):
            body = {"texts": part, **own, **fields}
            if changes is not None:
                body["augmentation"] = augmentation_fields(changes, begin)
            answer = (yield self._post("/v1/encode/batch", body)).json()
            kernel_time += answer["kernel_time"]
            rows += answer["ids"]
            engine, digest = answer["engine"], answer["digest"]
            mapping += [span for spans in answer.get("offsets", ()) for span in spans]
            tokens += answer.get("tokens", ())
            errors |= read_errors(answer, begin)
            cut = enumerate(answer.get("truncated", ()), begin)
            truncated |= {
                row: Truncated(each["num_tokens"], tuple(each["kept"])) for row, each in cut if each
            }
        ids, offsets = join_rows(rows, ID_TYPES[own.get("dtype", "int32")])
        spans = None
        if own.get("return_offsets"):
            spans = np.array(mapping, np.int64).reshape(-1, 2)
        return EncodedBatch(
            ids=ids,
            offsets=offsets,
            engine=engine,
            digest=digest,
            offset_mapping=spans,
            tokens=tokens if own.get("return_tokens") else None,
            truncated=truncated,
            errors=errors,
            padding_side=None,
            kernel_time=kernel_time,
        )

    def _encode_by_arrow(
        self,
        batch: Batch,
        own: Mapping[str, Any],
        options: Mapping[str, Any],
        changes: Augmentation | None = None,
    ) -> Call[EncodedBatch]:
        pa = import_library("pyarrow", "texts that are not UTF-8")
        params = {**self._names, **write_query(options), **write_values(own)}
        headers = {"content-type": ARROW}
        engine = ""
        kernel_time = 0.0
        parts: list[NDArray[Any]] = [np.zeros(0, ID_TYPES[own.get("dtype", "int32")])]
        sizes: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        errors: dict[int, RowError] = {}
        for begin, end in part_rows(batch.offsets, PART_BYTES):
            content = write_arrow(pa, batch.part(begin, end))
            changed = {} if changes is None else augmentation_fields(changes, begin)
            query = {**params, **write_values(changed)}
            answer = yield Request("POST", "/v1/encode/batch", query, content, headers)
            for table, metadata in read_arrow(pa, answer.content):
                engine = metadata.get(b"warptok.engine", b"").decode()
                kernel_time += float(metadata.get(b"warptok.kernel_time", 0.0))
                first = sum(map(len, sizes))
                ids = table.column("ids")
                parts.append(ids.flatten().to_numpy())
                sizes.append(ids.value_lengths().fill_null(0).to_numpy().astype(np.int64))
                for row, text in enumerate(table.column("error").to_pylist(), first):
                    if text is not None:
                        code, _, message = text.partition(": ")
                        errors[row] = RowError(code, message)
        return EncodedBatch(
            ids=np.concatenate(parts),
            offsets=offsets_from_lengths(np.concatenate(sizes)),
            engine=engine,
            digest=self._names.get("if_digest", ""),
            truncated=None if options.get("max_length") is not None else {},
            errors=errors,
            padding_side=None,
            kernel_time=kernel_time,
        )

    def _json_parts(
        self, batch: Batch, options: Mapping[str, Any]
    ) -> Iterator[tuple[int, list[str], dict[str, Any]]]:
        """Yield the parts of a batch: the first row, the texts and the options of each part.

        Raises:
            RowRefused: a text is not UTF-8.
        """
        texts, invalid = batch.texts()
        raise_refused(invalid)
        fields = {n: v for n, v in options.items() if n not in ("surrogates", "invalid_utf8")}
        for begin, end in part_rows(batch.offsets, PART_BYTES):
            own = {n: list(v[begin:end]) if is_list(v) else v for n, v in fields.items()}
            yield begin, list(texts[begin:end]), own

    def _find_padding(self, pad_id: int | None) -> Call[PaddingRule]:
        """Read the vocabulary's padding from the answer to a padded text, and remember it."""
        rule = self._padding.get(pad_id)
        if rule is None:
            body = {"texts": [PROBE], "add_special_tokens": False, "padding": PROBE_LENGTH}
            answer = (yield self._post("/v1/encode/batch", {**body, "pad_id": pad_id})).json()
            [ids], [mask] = answer["ids"], answer["attention_mask"]
            rule = PaddingRule(ids[0], "left") if not mask[0] else PaddingRule(ids[-1], "right")
            self._padding[pad_id] = rule
        return rule


WINDOW_TYPES: Mapping[str, type[np.integer[Any]]] = {
    "input_ids": np.int32,
    "attention_mask": np.int8,
    "position_ids": np.int64,
}


def write_query(options: Mapping[str, Any]) -> dict[str, str]:
    """Write options as the query string of the bulk route."""
    check_options("encode_batch", options)
    return write_values({name: value for name, value in options.items() if name != "surrogates"})


def write_values(values: Mapping[str, Any]) -> dict[str, str]:
    """Write values as a query string without those that are None."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }


def augmentation_fields(changes: Augmentation, begin: int) -> dict[str, Any]:
    """Return the augmentation fields of a request whose first text is row `begin` of the batch."""
    return {**asdict(changes), "first_row": changes.first_row + begin}


def part_rows(offsets: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of parts of one row, or of at most PART_ROWS rows and `most` items."""
    begin, num_rows = 0, len(offsets) - 1
    while begin < num_rows:
        end = int(np.searchsorted(offsets, offsets[begin] + most, side="right")) - 1
        end = min(max(end, begin + 1), begin + PART_ROWS, num_rows)
        yield begin, end
        begin = end


def join_rows(
    rows: list[list[int]], dtype: type[np.integer[Any]]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Join rows of ids: return ids [T], and offsets int64[B + 1], where each row begins."""
    ids = np.fromiter((token_id for row in rows for token_id in row), dtype)
    return ids, offsets_from_lengths(np.fromiter(map(len, rows), np.int64, len(rows)))


def read_errors(answer: Mapping[str, Any], begin: int) -> dict[int, RowError]:
    """Read the refused rows of an answer; its first row is row `begin` of the batch."""
    return {
        begin + fault["row"]: RowError(fault["code"], fault["message"])
        for fault in answer.get("errors", ())
    }


def write_arrow(pa: Any, batch: Batch) -> bytes:
    """Write a batch as an Arrow stream with the column `text`."""
    buffers = [None, pa.py_buffer(batch.offsets), pa.py_buffer(batch.data)]
    column = pa.Array.from_buffers(pa.large_binary(), len(batch), buffers)
    table = pa.record_batch({"text": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_arrow(pa: Any, content: bytes) -> Iterator[tuple[Any, Mapping[bytes, bytes]]]:
    """Read the record batches of an Arrow answer, and the metadata of each.

    Raises:
        WarptokError: the answer ends with an error.
    """
    with pa.ipc.open_stream(content) as reader:
        while True:
            try:
                table, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            if metadata and b"warptok.error" in metadata:
                code = metadata[b"warptok.error"].decode()
                message = metadata[b"warptok.message"].decode()
                where = metadata[b"warptok.where"].decode()
                raise error_class(code, 400)(message, code=code, where=where)
            yield table, metadata or {}
