"""Connections to gRPC that send nothing: closed in time, and limited in number."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.apis.grpc.server import GrpcServer
from service.core.settings import Settings
from service.protos import warptok_pb2 as pb
from service.server.app import Application, create_app
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run, until

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


def test_connections_are_counted_and_the_calls_of_each_are_limited():
    """More calls than that wait in the client, and all are answered."""

    async def scenario() -> None:
        engine = FakeEngine()
        settings = Settings(
            preload="evo_bytes", inline_batch_bytes=0, max_connections_per_address=2
        )
        app = create_app(settings, engine)
        gauges = app.service.metrics.gauges
        async with app.running():
            server = GrpcServer(app.oip)
            await server.start("127.0.0.1", 0)
            await until(lambda: app.service.preloaded)
            assert gauges.grpc_connections is not None
            assert gauges.grpc_connections()[0] == 0
            engine.gate.clear()
            options = [("grpc.use_local_subchannel_pool", 1)]
            address = f"127.0.0.1:{server.port}"
            async with grpc.aio.insecure_channel(address, options=options) as channel:
                call = channel.unary_unary("/warptok.v1.Tokenizer/Encode")
                request = pb.EncodeRequest(vocabulary="evo_bytes", text=b"A").SerializeToString()
                await channel.channel_ready()
                await asyncio.sleep(0.1)  # The limit of the server's settings has arrived.
                calls = [asyncio.ensure_future(_answer(call, request)) for _ in range(5)]
                await until(lambda: _count_accepted(app) == 2)
                await asyncio.sleep(0.2)
                assert _count_accepted(app) == 2
                assert gauges.grpc_connections()[0] == 1
                engine.gate.set()
                await asyncio.gather(*calls)
                assert _count_accepted(app) == 5
            await until(lambda: gauges.grpc_connections()[0] == 0)
            await server.stop(0)

    run(scenario)


def _count_accepted(app: Application) -> float:
    return app.service.metrics.counts()["warptok_work_accepted_total"][()]


async def _answer(call: Any, request: bytes) -> bytes:
    answer: bytes = await call(request, timeout=WAIT_S)
    return answer


@pytest.mark.slow
def test_silent_connections_are_limited_and_give_way():
    async def scenario(port: int) -> None:
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert await is_serving(port)
        for _, writer in connections:
            writer.close()

    run(lambda: serve(scenario, head_timeout_s=1.0, max_connections=8))
