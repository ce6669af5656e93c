"""FastAPI's declaration of the native calls: the reference door, and what openapi.json shows.

The hot calls have a short cut in front (hot_routes.py) that calls the same functions.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from service import schemas, windows_answer
from service.calls import Call
from service.errors import UnsupportedFormat
from service.hot_routes import HOT, Answer, ClientGone, plain_call, respond
from service.state import Service

__all__ = ["router"]

router = APIRouter(tags=["tokens"])


class Answered(Response):
    """A response that reads, answers and sends one call as the hot door does."""

    def __init__(self, service: Service, answer: Answer, call: Call) -> None:
        super().__init__()
        self.service, self.answer, self.call = service, answer, call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer or its refusal."""
        self.call.receive = receive
        try:
            await respond(self.service, self.answer, self.call, receive, send)
        except ClientGone:
            self.service.metrics.cancelled()


def _json_call(request: Request) -> Call:
    call = plain_call(request.scope)
    if call is None:
        encoding = request.headers.get("content-encoding")
        if encoding is not None:
            raise UnsupportedFormat(f"a {encoding} body is not read", "Content-Encoding")
        given = request.headers.get("content-type", "nothing")
        raise UnsupportedFormat(f"send application/json, not {given}", "Content-Type")
    return call


def _declare(
    path: str, answer: Answer, request_model: type[BaseModel], response_model: type[BaseModel]
) -> None:
    """One POST call: documented from its models, answered by its function."""

    async def endpoint(request: Request) -> Response:
        return Answered(request.app.state.service, answer, _json_call(request))

    schema = request_model.model_json_schema(ref_template="#/components/schemas/{model}")
    body: dict[str, Any] = {"required": True, "content": {"application/json": {"schema": schema}}}
    router.add_api_route(
        path,
        endpoint,
        methods=["POST"],
        name=path.removeprefix("/v1/").replace("/", "_"),
        summary=(answer.__doc__ or path).splitlines()[0].split(": ", 1)[-1],
        response_model=response_model,
        responses=schemas.refusals(400, 404, 412, 413, 415, 422, 429, 503, 504),
        openapi_extra={"requestBody": body},
    )


_declare("/v1/encode", HOT["/v1/encode"], schemas.EncodeRequest, schemas.EncodeResponse)
_declare(
    "/v1/encode/batch",
    HOT["/v1/encode/batch"],
    schemas.EncodeBatchRequest,
    schemas.EncodeBatchResponse,
)
_declare("/v1/count", HOT["/v1/count"], schemas.CountRequest, schemas.CountResponse)
_declare("/v1/decode", HOT["/v1/decode"], schemas.DecodeRequest, schemas.DecodeResponse)
_declare(
    "/v1/decode/batch",
    HOT["/v1/decode/batch"],
    schemas.DecodeBatchRequest,
    schemas.DecodeBatchResponse,
)
_declare("/v1/windows", windows_answer.windows, schemas.WindowsRequest, schemas.WindowsResponse)
