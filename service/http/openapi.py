"""What openapi.json says beyond what the routes declare: the refusals that any path may answer.

Keys, limits, the queue and the deadline are looked at in front of routes or by all of them, so that
no route has to name them; each is described in the shape of its path (see `refusals`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.http.problem_schema import REFUSALS, problem_content
from service.http.refusals import shape_of
from service.security.scopes import OPEN

EVERYWHERE = (401, 403, 422)
FOUND = (400, 404, 503)
READ = (400, 408, 413, 415, 429, 503, 504)
ERROR = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
METHODS = ("get", "post", "put", "delete")


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
    shape = shape_of(path)
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
