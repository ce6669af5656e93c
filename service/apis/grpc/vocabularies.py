"""Implements the calls of warptok.v1.Tokenizer for vocabularies and for the service itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import orjson

from service.apis.grpc.conversions import vocabulary_message
from service.core.call import Call
from service.core.errors import InvalidRequest, ServiceError, TooLarge
from service.operations.context import Service
from service.operations.description import describe_service
from service.protos import warptok_pb2 as pb
from service.registry.management import MAX_FILES, Upload
from service.registry.reports import report, report_put


@contextmanager
def _named_by_vocabulary() -> Iterator[None]:
    """Make refusals in the block refer to the message field `vocabulary` instead of the name."""
    try:
        yield
    except ServiceError as error:
        if error.where == "/name":
            error.where = "vocabulary"
        raise


async def list_vocabularies(
    service: Service, call: Call, request: pb.ListVocabulariesRequest
) -> pb.ListVocabulariesResponse:
    """List all vocabularies, loaded or not."""
    registry = service.registry
    messages = [vocabulary_message(report(registry, each)) for each in [*registry.known.values()]]
    return pb.ListVocabulariesResponse(vocabularies=messages)


async def get_vocabulary(
    service: Service, call: Call, request: pb.GetVocabularyRequest
) -> pb.Vocabulary:
    """Describe one vocabulary."""
    return vocabulary_message(report(service.registry, service.registry.find(request.vocabulary)))


async def put_vocabulary(
    service: Service, call: Call, requests: AsyncIterator[pb.PutVocabularyRequest]
) -> pb.PutVocabularyResponse:
    """Register an uploaded vocabulary; each file may arrive in several pieces.

    A first message without a file and without data only describes the vocabulary.
    """
    first: pb.PutVocabularyRequest | None = None
    files: dict[str, bytearray] = {}
    limit, size = service.settings.max_vocabulary_bytes, 0
    name = ""
    async for request in requests:
        if first is None:
            first = request
            if not (request.file or request.data):
                continue
        name = request.file or name or first.vocabulary
        size += len(request.data)
        if size > limit:
            raise TooLarge(f"more than {limit} bytes (max_vocabulary_bytes)", "data")
        if name not in files and len(files) == MAX_FILES:
            raise TooLarge(f"more than {MAX_FILES} files", "file")
        files.setdefault(name, bytearray()).extend(request.data)
    if first is None:
        raise InvalidRequest("the stream has no message", "vocabulary")
    upload = Upload(
        {file: bytes(data) for file, data in files.items()},
        first.format or "auto",
        first.pretokenizer or None,
        dict(first.special_tokens) or None,
        first.id_offset,
        tuple(dict.fromkeys(first.aliases)),
        first.decoder or "file",
    )
    with _named_by_vocabulary():
        entry, created = await service.get_engine_parts().vocabularies.put(
            first.vocabulary, upload, replace=first.replace
        )
    message = vocabulary_message(report_put(service.registry, entry))
    return pb.PutVocabularyResponse(vocabulary=message, created=created)


async def delete_vocabulary(
    service: Service, call: Call, request: pb.DeleteVocabularyRequest
) -> pb.DeleteVocabularyResponse:
    """Delete an uploaded vocabulary."""
    with _named_by_vocabulary():
        await service.get_engine_parts().vocabularies.delete(request.vocabulary)
    return pb.DeleteVocabularyResponse()


async def put_alias(
    service: Service, call: Call, request: pb.PutAliasRequest
) -> pb.PutAliasResponse:
    """Add an alias of a vocabulary."""
    created = await service.get_engine_parts().vocabularies.put_alias(
        request.alias, request.vocabulary, replace=request.replace
    )
    own = service.registry.find(request.alias).name
    return pb.PutAliasResponse(vocabulary=own, created=created)


async def delete_alias(
    service: Service, call: Call, request: pb.DeleteAliasRequest
) -> pb.DeleteAliasResponse:
    """Delete an alias of a vocabulary."""
    await service.get_engine_parts().vocabularies.delete_alias(request.alias)
    return pb.DeleteAliasResponse()


async def get_info(service: Service, call: Call, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
    """Describe the service."""
    return pb.GetInfoResponse(json=orjson.dumps(describe_service(service)).decode())
