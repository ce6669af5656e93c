"""Answers to requests that ask for nothing but ids: most of all, and each written in one call."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from service.operations.rendering.json_rows import row_and_size_json, rows_and_sizes_json
from vocabularies.batch.batch import Encoded

if TYPE_CHECKING:
    from service.batching.work import Result
    from service.operations.schemas import CountRequest, EncodeBatchRequest, EncodeRequest
    from service.registry.entries import LoadedVocabulary

MAX_IDS = 8_192  # About 50 KB and 0.02 ms; longer answers are written in pieces.
NUM_REQUIRED = 2  # Fields that a request must have: the vocabulary and what to encode.


def asks_nothing(request: EncodeRequest | EncodeBatchRequest | CountRequest) -> bool:
    """Whether all options are as they are where a client says nothing of them."""
    return len(request.model_fields_set) == NUM_REQUIRED


def is_plain(request: EncodeRequest | EncodeBatchRequest, result: Result[Encoded]) -> bool:
    """Whether an answer is ids and their number, nothing else, and they are few."""
    encoded, begin, end = result.output, result.begin, result.end
    if not asks_nothing(request) or result.errors:
        return False
    if encoded.num_tokens is not None:
        return False
    return end - begin <= MAX_IDS and result.offsets[end] - result.offsets[begin] <= MAX_IDS


def plain_text(entry: LoadedVocabulary, result: Result[Encoded]) -> bytes:
    """The answer to one text."""
    encoded = result.output
    around = _around(entry.name, entry.vocabulary.digest, encoded.engine)
    return row_and_size_json(around, encoded.ids, result.offsets, result.begin)


def plain_batch(entry: LoadedVocabulary, result: Result[Encoded]) -> bytes:
    """The answer to several texts."""
    encoded = result.output
    around = _around(entry.name, entry.vocabulary.digest, encoded.engine)
    return rows_and_sizes_json(around, encoded.ids, result.offsets, result.begin, result.end)


@lru_cache(256)
def _around(name: str, digest: str, engine: str) -> tuple[bytes, bytes, bytes]:
    """What stands before the ids, between them and their number, and behind that."""
    before = b'{"vocabulary":%b,"digest":"%b","ids":' % (orjson.dumps(name), digest.encode())
    return before, b',"num_tokens":', b',"engine":"%b"}' % engine.encode()
