"""Refuses unknown options in a query string, because they would have no effect."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from service.core.errors import InvalidRequest


def refuse_options(query: bytes, known: Collection[str], why: str) -> None:
    """Refuse a query string with an option that is not known.

    Args:
        query: the query string.
        known: the names of the options.
        why: the message of the refusal.

    Raises:
        InvalidRequest: an option is not known.
    """
    if not query:
        return
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise InvalidRequest(why, f"/{name}")


def _refuse_undeclared(request: Request) -> None:
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = [field.alias for field in route.dependant.query_params]
    possible = f"there are {', '.join(known)}" if known else "there are none"
    refuse_options(request.scope["query_string"], known, f"is no option of this call; {possible}")


DECLARED_ONLY = Depends(_refuse_undeclared)
"""A dependency of a router whose routes refuse query options that they do not declare."""
