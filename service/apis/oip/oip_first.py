"""The short way to inference: in front of FastAPI's routes, which declare the same paths.

    request ─► POST /v2/models/{model}[/versions/{version}]/infer ? ─no─► FastAPI
                  │yes
                 Infer

What this saves is the search for the route and its dependencies.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

from service.apis.oip.http_infer import Infer
from service.operations.context import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

INFER = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
ROUTE = SimpleNamespace(path="/v2/models/{model}/infer")
VERSIONED = SimpleNamespace(path="/v2/models/{model}/versions/{version}/infer")


class InferFirst:
    """Answers inference requests itself and hands everything else to the application behind it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection, whose key was checked before."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        found = INFER.fullmatch(scope["path"]) if is_post else None
        if found is None:
            await self.app(scope, receive, send)
            return
        model, version = found.groups("")
        scope["route"] = VERSIONED if version else ROUTE  # The metrics count under its template.
        await Infer(self.service, scope, model, version)(scope, receive, send)
