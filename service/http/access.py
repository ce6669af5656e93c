"""Checks a request before its body is read: head, path, origin, key and the rate of the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.core.call import get_call
from service.core.context_vars import CLIENT
from service.core.errors import InvalidRequest, ServiceError
from service.operations.context import Service
from service.security.scopes import find_key, find_path_scope

if TYPE_CHECKING:
    from starlette.types import Scope

REFUSAL_KEY = "warptok.refusal"
"""The key of an ASGI scope under which the connection puts why it refuses the request."""
CONTROL_CHARACTERS = frozenset(map(chr, range(32))) | {"\x7f"}


def check_access(service: Service, scope: Scope) -> None:
    """Check that a request's key has the scope of its path, and count it against the key's limits.

    Args:
        service: the service.
        scope: the ASGI scope of the request.

    Raises:
        ServiceError: the connection refuses the request, a web page of another origin makes it, or
            the key is missing, unknown or lacks the scope, or makes too many requests.
    """
    refusal: ServiceError | None = scope.get(REFUSAL_KEY)
    if refusal is not None:
        raise refusal
    path = scope["path"]
    # Routes and scopes would not read such a path alike.
    if not CONTROL_CHARACTERS.isdisjoint(path):
        raise InvalidRequest("has a control character", "path")
    needed_scope = find_path_scope(scope["method"], path)
    if needed_scope is not None:
        service.heads.check_origin(scope["method"], needed_scope, scope["headers"])
        key = service.guard.check(find_key(scope["headers"]), needed_scope)
        get_call(scope).key = key
        service.guard.limits.admit(key)
        CLIENT.set(key)
