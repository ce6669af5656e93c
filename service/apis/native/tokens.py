"""Declares the native token calls to FastAPI, and answers those whose bodies are not JSON.

asgi_fast_path.py answers JSON bodies before FastAPI receives the request.
"""

from __future__ import annotations

from collections.abc import Callable
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

BULK: dict[str, dict[str, type[StreamedResponse]]] = {
    "/v1/encode": {"application/octet-stream": BulkText, "text/plain": BulkText},
    "/v1/encode/batch": {MEDIA_TYPE: BulkArrow},
}
"""The responses to bodies that are not JSON, by path and media type."""
BINARY = {"schema": {"type": "string", "format": "binary"}}
FASTA_FORM = {
    "schema": {
        "type": "object",
        "required": ["channel", "sequences"],
        "properties": {
            "channel": {
                "type": "string",
                "description": "With window. Lines of a record's name, the position of a base from "
                "0 and its value, with tabs between; other bases have 0. Comes first.",
            },
            "sequences": {
                "type": "string",
                "format": "binary",
                "description": "The FASTA or FASTQ file.",
            },
        },
    }
}
REFUSALS = refusals(400, 404, 412, 413, 415, 422, 429, 503, 504)
Handler = Callable[..., Any]


def _describe_query(query: type[BatchQuery], note: str = "") -> list[dict[str, Any]]:
    """Describe the options of a query string for openapi.json.

    Args:
        query: the model of the options.
        note: a text before the description of each option; if there is one, no option is required.
    """
    schema = query.model_json_schema()
    required = [] if note else schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": note + field.pop("description"),
            "schema": field,
        }
        for name, field in schema["properties"].items()
    ]


def _post(
    path: str, summary: str, request: type[BaseModel], response: type[BaseModel]
) -> Callable[[Handler], Handler]:
    """Declare a call: its JSON body and answer, its bulk bodies, and their options.

    Args:
        path: the path of the call.
        summary: the summary of the call in openapi.json.
        request: the model of the JSON body.
        response: the model of the JSON answer.
    """
    schema = request.model_json_schema(ref_template="{model}")
    schema = _inline(schema, schema.pop("$defs", {}))
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    described: dict[str, Any] = {"requestBody": {"required": True, "content": content}}
    for media_type, bulk in BULK.get(path, {}).items():
        content[media_type] = BINARY
        described["parameters"] = _describe_query(bulk.query_model, "With a bulk body. ")
    return router.post(
        path,
        summary=summary,
        response_model=response,
        responses=REFUSALS,
        openapi_extra=described,
    )


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Replace references by their definitions, which FastAPI does not collect from here."""
    if isinstance(schema, list):
        return [_inline(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"]], definitions)
    return {name: _inline(value, definitions) for name, value in schema.items()}


def _answer_bulk(service: Service, request: Request) -> Response:
    """Answer a request whose body is not JSON.

    Raises:
        UnsupportedFormat: the path does not support the media type.
    """
    responses = BULK.get(request.scope["path"], {})
    media_type = get_call(request.scope).media_type.decode("latin-1")
    if media_type not in responses:
        accepted = " or ".join(["application/json", *responses])
        message = f"send {accepted}, not {media_type or 'nothing'}"
        raise UnsupportedFormat(message, "Content-Type")
    return responses[media_type](service, request)


@_post(
    "/v1/encode",
    "The ids of one text",
    schemas.EncodeRequest,
    schemas.EncodeResponse,
)
async def encode(service: ServiceDep, request: Request) -> Response:
    """Encode one text: from a JSON body, or from a text body with options in the query string."""
    return _answer_bulk(service, request)


@_post(
    "/v1/encode/batch",
    "The ids of many texts; a refused row leaves the others answered",
    schemas.EncodeBatchRequest,
    schemas.EncodeBatchResponse,
)
async def encode_batch(service: ServiceDep, request: Request) -> Response:
    """Encode many texts: from a JSON body, or from the rows of an Arrow stream."""
    return _answer_bulk(service, request)


@_post(
    "/v1/count",
    "How many ids each text has; they are never written out",
    schemas.CountRequest,
    schemas.CountResponse,
)
async def count(service: ServiceDep, request: Request) -> Response:
    """Count the ids of each text in a JSON body."""
    return _answer_bulk(service, request)


@_post(
    "/v1/decode",
    "The text of one row of ids",
    schemas.DecodeRequest,
    schemas.DecodeResponse,
)
async def decode(service: ServiceDep, request: Request) -> Response:
    """Decode one row of ids, in a JSON body."""
    return _answer_bulk(service, request)


@_post(
    "/v1/decode/batch",
    "The text of each row of ids; a refused row leaves the others answered",
    schemas.DecodeBatchRequest,
    schemas.DecodeBatchResponse,
)
async def decode_batch(service: ServiceDep, request: Request) -> Response:
    """Decode many rows of ids, in a JSON body."""
    return _answer_bulk(service, request)


@_post(
    "/v1/windows",
    "Overlapping windows over the tokens of one sequence",
    schemas.WindowsRequest,
    schemas.WindowsResponse,
)
async def windows(service: ServiceDep, request: Request) -> Response:
    """Cut a sequence, in a JSON body, into overlapping windows of tokens."""
    return _answer_bulk(service, request)


@_post(
    "/v1/chunks",
    "Overlapping chunks of the ids of one text, with their places",
    schemas.ChunksRequest,
    schemas.ChunksResponse,
)
async def chunks(service: ServiceDep, request: Request) -> Response:
    """Cut a text, in a JSON body, into overlapping chunks of at most `chunk_size` ids."""
    return _answer_bulk(service, request)


@router.post(
    "/v1/encode/fasta",
    summary="The ids of the records of a FASTA or FASTQ file, or windows over them",
    response_class=Response,
    responses={
        200: {"description": "An Arrow stream.", "content": {MEDIA_TYPE: {}}},
        **REFUSALS,
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"text/x-fasta": BINARY, "multipart/form-data": FASTA_FORM},
        },
        "parameters": _describe_query(FastaQuery),
    },
)
async def encode_fasta(service: ServiceDep, request: Request) -> Response:
    """Encode FASTA or FASTQ records while the body arrives; any Content-Type is accepted."""
    return BulkFasta(service, request)
