"""Calls the functions of a few FastAPI routes without FastAPI.

FastAPI's middleware, its search for the route and its dependencies take 0.1 ms of each request, a
sixth of a short chat's time, and a function that reads the body itself needs none of them. FastAPI
still declares the routes for openapi.json, and answers their requests with other methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute

from service.batching.work import GONE
from service.core.call import get_call
from service.http.error_responses import make_error_response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class PlainRoutes:
    """An ASGI application that calls the functions of one router's routes, and else FastAPI.

    Args:
        app: the FastAPI application, which includes the router.
        router: a router of POST routes, whose functions take only the request.
    """

    def __init__(self, app: FastAPI, router: APIRouter) -> None:
        self.app = app
        self._routes = {route.path: route for route in router.routes if isinstance(route, APIRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        route = self._find(scope)
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["app"] = self.app
        scope["route"] = route
        try:
            response = await route.endpoint(Request(scope, receive))
        except GONE:
            get_call(scope).is_gone = True
            return
        except Exception as error:
            response = make_error_response(scope["path"], error)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> APIRoute | None:
        """Return the route of a request; None if FastAPI answers it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        return self._routes.get(scope["path"])
