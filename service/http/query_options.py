"""Refuses unknown and repeated options in a query string, which would have no effect."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from service.core.errors import InvalidRequest


def refuse_options(query: bytes, known: Collection[str], why: str) -> None:
    """Check that a query string contains only known options, each once.

    Args:
        query: the query string.
        known: the names of the known options.
        why: the message of the refusal of an unknown option.

    Raises:
        InvalidRequest: an option is unknown or occurs twice.
    """
    if not query:
        return
    found: set[str] = set()
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise InvalidRequest(why, f"/{name}")
        if name in found:
            raise InvalidRequest("occurs twice", f"/{name}")
        found.add(name)


def _refuse_undeclared(request: Request) -> None:
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = [field.alias for field in route.dependant.query_params]
    possible = f"there are {', '.join(known)}" if known else "there are none"
    refuse_options(
        request.scope["query_string"], known, f"is not an option of this call; {possible}"
    )


DECLARED_ONLY = Depends(_refuse_undeclared)
"""A router's dependency that refuses query options which a route does not declare."""
