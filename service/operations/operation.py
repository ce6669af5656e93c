"""What every native call shares: its connection, its checked body, its vocabulary, its work.

The connection's inline calls and the ASGI fast path run the same operations, so that their answers
are the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

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
from service.core.problem_details import invalid_body
from service.operations.schemas import Strict
from vocabularies.batch.batch import MAX_UTF8, Batch, EncodeOptions, RowError
from vocabularies.batch.shared_rows import SharedRows
from vocabularies.batch.string_join import utf8_size

if TYPE_CHECKING:
    from service.operations.context import Service
    from service.registry.entries import LoadedVocabulary

AnswerPieces = Iterable[bytes]
Request = TypeVar("Request", bound=Strict)
Render = Callable[[Any], AnswerPieces]
Texts = TypeVar("Texts", EncodeWork, CountWork)
AnyKind = TypeVar("AnyKind", bound=WorkItem[Any])
LARGE_BYTES = 1 << 17  # From here on a body's answer is written by a thread, which costs 0.1 ms.
PART = 1 << 20
BYTES_AN_ID = 4
ROW_BYTES = 16  # What a row weighs in the queue beside its text, so that empty texts are not free.


@dataclass(frozen=True, slots=True)
class Operation:
    """A native call in two halves, with the engine's work between them.

    Attributes:
        request_model: what its body must be.
        plan: what the engine has to do for a request, and how its result becomes the answer. Both
            may raise ServiceError.
    """

    request_model: type[Strict]
    plan: Callable[[Service, Call, LoadedVocabulary, Any], tuple[AnyWork, Render]]


async def answer(service: Service, operation: Operation, body: bytes, call: Call) -> AnswerPieces:
    """The answer to one body.

    Raises:
        ServiceError: the request, or its only row, is refused.
    """
    call.times.read = perf_counter()
    request: Any = parse(operation.request_model, body)
    entry = await find_entry(service, request.vocabulary)
    check_digest(entry, request.if_digest)
    work, render = operation.plan(service, call, entry, request)
    result = await service.batcher.run(work)
    if len(body) > LARGE_BYTES:
        return await asyncio.to_thread(render, result)
    return render(result)


def parse(model: type[Request], body: bytes) -> Request:
    """Read a request from its JSON.

    Raises:
        ServiceError: not JSON (400) or a field is wrong (422), with every place.
    """
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
    """Texts as work for the batcher, to encode or to count.

    Raises:
        TooLarge: a text is longer than `max_text_bytes`.
    """
    work = kind(entry.vocabulary, texts, options)
    work.num_bytes = _checked_bytes(texts, service.settings.max_text_bytes, pointer)
    work.num_bytes += ROW_BYTES * len(texts)
    return _of_call(service, call, work)


def _checked_bytes(texts: list[str], limit: int, pointer: str) -> int:
    """Of the UTF-8 of all texts.

    Raises:
        TooLarge: a text has more than `limit`.
    """
    if (counted := utf8_size(texts, min(PART, limit) // MAX_UTF8)) >= 0:
        return counted
    sizes = [len(text) if text.isascii() else _num_bytes(text) for text in texts]
    if max(sizes) > limit:
        row = next(row for row, size in enumerate(sizes) if size > limit)
        message = f"the text has {sizes[row]} bytes; max_text_bytes is {limit}"
        raise TooLarge(message, pointer.format(row))
    return sum(sizes)


def _num_bytes(text: str) -> int:
    """Of its UTF-8, of which only PART characters are ever made."""
    if len(text) <= PART:
        return len(text.encode())
    return sum(len(text[begin : begin + PART].encode()) for begin in range(0, len(text), PART))


def bulk_work(
    service: Service,
    call: Call,
    kind: type[Texts],
    entry: LoadedVocabulary,
    batch: Batch,
    options: EncodeOptions,
) -> Texts:
    """Joined texts as work for the batcher; their limits are the caller's."""
    work = kind(entry.vocabulary, batch, options)
    work.num_bytes = len(batch.data) + ROW_BYTES * len(batch)
    return _of_call(service, call, work)


def shared_work(
    service: Service, call: Call, entry: LoadedVocabulary, rows: SharedRows
) -> SharedWork:
    """Texts in shared memory as work for the batcher; their limits are the caller's."""
    work = SharedWork(entry.vocabulary, rows, service.get_host().engine)
    work.num_bytes = len(rows.text) + ROW_BYTES * len(rows)
    return _of_call(service, call, work)


def decode_work(
    service: Service,
    call: Call,
    entry: LoadedVocabulary,
    rows: list[list[int]] | IdRows,
    skip_special_tokens: bool,
) -> DecodeWork:
    """Rows of ids as work for the batcher; their limits are the caller's."""
    work = DecodeWork(entry.vocabulary, rows, skip_special_tokens)
    work.num_bytes = BYTES_AN_ID * work.num_ids + ROW_BYTES * work.num_rows
    return _of_call(service, call, work)


def _of_call(service: Service, call: Call, work: AnyKind) -> AnyKind:
    """Give work what its call says; the body, or a part of it, has been parsed for it."""
    work.deadline, work.receive = deadline(service, call), call.receive
    work.times = times = call.times
    if times.read:
        seconds, times.read = work.submitted - times.read, 0.0
        times.parse_s += seconds
        service.metrics.parse_seconds.add(seconds)
    return work


async def find_entry(service: Service, name: str) -> LoadedVocabulary:
    """The loaded vocabulary of a name; a built-in one is loaded on first use.

    Raises:
        ServiceError: no such vocabulary, or it cannot be loaded.
    """
    return service.registry.entries.get(name) or await service.registry.loaded(name)


def check_digest(entry: LoadedVocabulary, wanted: str | None) -> None:
    """Raises DigestDiffers when the client wants another vocabulary than the name means."""
    digest = entry.vocabulary.digest
    if wanted is not None and wanted not in (digest, digest.removeprefix("sha256:")):
        raise DigestDiffers(f"{entry.name} has the digest {digest}", "/if_digest")


def deadline(service: Service, call: Call) -> float:
    """perf_counter time after which the answer is of no use."""
    limit = service.settings.request_timeout_ms / 1000
    return perf_counter() + (limit if call.timeout_s is None else min(call.timeout_s, limit))


def check_rows(service: Service, num_rows: int, pointer: str) -> None:
    """Raises TooLarge for more rows than `max_texts`."""
    limit = service.settings.max_texts
    if num_rows > limit:
        raise TooLarge(f"{num_rows} rows; max_texts is {limit}", pointer)


def row_faults(errors: dict[int, RowError]) -> list[dict[str, Any]]:
    """The refused rows as the answer lists them."""
    return [
        {
            "row": row,
            "code": error.code,
            "message": f"{error.message} ({error.where})" if error.where else error.message,
        }
        for row, error in sorted(errors.items())
    ]
