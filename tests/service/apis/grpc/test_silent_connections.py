"""Connections to gRPC that send nothing: closed in time, and limited in number."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.apis.grpc.server import GrpcServer
from service.core.settings import Settings
from service.server.app import create_app
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run

WAIT_S = 30.0


async def serve(scenario: Any, **settings: object) -> None:
    app = create_app(Settings(**{"preload": "none"} | settings), FakeEngine())
    async with app.running():
        server = GrpcServer(app.oip)
        await server.start("127.0.0.1", 0)
        try:
            await scenario(server.port)
        finally:
            await server.stop(0)


async def is_serving(port: int) -> bool:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        answer = await stub.Check(request, wait_for_ready=True, timeout=WAIT_S)
        return answer.status != health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def test_a_connection_without_a_handshake_is_closed():
    async def scenario(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(WAIT_S):
            while await reader.read(1 << 16):  # The server's own settings come first.
                pass
        writer.close()
        assert await is_serving(port)

    run(lambda: serve(scenario, head_timeout_s=0.5))


@pytest.mark.slow
def test_silent_connections_are_limited_and_give_way():
    async def scenario(port: int) -> None:
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert await is_serving(port)
        for _, writer in connections:
            writer.close()

    run(lambda: serve(scenario, head_timeout_s=1.0, max_connections=8))
