"""The operations encode, encode/batch and count, from the JSON of texts to the JSON of ids.

Most requests have no options, and their answers contain only ids: a short answer of this kind is
written in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from service.batching.work import CountWork, EncodeWork, Result
from service.core.call import Call, Times
from service.core.errors import InvalidRequest, RowRefused, TooLarge
from service.engines.base import Counted
from service.operations.augmented_texts import augment_request
from service.operations.operation import (
    NUM_REQUIRED,
    AnswerPieces,
    Operation,
    Render,
    check_rows,
    make_row_faults,
    make_work,
)
from service.operations.query_schemas import DTYPES
from service.operations.rendering.json_stream import (
    flat_json,
    head,
    matrix_json,
    ragged_json,
    rows_json,
    tokens_json,
)
from service.operations.rendering.offset_units import convert_spans
from service.operations.rendering.padding import pad_rows
from service.operations.schemas import (
    ChunksRequest,
    CountRequest,
    EncodeBatchRequest,
    EncodeRequest,
    WindowsRequest,
    row_options,
)
from service.operations.unknown_ids import find_share_of_result, find_unknown_share
from vocabularies.batch.batch import DEFAULT_OPTIONS, Encoded, EncodeOptions
from vocabularies.model.vocabulary import Vocabulary

if TYPE_CHECKING:
    from service.operations.context import Service
    from service.registry.entries import LoadedVocabulary

TimedRequest = EncodeRequest | EncodeBatchRequest | CountRequest | WindowsRequest | ChunksRequest
OPTION_FIELDS = (
    "add_special_tokens",
    "special",
    "max_length",
    "truncation_side",
    "reverse_complement",
    "circular",
    "uppercase",
    "return_offsets",
)
MAX_IDS = 8_192  # About 50 KB and 0.02 ms; answers with more ids are written in pieces.


def check_dtype(vocabulary: Vocabulary, dtype: str, where: str = "/dtype") -> None:
    """Raise InvalidRequest if an id of the vocabulary does not fit into the dtype."""
    if len(vocabulary) - 1 > np.iinfo(DTYPES[dtype]).max:
        raise InvalidRequest(
            f"the {len(vocabulary)} ids of the vocabulary do not fit in {dtype}", where
        )


def has_no_options(request: EncodeRequest | EncodeBatchRequest | CountRequest) -> bool:
    """Return whether a request sets only the required fields, and no option."""
    return len(request.model_fields_set) == NUM_REQUIRED


def is_short(request: EncodeRequest | EncodeBatchRequest, result: Result[Encoded]) -> bool:
    """Return whether an answer contains only ids and sizes, with at most MAX_IDS ids and rows."""
    encoded, begin, end = result.output, result.begin, result.end
    if not has_no_options(request) or encoded.errors:
        return False
    if encoded.num_tokens is not None:
        return False
    return end - begin <= MAX_IDS and result.offsets[end] - result.offsets[begin] <= MAX_IDS


def write_short_text(entry: LoadedVocabulary, result: Result[Encoded]) -> bytes:
    """Write the short answer for one text."""
    encoded = result.output
    json = _fixed_json(entry.name, entry.vocabulary.digest, encoded.engine)
    begin, end = result.offsets[result.begin : result.begin + 2]
    ids = encoded.ids[begin:end]
    written = orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY)
    last = _end_of_json(json, find_unknown_share(entry.vocabulary, ids))
    return b"".join((json.before_ids, written, json.before_sizes, b"%d" % (end - begin), last))


def write_short_batch(entry: LoadedVocabulary, result: Result[Encoded]) -> bytes:
    """Write the short answer for several texts."""
    encoded = result.output
    json = _fixed_json(entry.name, entry.vocabulary.digest, encoded.engine)
    offsets = encoded.offsets[result.begin : result.end + 1]
    rows = rows_json(encoded.ids, offsets)
    sizes = orjson.dumps(offsets[1:] - offsets[:-1], option=orjson.OPT_SERIALIZE_NUMPY)
    has_unknown = entry.vocabulary.unknown_id is not None  # Text vocabularies have none.
    share = find_share_of_result(entry.vocabulary, result) if has_unknown else None
    last = _end_of_json(json, share)
    return b"".join((json.before_ids, rows, json.before_sizes, sizes, last))


class _FixedJson(NamedTuple):
    """The parts of a short answer that depend on the vocabulary and the engine, not on the ids."""

    before_ids: bytes
    before_sizes: bytes
    end: bytes


@lru_cache(256)
def _fixed_json(name: str, digest: str, engine: str) -> _FixedJson:
    before_ids = b'{"vocabulary":%b,"digest":"%b","ids":' % (orjson.dumps(name), digest.encode())
    return _FixedJson(before_ids, b',"num_tokens":', b',"engine":"%b"}' % engine.encode())


def _end_of_json(json: _FixedJson, unknown_share: float | None) -> bytes:
    """Return the end of a short answer; include the share of unknown ids unless it is None."""
    if unknown_share is None:
        return json.end
    return b"".join((json.end[:-1], *write_unknown_share(unknown_share), b"}"))


def _plan_text(
    service: Service, call: Call, entry: LoadedVocabulary, request: EncodeRequest
) -> tuple[EncodeWork, Render]:
    if request.dtype != "int32":
        check_dtype(entry.vocabulary, request.dtype)
    options = DEFAULT_OPTIONS if has_no_options(request) else request.options()
    work = make_work(service, call, EncodeWork, entry, [request.text], options, "/text")
    return work, partial(render_text, entry, request, times=call.times)


def render_text(
    entry: LoadedVocabulary,
    request: EncodeRequest,
    result: Result[Encoded],
    times: Times | None = None,
) -> AnswerPieces:
    """Write the answer for one text; `times` are the timestamps of its request.

    Raises:
        RowRefused: the text was refused.
    """
    if result.errors and result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "/text")
    if is_short(request, result):
        return (write_short_text(entry, result),)
    return _write_text(entry, request, result, times)


def _write_text(
    entry: LoadedVocabulary,
    request: EncodeRequest,
    result: Result[Encoded],
    times: Times | None,
) -> AnswerPieces:
    encoded, row = result.output, result.begin
    begin, end = result.offsets[row], result.offsets[row + 1]
    ids = encoded.ids[begin:end]
    yield head(entry, b"ids")
    yield from flat_json(ids)
    yield b',"num_tokens":%d,"engine":"%b"' % (end - begin, encoded.engine.encode())
    if request.return_offsets is not None:
        assert encoded.spans is not None
        spans = convert_spans(encoded.spans[begin:end], request.text, request.return_offsets)
        yield b',"offsets":'
        yield from flat_json(spans)
    if request.return_tokens:
        yield b',"tokens":'
        yield from tokens_json(entry.vocabulary, ids, request.token_form)
    if (truncated := truncated_row(result, row)) is not None:
        yield b',"truncated":' + orjson.dumps(truncated)
    yield from write_kernel_time(request, times)
    yield from write_unknown_share(find_unknown_share(entry.vocabulary, ids))
    yield b"}"


def write_kernel_time(request: TimedRequest, times: Times | None) -> Iterator[bytes]:
    """Write the field `kernel_time`, preceded by a comma, if it is requested and known."""
    if request.return_kernel_time and times is not None:
        yield b',"kernel_time":%.7f' % times.encode_s


def truncated_row(result: Result[Encoded], row: int) -> dict[str, Any] | None:
    """Describe the truncation of a row; return None if no id was removed."""
    encoded = result.output
    if encoded.num_tokens is None or encoded.kept is None:
        return None
    before = int(encoded.num_tokens[row])
    if before == result.offsets[row + 1] - result.offsets[row]:
        return None
    return {"num_tokens": before, "kept": encoded.kept[row].tolist()}


def _make_options(
    request: EncodeBatchRequest | CountRequest, num_rows: int
) -> EncodeOptions | list[EncodeOptions]:
    """Return the options of all rows, or one value for each row if any option is a list.

    Raises:
        InvalidRequest: a list does not contain one value for each row.
    """
    if has_no_options(request):
        return DEFAULT_OPTIONS
    given: dict[str, Any] = {name: getattr(request, name, None) for name in OPTION_FIELDS}
    for name, value in given.items():
        if isinstance(value, list) and len(value) != num_rows:
            raise InvalidRequest(
                f"has {len(value)} values, but there are {num_rows} texts", f"/{name}"
            )
    if not any(isinstance(value, list) for value in given.values()):
        options = _make_row_options(given)
        return DEFAULT_OPTIONS if options == DEFAULT_OPTIONS else options
    made: dict[tuple[Any, ...], EncodeOptions] = {}
    rows = []
    columns = [row_options(value, num_rows) for value in given.values()]
    for values in zip(*columns, strict=True):
        if values not in made:
            made[values] = _make_row_options(dict(zip(OPTION_FIELDS, values, strict=True)))
        rows.append(made[values])
    return rows


def _make_row_options(given: dict[str, Any]) -> EncodeOptions:
    """Create the options of one row from the fields of the request."""
    fields = {name: value for name, value in given.items() if name != "return_offsets"}
    return EncodeOptions(**fields, spans=given["return_offsets"] is not None)


def _plan_texts(
    service: Service, call: Call, entry: LoadedVocabulary, request: EncodeBatchRequest
) -> tuple[EncodeWork, Render]:
    num_rows = len(request.texts)
    check_rows(service, num_rows, "/texts")
    if has_no_options(request):
        work = make_work(
            service, call, EncodeWork, entry, request.texts, DEFAULT_OPTIONS, "/texts/{}"
        )
        return work, partial(_render_texts, service, call.times, entry, request, 0)
    check_dtype(entry.vocabulary, request.dtype)
    for name in ("return_tokens", "return_offsets"):
        value = getattr(request, name)
        if isinstance(value, list) and len(value) != num_rows:
            message = f"has {len(value)} values, but there are {num_rows} texts"
            raise InvalidRequest(message, f"/{name}")
    pad_id = 0 if request.padding is None else find_pad_id(request.pad_id, entry.vocabulary)
    options = _make_options(request, num_rows)
    request = augment_request(request, entry.vocabulary)
    work = make_work(service, call, EncodeWork, entry, request.texts, options, "/texts/{}")
    return work, partial(_render_texts, service, call.times, entry, request, pad_id)


def _find_changes(
    entry: LoadedVocabulary, request: EncodeBatchRequest
) -> Callable[[], EncodeBatchRequest] | None:
    """Return the augmenter for a request's texts; None if they are not augmented."""
    if request.augmentation is None:
        return None
    return partial(augment_request, request, entry.vocabulary)


