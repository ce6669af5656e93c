"""Options in a query string that a call does not have: refused, as they would change nothing."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from service.core.errors import InvalidRequest


def refuse_options(query: bytes, known: Collection[str], why: str) -> None:
    """Look at the names of a query string.

    Raises:
        InvalidRequest: one is not known.
    """
    if not query:
        return
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise InvalidRequest(why, f"/{name}")


def _declared_only(request: Request) -> None:
    """Refuse what a route does not declare."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = [field.alias for field in route.dependant.query_params]
    there = f"there are {', '.join(known)}" if known else "there are none"
    refuse_options(request.scope["query_string"], known, f"is no option of this call; {there}")


DECLARED_ONLY = Depends(_declared_only)
"""Of a router: no route of it takes a query option that it does not declare."""
