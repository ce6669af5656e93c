"""What openapi.json says beyond what the routes declare: the refusals that any path may answer.

Keys, limits, the queue and the deadline are looked at in front of routes or by all of them, so that
no route has to name them; each is described in the shape of its path (see error_responses.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field

from service.http.error_responses import find_shape
from service.security.scopes import OPEN

EVERYWHERE = (401, 403, 422)
FOUND = (400, 404, 503)
READ = (400, 408, 413, 415, 429, 503, 504)
ERROR = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
METHODS = ("get", "post", "put", "delete")


class ProblemFinding(BaseModel):
    """One of several faults."""

    where: str
    message: str


class Problem(BaseModel):
    """A refusal (RFC 9457)."""

    type: str = Field(description="A path that names the kind of refusal.")
    title: str
    status: int
    detail: str = Field(description="For people: what was given, what is possible.")
    code: str = Field(description="For programs.")
    where: str = Field(description="The place in the request: a JSON pointer, a line, a header.")
    findings: list[ProblemFinding] = Field(default=[], description="Only when there are several.")


REFUSALS = {
    400: "The body is not JSON.",
    401: "A key is needed.",
    403: "The key has not the scope, or a built-in vocabulary would be replaced or deleted.",
    404: "No such vocabulary (near names are suggested), or no such job.",
    408: "Nothing came of the body for too long.",
    409: "The name means another vocabulary, or a job is in another state.",
    412: "The vocabulary's digest is not the one asked for.",
    413: "Something is above a limit, which is named.",
    415: "A content type or format that is not read.",
    422: "A field, a row or a vocabulary file is wrong; the place is named.",
    429: "The queue is full; Retry-After says when to come again.",
    503: "Starting or stopping.",
    504: "The deadline passed in the queue.",
    507: "The disk is full.",
}


def problem_content() -> dict[str, Any]:
    """A refusal by its media type; whole, because its place in the document is not known here."""
    schema = Problem.model_json_schema()
    schema["properties"]["findings"]["items"] = schema.pop("$defs")["ProblemFinding"]
    return {"application/problem+json": {"schema": schema}}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What openapi.json says of a call's refusals."""
    content = problem_content()
    return {status: {"description": REFUSALS[status], "content": content} for status in statuses}


def with_refusals(describe: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """FastAPI's description of its routes, with the refusals that they do not name."""

    def described() -> dict[str, Any]:
        document = describe()
        for path, operations in document["paths"].items():
            for method in METHODS:
                if method in operations and path not in OPEN:
                    _add(path, method, operations[method]["responses"])
        return document

    return described


def _add(path: str, method: str, responses: dict[str, Any]) -> None:
    """The refusals of one operation; FastAPI's own 422, which nobody answers, gives way."""
    shape = find_shape(path)
    content = problem_content() if shape is None else ERROR
    statuses = [*EVERYWHERE]
    if "{" in path or shape is not None:
        statuses += FOUND
    if method in ("post", "put"):
        statuses += READ
    for status in statuses:
        known = responses.get(str(status))
        if known is None or "HTTPValidationError" in str(known):
            responses[str(status)] = {"description": REFUSALS[status], "content": content}
