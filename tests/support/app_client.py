"""Runs an application in this process, as uvicorn would, with an httpx client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import httpx

from service.core.settings import Settings
from service.engines.base import Engine
from service.operations.context import Service
from service.server.app import Application, create_app

PATIENT = {"request_timeout_ms": 120_000, "chat_template_timeout_ms": 60_000}


@contextlib.asynccontextmanager
async def serving(
    engine: Engine, **settings: object
) -> AsyncIterator[tuple[httpx.AsyncClient, Service]]:
    """Run an application; yield its client and service. By default no vocabulary is preloaded.

    Timeouts are long, unless the settings name shorter ones.
    """
    app = create_app(Settings(**{"preload": "none"} | PATIENT | settings), engine)
    async with app.running():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client, app.service


def application_of(client: httpx.AsyncClient) -> Application:
    """Return the application behind a client of `serving`."""
    app: Application = client._transport.app
    return app
