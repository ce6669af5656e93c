"""A refusal in the words of the system whose path was asked for, where no route has seen it."""

from __future__ import annotations

from service.http.error_responses import Refusal, Shape, problem_answer, worded

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


def shape_of(path: str) -> Shape | None:
    """The system whose words a path's refusals have; None: our own."""
    found = (shape for prefix, shape in PREFIXES.items() if f"{path}/".startswith(prefix))
    return next(found, SHAPES.get(path))


def refused(path: str, error: Exception) -> Refusal:
    """The answer to a request that is refused."""
    shape = shape_of(path)
    return problem_answer(error) if shape is None else worded(error, shape)
