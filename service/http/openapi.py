"""Adds refusals to openapi.json that many routes share, so that the routes need not declare them.

These are the refusals for keys, limits, the queue and the deadline. Each is described in the error
format of its path (error_responses.py).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import orjson
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.http.error_responses import find_shape
from service.security.scopes import OPEN

logger = logging.getLogger(__name__)
ALL_PATHS = (401, 403, 422)
NAMED_VOCABULARY = (400, 404, 503)  # For paths with a vocabulary, or of other systems.
WITH_BODY = (400, 408, 413, 415, 429, 503, 504)
ERROR = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
METHODS = ("get", "post", "put", "delete")


class ProblemFinding(BaseModel):
    """One of several faults of a request."""

    where: str
    message: str


class Problem(BaseModel):
    """A refusal, as a problem document (RFC 9457)."""

    type: str = Field(description="A path that identifies the kind of refusal.")
    title: str
    status: int
    detail: str = Field(description="Message for people: what is wrong, and what is possible.")
    code: str = Field(description="For programs.")
    where: str = Field(
        description="Place of the fault in the request: a JSON pointer, a line or a header."
    )
    findings: list[ProblemFinding] = Field(
        default=[], description="All faults; present only if there are several."
    )


REFUSALS = {
    400: "The body is not JSON.",
    401: "A key is needed.",
    403: "The key does not have the scope, or a built-in vocabulary would be replaced or deleted.",
    404: "No such vocabulary (near names are suggested), or no such job.",
    408: "Nothing more of the body came for too long.",
    409: "The name means another vocabulary, or a job is in another state.",
    412: "The vocabulary's digest is not the one in if_digest.",
    413: "Something is above a limit, which is named.",
    415: "A content type or format that is not supported.",
    422: "A field, a row or a vocabulary file is wrong; the place is named.",
    429: "The queue is full, or the key is above its rate; Retry-After says when to try again.",
    503: "Starting or stopping.",
    504: "The deadline passed in the queue.",
    507: "The disk is full.",
}


@functools.cache
def make_problem_content() -> dict[str, Any]:
    """Return the schema of problem documents by media type, without references."""
    schema = Problem.model_json_schema()
    schema["properties"]["findings"]["items"] = schema.pop("$defs")["ProblemFinding"]
    return {"application/problem+json": {"schema": schema}}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe refusals with these statuses in the form that FastAPI's decorators expect."""
    content = make_problem_content()
    return {status: {"description": REFUSALS[status], "content": content} for status in statuses}


def with_refusals(describe: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Wrap the function that creates openapi.json, so that it adds the missing refusals."""

    def describe_with_refusals() -> dict[str, Any]:
        document = describe()
        for path, operations in document["paths"].items():
            for method in METHODS:
                if method in operations and path not in OPEN:
                    _add_refusals(path, method, operations[method]["responses"])
        return document

    return describe_with_refusals


def serve_written(app: FastAPI) -> None:
    """Replace the route of openapi.json by one that serializes the document only once, in a thread.

    This takes 0.1 to 0.3 s, in which requests on the same core wait. Servers therefore call
    `write_before_ready` at their start.
    """
    path = app.openapi_url
    assert path is not None

    writing: asyncio.Task[bytes] | None = None

    def write() -> bytes:
        try:
            return orjson.dumps(app.openapi())
        finally:
            app.openapi_schema = None  # The document as a dict, which takes some megabytes.

    async def write_once() -> bytes:
        nonlocal writing
        if writing is None:
            writing = asyncio.create_task(asyncio.to_thread(write))
        try:  # A client that disconnects does not cancel it for others.
            return await asyncio.shield(writing)
        except Exception:
            writing = None  # The next request tries again.
            raise

    async def answer(_: Request) -> Response:
        return Response(await write_once(), media_type="application/json")

    app.state.write_openapi = write_once
    others = [each for each in app.routes if getattr(each, "path", "") != path]
    # FastAPI tries its routes in order, which takes longer than this answer.
    app.router.routes[:] = [Route(path, answer, include_in_schema=False), *others]


async def write_before_ready(app: FastAPI) -> None:
    """Write the document of `serve_written` while no request waits; log an error."""
    try:
        await app.state.write_openapi()
    except Exception as error:
        logger.error("This is a bug. openapi.json cannot be written", exc_info=error)


def _add_refusals(path: str, method: str, responses: dict[str, Any]) -> None:
    """Add the refusals of one operation; replace FastAPI's 422, which this service never sends."""
    shape = find_shape(path)
    content = make_problem_content() if shape is None else ERROR
    statuses = [*ALL_PATHS]
    if "{" in path or shape is not None:
        statuses += NAMED_VOCABULARY
    if method in ("post", "put"):
        statuses += WITH_BODY
    for status in statuses:
        known = responses.get(str(status))
        if known is None or "HTTPValidationError" in str(known):
            responses[str(status)] = {"description": REFUSALS[status], "content": content}
