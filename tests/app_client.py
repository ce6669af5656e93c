"""An httpx client on an application in this process, started and stopped as uvicorn would."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import httpx

from service.app import create_app, running
from service.engines import Engine
from service.settings import Settings
from service.state import Service

__all__ = ["serving"]


@contextlib.asynccontextmanager
async def serving(
    engine: Engine, **settings: object
) -> AsyncIterator[tuple[httpx.AsyncClient, Service]]:
    """The client and the service behind it; by default nothing is loaded beforehand."""
    app = create_app(Settings(**{"preload": "none"} | settings), engine)
    async with running(app.service):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client, app.service
