"""Refusals over HTTP: problem documents, or the words of the system that a path belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import orjson
from fastapi import Response
from typing_extensions import override

from service.core.call import get_call
from service.core.errors import ServiceError
from service.core.problem_details import as_service_error, problem

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

Shape = Literal["openai", "llama_cpp", "tei", "anthropic", "oip"]
TEI_TYPES = {413: "validation", 422: "validation", 429: "overloaded", 503: "unhealthy"}
OPENAI_TYPES = {404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}
ANTHROPIC_TYPES = {404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}


class Refusal(Response):
    """The answer to a request that is refused; says so to whoever counts."""

    def __init__(self, code: str, body: bytes, status: int, headers: dict[str, str]) -> None:
        super().__init__(body, status, headers)
        self.code = code

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        get_call(scope).refusal = self.code
        await super().__call__(scope, receive, send)


def make_problem_response(error: Exception) -> Refusal:
    """Make a problem document of any exception."""
    refused = as_service_error(error)
    status, headers, body = problem(refused)
    named = {name.decode(): value.decode() for name, value in headers}
    return Refusal(refused.code, body, status, named)


def make_dialect_response(error: Exception, shape: Shape) -> Refusal:
    """Word any exception as a system's clients read it."""
    refused = as_service_error(error)
    message = f"{refused.where}: {refused.message}" if refused.where else refused.message
    headers = {name.decode(): value.decode() for name, value in refused.headers}
    headers["content-type"] = "application/json"
    body = orjson.dumps(WORDINGS[shape](refused, message))
    return Refusal(refused.code, body, _status(refused, shape), headers)


def _status(refused: ServiceError, shape: Shape) -> int:
    """What the system itself would say where it knows fewer kinds of fault than we do."""
    if refused.status == 422 and shape in ("openai", "anthropic", "llama_cpp"):
        return 400
    return refused.status


def _openai(refused: ServiceError, message: str) -> Any:
    kind = OPENAI_TYPES.get(refused.status, "BadRequestError")
    kind = "InternalServerError" if refused.status == 500 else kind
    status = _status(refused, "openai")
    error = {"message": message, "type": kind, "param": refused.where or None, "code": status}
    return {"error": error}


def _llama_cpp(refused: ServiceError, message: str) -> Any:
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    return {"error": {"code": _status(refused, "llama_cpp"), "message": message, "type": kind}}


def _tei(refused: ServiceError, message: str) -> Any:
    return {"error": message, "error_type": TEI_TYPES.get(refused.status, "tokenizer")}


def _anthropic(refused: ServiceError, message: str) -> Any:
    kind = ANTHROPIC_TYPES.get(refused.status, "invalid_request_error")
    kind = "api_error" if refused.status >= 500 else kind
    return {"type": "error", "error": {"type": kind, "message": message}}


def _oip(refused: ServiceError, message: str) -> Any:
    return {"error": message}


WORDINGS: dict[Shape, Callable[[ServiceError, str], Any]] = {
    "openai": _openai,
    "llama_cpp": _llama_cpp,
    "tei": _tei,
    "anthropic": _anthropic,
    "oip": _oip,
}

SHAPES: dict[str, Shape] = {
    "/v1/messages/count_tokens": "anthropic",
    "/decode": "tei",
    **dict.fromkeys(
        (
            "/tokenize",
            "/detokenize",
            "/v1/tokenize",
            "/v1/detokenize",
            "/tokenizer_info",
            "/v1/completions/render",
            "/v1/chat/completions/render",
            "/v1/responses/input_tokens",
        ),
        "openai",
    ),
}


PREFIXES: dict[str, Shape] = {"/v2/": "oip", "/v1/models/": "openai"}


def find_shape(path: str) -> Shape | None:
    """Find the system whose words a path's refusals have; None: our own."""
    found = (shape for prefix, shape in PREFIXES.items() if f"{path}/".startswith(prefix))
    return next(found, SHAPES.get(path))


def make_error_response(path: str, error: Exception) -> Refusal:
    """Make the answer to a request that is refused."""
    shape = find_shape(path)
    return make_problem_response(error) if shape is None else make_dialect_response(error, shape)
