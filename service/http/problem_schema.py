"""What openapi.json says of refusals: one shape, a sentence for each status."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


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
