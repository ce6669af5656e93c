"""Checks a request before its body is read: head, path, origin, API key and rate limits."""

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
"""The key of an ASGI scope under which the connection stores its reason to refuse the request."""
CONTROL_CHARACTERS = frozenset(map(chr, range(32))) | {"\x7f"}


def check_access(service: Service, scope: Scope) -> None:
    """Check a request's head and key, and count the request against the rates of the key.

    Args:
        service: the service.
        scope: the ASGI scope of the request.

    Raises:
        ServiceError: the connection refuses the request, a web page of another origin sends it, or
            its key is missing, is unknown, lacks the scope of the path, or exceeds its rates.
    """
    refusal: ServiceError | None = scope.get(REFUSAL_KEY)
    if refusal is not None:
        raise refusal
    path = scope["path"]
    # Routes and scopes would interpret such a path differently.
    if not CONTROL_CHARACTERS.isdisjoint(path):
        raise InvalidRequest("has a control character", "path")
    needed_scope = find_path_scope(scope["method"], path)
    if needed_scope is not None:
        service.heads.check_origin(scope["method"], needed_scope, scope["headers"])
        key = service.guard.check(find_key(scope["headers"]), needed_scope)
        get_call(scope).key = key
        service.guard.limits.admit(key)
        CLIENT.set(key)
