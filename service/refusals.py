"""A refusal in the words of the system whose path was asked for, before any route has seen it."""

from __future__ import annotations

from service.errors import ServiceError
from service.wordings import Refusal, Shape, problem_answer, worded

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


def refused(path: str, error: ServiceError) -> Refusal:
    """The answer to a request that is refused."""
    shape: Shape | None = "oip" if path.startswith("/v2") else SHAPES.get(path)
    return problem_answer(error) if shape is None else worded(error, shape)
