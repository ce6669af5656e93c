"""Creates refusals over HTTP: problem documents, or errors in the format of another system."""

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
    """The response to a refused request; records its code in the request's call.

    Args:
        code: the code of the refusal.
        body: the content of the response.
        status: the HTTP status.
        headers: the headers of the response.
    """

    def __init__(self, code: str, body: bytes, status: int, headers: dict[str, str]) -> None:
        super().__init__(body, status, headers)
        self.code = code

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        get_call(scope).refusal = self.code
        await super().__call__(scope, receive, send)


def make_problem_response(error: Exception) -> Refusal:
    """Return the refusal for any exception, with a problem document."""
    refusal = as_service_error(error)
    status, headers, body = problem(refusal)
    decoded = {name.decode(): value.decode() for name, value in headers}
    return Refusal(refusal.code, body, status, decoded)


def make_dialect_response(error: Exception, shape: Shape) -> Refusal:
    """Return the refusal for any exception, in the format that a system's clients read."""
    refusal = as_service_error(error)
    message = f"{refusal.where}: {refusal.message}" if refusal.where else refusal.message
    headers = {name.decode(): value.decode() for name, value in refusal.headers}
    headers["content-type"] = "application/json"
    body = orjson.dumps(BODIES[shape](refusal, message))
    return Refusal(refusal.code, body, _status(refusal, shape), headers)


def _status(refusal: ServiceError, shape: Shape) -> int:
    """Return the status that the system itself would use; some systems have no 422."""
    if refusal.status == 422 and shape in ("openai", "anthropic", "llama_cpp"):
        return 400
    return refusal.status


def _openai(refusal: ServiceError, message: str) -> Any:
    kind = OPENAI_TYPES.get(refusal.status, "BadRequestError")
    kind = "InternalServerError" if refusal.status == 500 else kind
    status = _status(refusal, "openai")
    error = {"message": message, "type": kind, "param": refusal.where or None, "code": status}
    return {"error": error}


def _llama_cpp(refusal: ServiceError, message: str) -> Any:
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    return {"error": {"code": _status(refusal, "llama_cpp"), "message": message, "type": kind}}


def _tei(refusal: ServiceError, message: str) -> Any:
    return {"error": message, "error_type": TEI_TYPES.get(refusal.status, "tokenizer")}


def _anthropic(refusal: ServiceError, message: str) -> Any:
    kind = ANTHROPIC_TYPES.get(refusal.status, "invalid_request_error")
    kind = "api_error" if refusal.status >= 500 else kind
    return {"type": "error", "error": {"type": kind, "message": message}}


def _oip(refusal: ServiceError, message: str) -> Any:
    return {"error": message}


BODIES: dict[Shape, Callable[[ServiceError, str], Any]] = {
    "openai": _openai,
    "llama_cpp": _llama_cpp,
    "tei": _tei,
    "anthropic": _anthropic,
    "oip": _oip,
}

SHAPES: dict[str, Shape] = {
    "/v1/messages/count_tokens": "anthropic",
    "/decode": "tei",
    "/tokenize": "openai",
    "/detokenize": "openai",
    "/v1/tokenize": "openai",
    "/tokenize/count": "openai",
    "/v1/tokenize/count": "openai",
    "/extras/tokenize/count": "openai",
    "/apply-template": "llama_cpp",
    "/v1/detokenize": "openai",
    "/tokenizer_info": "openai",
    "/v1/completions/render": "openai",
    "/v1/chat/completions/render": "openai",
    "/v1/completions/derender": "openai",
    "/v1/chat/completions/derender": "openai",
    "/v1/responses/input_tokens": "openai",
}
PREFIXES: dict[str, Shape] = {"/v2/": "oip", "/v1/models/": "openai"}


def find_shape(path: str) -> Shape | None:
    """Return the system whose error format a path uses; None if it uses problem documents."""
    for prefix, shape in PREFIXES.items():
        if f"{path}/".startswith(prefix):
            return shape
    return SHAPES.get(path)


def make_error_response(path: str, error: Exception) -> Refusal:
    """Return the refusal of a request in the error format of its path."""
    shape = find_shape(path)
    return make_problem_response(error) if shape is None else make_dialect_response(error, shape)
