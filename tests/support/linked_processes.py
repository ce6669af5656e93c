"""Runs an engine process and two front ends in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from service.core.settings import Settings
from service.engines.hybrid.engine import HybridEngine
from service.multiprocess.engine_server import EngineServer
from service.multiprocess.front_end import FrontEnd
from service.multiprocess.link.shared_memory import LinkMemory
from service.server.app import create_app
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import until

V = "evo_bytes"


@contextlib.asynccontextmanager
async def linked_service(
    folder: Path,
    engine: FakeEngine | HybridEngine,
    memory: LinkMemory | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[EngineServer, list[FrontEnd]]]:
    """Run an engine process and two front ends in one event loop; yield them when ready."""
    made = Settings(**{"preload": V, "frontends": 2, "inline_batch_bytes": 0} | settings)
    memory = memory or LinkMemory()
    app = create_app(made, engine, lambda ids: memory.place(ids).array)
    engine_server = EngineServer(app, made.frontends, memory)
    app.service.join_processes(engine_server)
    path = folder / "engine.sock"
    fronts = [FrontEnd(made, path, f"front-{i}") for i in range(2)]
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(app.running())
        server = await asyncio.get_running_loop().create_unix_server(
            engine_server.protocol, str(path)
        )
        updates = asyncio.create_task(engine_server.keep_updating())
        for front in fronts:
            await stack.enter_async_context(front._running())
        await until(lambda: all(front.service.preloaded for front in fronts))
        yield engine_server, fronts
        cpu = engine.cpu if isinstance(engine, HybridEngine) else engine
        if (gate := getattr(cpu, "gate", None)) is not None:  # Of a fake engine.
            gate.set()
        updates.cancel()
        server.close()


def client_of(front: FrontEnd) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(front.app), base_url="http://test")
