"""FastAPI's declaration of the native calls, and their bodies that are no JSON.

Those that are JSON are answered in front of it (asgi_fast_path.py).
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from service.apis.bulk.arrow import BulkArrow
from service.apis.bulk.arrow_reader import MEDIA_TYPE
from service.apis.bulk.fasta import BulkFasta, FastaQuery
from service.apis.bulk.text import BulkText
from service.core.call import get_call
from service.core.errors import UnsupportedFormat
from service.http.dependencies import ServiceDep
from service.http.openapi import refusals
from service.http.streaming_response import StreamedResponse
from service.operations import schemas
from service.operations.context import Service
from service.operations.query_schemas import BatchQuery

router = APIRouter(tags=["tokens"])


BULK: dict[tuple[str, str], type[StreamedResponse]] = {
    ("/v1/encode", "application/octet-stream"): BulkText,
    ("/v1/encode", "text/plain"): BulkText,
    ("/v1/encode/batch", MEDIA_TYPE): BulkArrow,
}
FASTA = "/v1/encode/fasta"
"""Bodies that are no JSON, by path and media type."""


def _unsupported(path: str, given: str) -> UnsupportedFormat:
    read = ["application/json", *(media_type for own, media_type in BULK if own == path)]
    return UnsupportedFormat(f"send {' or '.join(read)}, not {given or 'nothing'}", "Content-Type")


def _parameters(path: str) -> dict[str, Any]:
    """What openapi.json says of the query string, which only bulk bodies have."""
    query = next((call.query_model for (own, _), call in BULK.items() if own == path), None)
    return {} if query is None else _query_parameters(query, "With a bulk body. ")


def _query_parameters(query: type[BatchQuery], note: str = "") -> dict[str, Any]:
    schema = query.model_json_schema()
    required = [] if note else schema.get("required", [])
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "description": note + each.pop("description"),
                "schema": each,
            }
            for name, each in schema["properties"].items()
        ]
    }


def _declare(path: str, request_model: type[BaseModel]) -> dict[str, Any]:
    """Describe a call's body and its refusals, as FastAPI's decorators take them."""
    schema = request_model.model_json_schema(ref_template="#/components/schemas/{model}")
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    binary = {"schema": {"type": "string", "format": "binary"}}
    content |= {media_type: binary for own, media_type in BULK if own == path}
    return {
        "responses": refusals(400, 404, 412, 413, 415, 422, 429, 503, 504),
        "openapi_extra": {
            "requestBody": {"required": True, "content": content},
            **_parameters(path),
        },
    }


def _answer_bulk(service: Service, request: Request) -> Response:
    """Answer a body that is no JSON; the fast path has taken those that are."""
    path = request.scope["path"]
    media_type = get_call(request.scope).media_type.decode("latin-1")
    bulk = BULK.get((path, media_type))
    if bulk is None:
        raise _unsupported(path, media_type)
    return bulk(service, request)


@router.post(
    "/v1/encode",
    summary="The ids of one text",
    response_model=schemas.EncodeResponse,
    **_declare("/v1/encode", schemas.EncodeRequest),
)
async def encode(service: ServiceDep, request: Request) -> Response:
    """The text stands in JSON, or is the body itself, with the options in the query string."""
    return _answer_bulk(service, request)


@router.post(
    "/v1/encode/batch",
    summary="The ids of many texts; a refused row leaves the others answered",
    response_model=schemas.EncodeBatchResponse,
    **_declare("/v1/encode/batch", schemas.EncodeBatchRequest),
)
async def encode_batch(service: ServiceDep, request: Request) -> Response:
    """The texts stand in JSON, or are the rows of an Arrow stream."""
    return _answer_bulk(service, request)


@router.post(
    "/v1/count",
    summary="How many ids each text has; they are never written out",
    response_model=schemas.CountResponse,
    **_declare("/v1/count", schemas.CountRequest),
)
async def count(service: ServiceDep, request: Request) -> Response:
    """The texts stand in JSON."""
    return _answer_bulk(service, request)


@router.post(
    "/v1/decode",
    summary="The text of one row of ids",
    response_model=schemas.DecodeResponse,
    **_declare("/v1/decode", schemas.DecodeRequest),
)
async def decode(service: ServiceDep, request: Request) -> Response:
    """The ids stand in JSON."""
    return _answer_bulk(service, request)


@router.post(
    "/v1/decode/batch",
    summary="The text of each row of ids; a refused row leaves the others answered",
    response_model=schemas.DecodeBatchResponse,
    **_declare("/v1/decode/batch", schemas.DecodeBatchRequest),
)
async def decode_batch(service: ServiceDep, request: Request) -> Response:
    """The rows stand in JSON."""
    return _answer_bulk(service, request)


@router.post(
    "/v1/windows",
    summary="Overlapping windows over the tokens of one sequence",
    response_model=schemas.WindowsResponse,
    **_declare("/v1/windows", schemas.WindowsRequest),
)
async def windows(service: ServiceDep, request: Request) -> Response:
    """The sequence stands in JSON."""
    return _answer_bulk(service, request)


@router.post(
    FASTA,
    summary="The ids of the records of a FASTA or FASTQ file, or windows over them",
    response_class=Response,
    responses={
        200: {"description": "An Arrow stream.", "content": {MEDIA_TYPE: {}}},
        **refusals(400, 404, 412, 413, 415, 422, 429, 503, 504),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"text/x-fasta": {"schema": {"type": "string", "format": "binary"}}},
        },
        **_query_parameters(FastaQuery),
    },
)
async def encode_fasta(service: ServiceDep, request: Request) -> Response:
    """Records are read, encoded and sent as they come; whatever the Content-Type says."""
    return BulkFasta(service, request)
