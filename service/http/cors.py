"""Allows web pages of other origins to call the service and read its answers (CORS).

Before a browser sends a request with JSON or a key for a page, it sends a preflight request. It
shows the page only answers that allow the page's origin. starlette's middleware implements these
rules; this module decides which pages may send which requests. The rules of
security/request_heads.py apply to calls without CORS and to preflights: a page that may not change
vocabularies gets no permission to try.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware

from service.core.errors import OriginRefused
from service.core.settings import Settings
from service.http.error_responses import make_error_response
from service.security.addresses import split_names
from service.security.request_heads import HeadRules
from service.security.scopes import find_path_scope

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")


class Cors:
    """The rules for web pages of other origins.

    Args:
        app: the application, which starlette's middleware requires but which is not called.
        settings: the settings of the service.
        heads: the rules for the heads of requests.
    """

    def __init__(self, app: ASGIApp, settings: Settings, heads: HeadRules) -> None:
        names = split_names(settings.cors_origins)
        origins = ["*"] if names == ["any"] else [name.lower().rstrip("/") for name in names]
        self._heads = heads
        # No credentials: keys are header fields that a page sets itself, not cookies.
        self._rules = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=["*"],
            expose_headers=["*"],
        )

    def wrap(self, scope: Scope, send: Send) -> Send:
        """Wrap `send` to add headers that say whether the page may read the answer."""
        return functools.partial(self._rules.send, send=send, request_headers=Headers(scope=scope))

    async def answer_preflight(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer the request if it is a preflight; return whether it is one.

        A preflight contains no key, so it must be answered before the key is checked.
        """
        headers = Headers(scope=scope)
        method = headers.get("access-control-request-method")
        if scope["method"] != "OPTIONS" or "origin" not in headers or method is None:
            return False
        try:
            needed_scope = find_path_scope(method, scope["path"])
            self._heads.check_origin(method, needed_scope, scope["headers"])
        except OriginRefused as error:
            await make_error_response(scope["path"], error)(scope, receive, send)
            return True
        response = self._rules.preflight_response(request_headers=headers)
        await response(scope, receive, send)
        return True
