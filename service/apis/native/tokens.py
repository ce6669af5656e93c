"""FastAPI's declaration of the native calls: the reference door, and what openapi.json shows.

The hot calls have a short cut in front (service/http/asgi_fast_path.py), which calls the same
functions.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from service.apis.bulk.arrow import BulkArrow
from service.apis.bulk.arrow_reader import MEDIA_TYPE
from service.apis.bulk.fasta import BulkFasta, FastaQuery
from service.apis.bulk.text import BulkText
from service.batching.work import ClientGone
from service.core.call import Call
from service.core.errors import UnsupportedFormat
from service.core.request_head import call_of
from service.http.asgi_fast_path import FAST_PATH_CALLS, respond
from service.http.problem_schema import refusals
from service.http.streaming_response import Streamed
from service.operations import schemas
from service.operations.context import Service
from service.operations.operation import Operation
from service.operations.query_schemas import BatchQuery
from service.operations.windows import WINDOWS

router = APIRouter(tags=["tokens"])


class Answered(Response):
    """A response that reads, answers and sends one call as the hot door does."""

    def __init__(self, service: Service, operation: Operation, call: Call) -> None:
        super().__init__()
        self.service, self.operation, self.call = service, operation, call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer or its refusal."""
        self.call.receive = receive
        try:
            await respond(self.service, self.operation, self.call, receive, send)
        except ClientGone:
            self.call.is_gone = True


BULK: dict[tuple[str, str], type[Streamed]] = {
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
    query = next((door.query_model for (own, _), door in BULK.items() if own == path), None)
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


def _declare(
    path: str, operation: Operation, summary: str, response_model: type[BaseModel]
) -> None:
    """One POST call: documented from its models, answered as the hot door answers it."""

    async def endpoint(request: Request) -> Response:
        service, call = request.app.state.service, call_of(request.scope)
        media_type = call.media_type.decode("latin-1")
        if media_type == "application/json":
            return Answered(service, operation, call)
        bulk = BULK.get((path, media_type))
        if bulk is None:
            raise _unsupported(path, media_type)
        return bulk(service, request)

    schema = operation.request_model.model_json_schema(ref_template="#/components/schemas/{model}")
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    binary = {"schema": {"type": "string", "format": "binary"}}
    content |= {media_type: binary for own, media_type in BULK if own == path}
    router.add_api_route(
        path,
        endpoint,
        methods=["POST"],
        name=path.removeprefix("/v1/").replace("/", "_"),
        summary=summary,
        response_model=response_model,
        responses=refusals(400, 404, 412, 413, 415, 422, 429, 503, 504),
        openapi_extra={"requestBody": {"required": True, "content": content}, **_parameters(path)},
    )


DECLARED: dict[str, tuple[str, type[BaseModel]]] = {
    "/v1/encode": ("The ids of one text", schemas.EncodeResponse),
    "/v1/encode/batch": (
        "The ids of many texts; a refused row leaves the others answered",
        schemas.EncodeBatchResponse,
    ),
    "/v1/count": (
        "How many ids each text has; they are never written out",
        schemas.CountResponse,
    ),
    "/v1/decode": ("The text of one row of ids", schemas.DecodeResponse),
    "/v1/decode/batch": (
        "The text of each row of ids; a refused row leaves the others answered",
        schemas.DecodeBatchResponse,
    ),
    "/v1/windows": (
        "Overlapping windows over the tokens of one sequence",
        schemas.WindowsResponse,
    ),
}
for _path, (_summary, _response_model) in DECLARED.items():
    _declare(_path, FAST_PATH_CALLS.get(_path, WINDOWS), _summary, _response_model)


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
async def encode_fasta(request: Request) -> Response:
    """Records are read, encoded and sent as they come; whatever the Content-Type says."""
    return BulkFasta(request.app.state.service, request)