def _render_texts(
    service: Service,
    times: Times,
    entry: LoadedVocabulary,
    request: EncodeBatchRequest,
    pad_id: int,
    result: Result[Encoded],
) -> AnswerPieces:
    if is_short(request, result):
        return (write_short_batch(entry, result),)
    if request.padding is not None:
        _check_padded(service, request, result)
    return _write_batch(entry, request, result, pad_id, times)


def _check_padded(service: Service, request: EncodeBatchRequest, result: Result[Encoded]) -> None:
    """Raise TooLarge if the padded rows would contain too many ids."""
    offsets, limit = result.offsets, service.settings.max_padded_ids
    rows = range(result.begin, result.end)
    width = max((offsets[row + 1] - offsets[row] for row in rows), default=0)
    if isinstance(request.padding, int):
        width = max(width, request.padding)
    if width * len(rows) > limit:
        message = f"{len(rows)} rows padded to {width} ids exceed max_padded_ids, {limit}"
        raise TooLarge(message, "/padding")


def find_pad_id(requested: int | None, vocabulary: Vocabulary) -> int:
    """Return the requested padding id, or the vocabulary's own if `requested` is None.

    Raises:
        InvalidRequest: the vocabulary does not contain the id, or has no padding token.
    """
    pad_id = vocabulary.roles.get("pad") if requested is None else requested
    if pad_id is None:
        message = "the vocabulary has no padding token; give the id to pad with in pad_id"
        raise InvalidRequest(message, "/padding")
    if pad_id >= len(vocabulary):
        message = f"must be an id of the vocabulary, 0 to {len(vocabulary) - 1}"
        raise InvalidRequest(message, "/pad_id")
    return pad_id


