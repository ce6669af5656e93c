"""FastAPI's declaration of the native calls: the reference door, and what openapi.json shows.

The hot calls have a short cut in front (hot_routes.py) that calls the same functions.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from service import schemas
from service.calls import Call, Operation
from service.errors import UnsupportedFormat
from service.hot_routes import HOT, plain_call, respond
from service.problem_schema import refusals
from service.state import Service
from service.windows_answer import WINDOWS
from service.work import ClientGone

__all__ = ["router"]

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
            self.service.metrics.cancelled()


def _json_call(request: Request) -> Call:
    call = plain_call(request.scope["headers"])
    if call is None:
        encoding = request.headers.get("content-encoding")
        if encoding is not None:
            raise UnsupportedFormat(f"a {encoding} body is not read", "Content-Encoding")
        given = request.headers.get("content-type", "nothing")
        raise UnsupportedFormat(f"send application/json, not {given}", "Content-Type")
    return call


def _declare(
    path: str, operation: Operation, summary: str, response_model: type[BaseModel]
) -> None:
    """One POST call: documented from its models, answered as the hot door answers it."""

    async def endpoint(request: Request) -> Response:
        return Answered(request.app.state.service, operation, _json_call(request))

    schema = operation.request_model.model_json_schema(ref_template="#/components/schemas/{model}")
    body: dict[str, Any] = {"required": True, "content": {"application/json": {"schema": schema}}}
    router.add_api_route(
        path,
        endpoint,
        methods=["POST"],
        name=path.removeprefix("/v1/").replace("/", "_"),
        summary=summary,
        response_model=response_model,
        responses=refusals(400, 404, 412, 413, 415, 422, 429, 503, 504),
        openapi_extra={"requestBody": body},
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
    _declare(_path, HOT.get(_path, WINDOWS), _summary, _response_model)
