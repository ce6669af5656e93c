"""Steps that all native operations share: parse the body, find the vocabulary, create work items.

The connection's direct calls and the ASGI fast path run the same operations, so that their answers
are identical byte for byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson
from pydantic import BaseModel, ValidationError

from service.batching.work import (
    AnyWork,
    CountWork,
    DecodeWork,
    EncodeWork,
    IdRows,
    SharedWork,
    WorkItem,
)
from service.core.call import Call
from service.core.errors import DigestDiffers, TooLarge
from service.core.json_bodies import parse_json
from service.core.problem_details import invalid_body
from service.operations.schemas import EncodeRequest, PlainEncodeRequest, Strict
from service.registry.vocabulary_view import VOCABULARY
from vocabularies.batch.batch import MAX_UTF8, Batch, EncodeOptions, RowError, utf8_size
from vocabularies.batch.shared_rows import SharedRows

if TYPE_CHECKING:
    from service.operations.context import Service
    from service.registry.entries import LoadedVocabulary

AnswerPieces = Iterable[bytes]
Request = TypeVar("Request", bound=BaseModel)
Render = Callable[[Any], AnswerPieces]
Texts = TypeVar("Texts", EncodeWork, CountWork)
AnyItem = TypeVar("AnyItem", bound=WorkItem[Any])
ORJSON_BYTES = 1 << 11  # From this size orjson is faster: some texts of a few words.
LARGE_BYTES = 1 << 17  # A thread writes the answers to larger bodies, which costs 0.1 ms.
PART_CHARACTERS = 1 << 20  # Longer texts are encoded as UTF-8 in parts to count their bytes.
BYTES_AN_ID = 4
FIELD_END = b'":'  # Follows the name of a field; usually occurs once for each field.
NUM_REQUIRED = 2  # Fields that a request must have: the vocabulary and what to encode.
ROW_BYTES = 16  # Added to the size of each row in the queue, so that empty texts count.


@dataclass(frozen=True, slots=True)
class Operation:
    """A native call: how its work item is created, and how the result is converted to the answer.

    Attributes:
        request_model: the model of the request body.
        plan: creates the work item of a request, and returns it with the function that writes the
            answer from the work item's result. Both may raise ServiceError.
        prepare: returns a function that changes a request before `plan`; the function runs in
            a thread if the body is large. None: requests are not changed.
    """

    request_model: type[Strict]
    plan: Callable[[Service, Call, LoadedVocabulary, Any], tuple[AnyWork, Render]]
    prepare: Callable[[LoadedVocabulary, Any], Callable[[], Any] | None] | None = None


async def answer(service: Service, operation: Operation, body: bytes, call: Call) -> AnswerPieces:
    """Answer the body of one request; return the JSON of the answer in pieces.

    Raises:
        ServiceError: the request or its only row is refused.
    """
    call.times.read = perf_counter()
    request: Any = parse(operation.request_model, body)
    entry = await find_entry(service, call, request.vocabulary)
    check_digest(entry, request.if_digest)
    if len(body) > LARGE_BYTES and operation.prepare is not None:
        change = operation.prepare(entry, request)
        request = request if change is None else await asyncio.to_thread(change)
    work, render = operation.plan(service, call, entry, request)
    result = await service.batcher.run(work)
    if len(body) > LARGE_BYTES:
        return await asyncio.to_thread(render, result)
    return render(result)


def parse(model: type[Request], body: bytes) -> Request:
    """Parse a request from its JSON.

    orjson parses bodies of several texts, because it decodes escapes faster (decision
    0073), and bodies of one text without options, which need no model. If orjson or the model
    refuses a body, pydantic parses the body again and reports the faults.

    Raises:
        ServiceError: the body is not JSON (400), or fields are invalid (422), each with its place.
    """
    request: Request
    is_plain = model is EncodeRequest and body.count(FIELD_END) == NUM_REQUIRED
    if (is_plain or len(body) >= ORJSON_BYTES) and len(body) <= LARGE_BYTES:
        try:
            values = orjson.loads(body)
            plain = _make_plain(values) if is_plain else None
            if plain is not None:
                return cast(Request, plain)
            request = model.__pydantic_validator__.validate_python(values)
            return request
        except (orjson.JSONDecodeError, ValidationError):
            pass
    try:
        request = model.__pydantic_validator__.validate_json(body)
    except ValidationError:
        return parse_json(partial(_validate, model), body)
    return request


def _make_plain(values: Any) -> PlainEncodeRequest | None:
    """Create the request of a body that contains only a vocabulary and a text; None for others."""
    if type(values) is not dict or len(values) != NUM_REQUIRED:
        return None
    vocabulary, text = values.get("vocabulary"), values.get("text")
    if type(vocabulary) is not str or type(text) is not str:
        return None
    return PlainEncodeRequest(vocabulary, text)


def _validate(model: type[Request], body: bytes) -> Request:
    """Parse and validate a body with pydantic; raise its faults as a refusal."""
    try:
        request: Request = model.__pydantic_validator__.validate_json(body)
    except ValidationError as error:
        raise invalid_body(error) from error
    return request


def make_work(
    service: Service,
    call: Call,
    kind: type[Texts],
    entry: LoadedVocabulary,
    texts: list[str],
    options: EncodeOptions | list[EncodeOptions],
    pointer: str,
) -> Texts:
    """Create the work item that encodes texts or counts their ids.

    Args:
        service: the service.
        call: the head of the request.
        kind: EncodeWork or CountWork.
        entry: the vocabulary.
        texts: the texts.
        options: one value for all texts, or one for each text.
        pointer: the place of a text in the request, with {} for the number of the text.

    Raises:
        TooLarge: a text is longer than `max_text_bytes`.
    """
    work = kind(entry.vocabulary, texts, options)
    work.num_bytes = _count_bytes(texts, service.settings.max_text_bytes, pointer)
    work.num_bytes += ROW_BYTES * len(texts)
    return _add_call(service, call, work)


def _count_bytes(texts: list[str], limit: int, pointer: str) -> int:
    """Return the size of all texts in UTF-8.

    Raises:
        TooLarge: a text has more than `limit` bytes.
    """
    if (size := utf8_size(texts, min(PART_CHARACTERS, limit) // MAX_UTF8)) >= 0:
        return size
    sizes = [len(text) if text.isascii() else _num_bytes(text) for text in texts]
    if max(sizes) > limit:
        row = next(row for row, size in enumerate(sizes) if size > limit)
        message = f"the text has {sizes[row]} bytes; max_text_bytes is {limit}"
        raise TooLarge(message, pointer.format(row))
    return sum(sizes)


def _num_bytes(text: str) -> int:
    """Return the size of a text in UTF-8; encode at most PART_CHARACTERS at once."""
    if len(text) <= PART_CHARACTERS:
        return len(text.encode())
    begins = range(0, len(text), PART_CHARACTERS)
    return sum(len(text[begin : begin + PART_CHARACTERS].encode()) for begin in begins)


def make_bulk_work(
    service: Service,
    call: Call,
    kind: type[Texts],
    entry: LoadedVocabulary,
    batch: Batch,
    options: EncodeOptions,
) -> Texts:
    """Create the work item that encodes or counts a batch whose limits the caller has checked."""
    work = kind(entry.vocabulary, batch, options)
    work.num_bytes = len(batch.data) + ROW_BYTES * len(batch)
    return _add_call(service, call, work)


def make_shared_work(
    service: Service, call: Call, entry: LoadedVocabulary, rows: SharedRows
) -> SharedWork:
    """Create the work item that encodes texts in shared memory; the caller checks limits."""
    work = SharedWork(entry.vocabulary, rows, service.get_engine_parts().engine)
    work.num_bytes = len(rows.text) + ROW_BYTES * len(rows)
    return _add_call(service, call, work)


def make_decode_work(
    service: Service,
    call: Call,
    entry: LoadedVocabulary,
    rows: list[list[int]] | IdRows,
    skip_special_tokens: bool,
) -> DecodeWork:
    """Create the work item that decodes rows of ids; the caller checks their limits."""
    work = DecodeWork(entry.vocabulary, rows, skip_special_tokens)
    work.num_bytes = BYTES_AN_ID * work.num_ids + ROW_BYTES * len(work.rows)
    return _add_call(service, call, work)


def _add_call(service: Service, call: Call, work: AnyItem) -> AnyItem:
    """Add the deadline, the connection and the times of a call to its work item; return the item.

    The size of the work item is added to that of the call. The time since the body was read counts
    as parsing time.
    """
    work.deadline = find_deadline(service, call)
    work.ends_at = call.ends_at
    work.receive = call.receive
    call.num_bytes += work.num_bytes
    work.times = times = call.times
    if times.read:
        seconds = work.submitted - times.read
        times.read = 0.0
        times.parse_s += seconds
        service.metrics.parse_seconds.add(seconds)
    return work


async def find_entry(
    service: Service, call: Call, name: str, where: str = VOCABULARY
) -> LoadedVocabulary:
    """Return the loaded vocabulary with a name, and record its own name in the call.

    The first use of a vocabulary loads it.

    Args:
        service: the service.
        call: the head of the request.
        name: the vocabulary's own name, or an alias.
        where: the place of the name in the request, for a refusal.

    Raises:
        ServiceError: there is no such vocabulary, or it cannot be loaded.
    """
    registry = service.registry
    entry = registry.entries.get(name)
    if entry is None:
        own = registry.aliases.get(name, name)
        if own in registry.known:  # Metric labels never contain a client's text.
            call.vocabulary = own
        return await registry.get_loaded(name, where)
    call.vocabulary = name
    return entry


def check_digest(entry: LoadedVocabulary, expected: str | None, where: str = "/if_digest") -> None:
    """Raise DigestDiffers if the vocabulary's digest is not the one that the client expects."""
    digest = entry.vocabulary.digest
    if expected is not None and expected not in (digest, digest.removeprefix("sha256:")):
        raise DigestDiffers(f"the digest of {entry.name} is {digest}", where)


def find_deadline(service: Service, call: Call) -> float:
    """Return the perf_counter time after which a request no longer waits."""
    return min(perf_counter() + service.settings.request_timeout_ms / 1000, call.ends_at)


def check_rows(service: Service, num_rows: int, pointer: str) -> None:
    """Raise TooLarge if there are more rows than `max_texts`."""
    limit = service.settings.max_texts
    if num_rows > limit:
        raise TooLarge(f"has {num_rows} rows; max_texts is {limit}", pointer)


def make_row_faults(errors: dict[int, RowError]) -> list[dict[str, Any]]:
    """Describe the refused rows in order, for the field `errors` of an answer."""
    return [
        {
            "row": row,
            "code": error.code,
            "message": f"{error.message} ({error.where})" if error.where else error.message,
        }
        for row, error in sorted(errors.items())
    ]