def _write_batch(
    entry: LoadedVocabulary,
    request: EncodeBatchRequest,
    result: Result[Encoded],
    pad_id: int,
    times: Times,
) -> Iterator[bytes]:
    encoded = result.output
    rows = range(result.begin, result.end)
    offsets = result.offsets
    lengths = [end - begin for begin, end in pairwise(offsets[rows.start : rows.stop + 1])]
    yield head(entry, b"ids")
    if request.padding is None:
        yield from ragged_json(encoded.ids, encoded.offsets, rows)
        mask = None
    else:
        own_offsets = encoded.offsets[result.begin : result.end + 1]
        min_width = 0 if request.padding == "longest" else request.padding
        side = request.padding_side or entry.vocabulary.padding_side
        padded, mask = pad_rows(encoded.ids, own_offsets, pad_id, min_width, side)
        yield from matrix_json(padded)
    yield b',"num_tokens":' + orjson.dumps(lengths)
    yield b',"engine":"%b"' % encoded.engine.encode()
    if mask is not None:
        yield b',"attention_mask":'
        yield from matrix_json(mask)
    if encoded.num_tokens is not None or not has_no_options(request):
        yield from _write_batch_extras(entry, request, result)
    if errors := result.row_errors():
        yield b',"errors":' + orjson.dumps(make_row_faults(errors))
    yield from write_kernel_time(request, times)
    yield from write_unknown_share(find_share_of_result(entry.vocabulary, result))
    yield b"}"


