"""Lets a request in before anything of it is read: its path, its key and its key's rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.core.context_vars import CLIENT
from service.core.errors import InvalidRequest
from service.operations.context import Service
from service.security.scopes import find_key, find_path_scope

if TYPE_CHECKING:
    from starlette.types import Scope

CONTROL = frozenset(map(chr, (*range(32), 127)))


def check_access(service: Service, scope: Scope) -> None:
    """Check that a request's key may do what its path does, and count it against the key's limits.

    Raises:
        ServiceError: the key is missing, unknown or lacks the scope, or makes too many requests.
    """
    path = scope["path"]
    if not CONTROL.isdisjoint(path):  # Routes and scopes would not read it alike.
        raise InvalidRequest("has a control character", "path")
    needed = find_path_scope(scope["method"], path)
    if needed is not None:
        client = service.guard.check(find_key(scope["headers"]), needed)
        service.guard.limits.admit(client)
        CLIENT.set(client)
