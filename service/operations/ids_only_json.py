"""Answers to requests that ask for nothing but ids: most of all, and each written in one call."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import orjson

from service.operations.rendering.json_stream import rows_json
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
    """Write the answer to one text."""
    encoded = result.output
    around = _around(entry.name, entry.vocabulary.digest, encoded.engine)
    begin, end = result.offsets[result.begin : result.begin + 2]
    ids = orjson.dumps(encoded.ids[begin:end], option=orjson.OPT_SERIALIZE_NUMPY)
    return b"".join((around.before, ids, around.between, b"%d" % (end - begin), around.after))


def plain_batch(entry: LoadedVocabulary, result: Result[Encoded]) -> bytes:
    """Write the answer to several texts."""
    encoded = result.output
    around = _around(entry.name, entry.vocabulary.digest, encoded.engine)
    rows = rows_json(encoded.ids, result.offsets, result.begin, result.end)
    places = pairwise(result.offsets[result.begin : result.end + 1])
    sizes = orjson.dumps([end - begin for begin, end in places])
    return b"".join((around.before, rows, around.between, sizes, around.after))


class Around(NamedTuple):
    """What stands before the ids, between them and their number, and behind that."""

    before: bytes
    between: bytes
    after: bytes


@lru_cache(256)
def _around(name: str, digest: str, engine: str) -> Around:
    before = b'{"vocabulary":%b,"digest":"%b","ids":' % (orjson.dumps(name), digest.encode())
    return Around(before, b',"num_tokens":', b',"engine":"%b"}' % engine.encode())