def write_unknown_share(share: float | None) -> Iterator[bytes]:
    """Write the field `unknown_share`, preceded by a comma; nothing if the share is None."""
    if share is not None:
        yield b',"unknown_share":' + orjson.dumps(share)


def _write_batch_extras(
    entry: LoadedVocabulary, request: EncodeBatchRequest, result: Result[Encoded]
) -> Iterator[bytes]:
    """Write the optional fields of an answer: offsets, tokens, truncation."""
    encoded = result.output
    num_rows = result.end - result.begin
    units = row_options(request.return_offsets, num_rows)
    if any(units):
        assert encoded.spans is not None
        yield b',"offsets":['
        for i, (unit, text) in enumerate(zip(units, request.texts, strict=True)):
            yield b"," if i else b""
            begin, end = result.offsets[result.begin + i : result.begin + i + 2]
            if unit is None:
                yield b"null"
            else:
                yield from flat_json(convert_spans(encoded.spans[begin:end], text, unit))
        yield b"]"
    has_tokens = row_options(request.return_tokens, num_rows)
    if any(has_tokens):
        yield b',"tokens":['
        for i, row_has_tokens in enumerate(has_tokens):
            yield b"," if i else b""
            if row_has_tokens:
                ids = encoded.row(result.begin + i)
                yield from tokens_json(entry.vocabulary, ids, request.token_form)
            else:
                yield b"null"
        yield b"]"
    if encoded.num_tokens is not None:
        truncated = [truncated_row(result, row) for row in range(result.begin, result.end)]
        if any(truncated):
            yield b',"truncated":' + orjson.dumps(truncated)


def _plan_count(
    service: Service, call: Call, entry: LoadedVocabulary, request: CountRequest
) -> tuple[CountWork, Render]:
    check_rows(service, len(request.texts), "/texts")
    options = _make_options(request, len(request.texts))
    work = make_work(service, call, CountWork, entry, request.texts, options, "/texts/{}")
    return work, partial(_render_count, call.times, entry, request)


def _render_count(
    times: Times, entry: LoadedVocabulary, request: CountRequest, result: Result[Counted]
) -> AnswerPieces:
    yield head(entry, b"num_tokens")
    yield from flat_json(result.output.counts[result.begin : result.end])
    yield b',"engine":"%b"' % result.engine.encode()
    if errors := result.row_errors():
        yield b',"errors":' + orjson.dumps(make_row_faults(errors))
    yield from write_kernel_time(request, times)
    yield b"}"


ENCODE = Operation(EncodeRequest, _plan_text)
ENCODE_BATCH = Operation(EncodeBatchRequest, _plan_texts, _find_changes)
COUNT = Operation(CountRequest, _plan_count)
