"""A refusal in the words of the system whose path was asked for, before any route has seen it."""

from __future__ import annotations

from fastapi import Response

from service.errors import ServiceError, problem
from service.wordings import Shape, worded

__all__ = ["refused"]

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
            "/v1/models",
        ),
        "openai",
    ),
}


def refused(path: str, error: ServiceError) -> Response:
    """The answer to a request that is refused."""
    shape: Shape | None = "oip" if path.startswith("/v2") else SHAPES.get(path)
    if shape is not None:
        return worded(error, shape)
    status, headers, body = problem(error)
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})
