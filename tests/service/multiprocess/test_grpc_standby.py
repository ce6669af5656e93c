"""While the engine process is down, gRPC calls are refused, and clients come back at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from time import monotonic

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from service.apis.grpc.server import GrpcServer
from service.core.settings import Settings
from service.multiprocess.grpc_standby import GrpcStandby
from service.protos import warptok_pb2 as pb
from service.server.app import create_app
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run

WAIT_S = 60.0
ENCODE = "/warptok.v1.Tokenizer/Encode"
STREAM = "/warptok.v1.Tokenizer/EncodeStream"
REQUEST = pb.EncodeRequest(vocabulary="evo_bytes", text=b"ACGT").SerializeToString()


@pytest.fixture
def settings() -> Settings:
    """With a free port of gRPC, as the supervisor passes that of the first engine process on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return Settings(grpc_port=free.getsockname()[1], frontends=1, preload="none")


@contextlib.asynccontextmanager
async def standby_and_channel(
    settings: Settings,
) -> AsyncIterator[tuple[GrpcStandby, grpc.Channel]]:
    standby = GrpcStandby(settings)
    await standby.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{settings.grpc_port}") as channel:
        yield standby, channel
    await standby.stop()


def test_calls_of_every_kind_are_refused_with_the_time_after_which_to_try_again(settings, caplog):
    async def scenario():
        async with standby_and_channel(settings) as (_, channel):
            calls = [
                channel.unary_unary(ENCODE)(REQUEST, metadata=(("x-request-id", "mine"),)),
                channel.stream_stream(STREAM)(iter([REQUEST])),
            ]
            for call in calls:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await (call if call is calls[0] else call.read())
                assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
            status = await rpc_status.aio.from_call(calls[0])
            found = {each.TypeName().rpartition(".")[2]: each for each in status.details}
            info = error_details_pb2.ErrorInfo()
            retry = error_details_pb2.RetryInfo()
            request = error_details_pb2.RequestInfo()
            for message in (info, retry, request):
                assert found[type(message).__name__].Unpack(message)
            assert (info.reason, info.metadata["http_status"]) == ("engine_lost", "503")
            assert (retry.retry_delay.seconds, request.request_id) == (1, "mine")

    run(scenario)
    assert caplog.text.count("2 gRPC calls were refused while the engine process was started") == 1


def test_health_checks_say_not_serving_and_are_not_counted(settings):
    async def scenario():
        async with standby_and_channel(settings) as (standby, channel):
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service="warptok.v1.Tokenizer")
            assert (await stub.Check(request)).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch = stub.Watch(request)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            stopping = asyncio.create_task(standby.stop())
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await watch.read()
            assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
            await stopping
            assert standby.num_refused == 0

    run(scenario)


def test_a_client_reaches_the_next_engine_process_at_once_and_no_call_is_cancelled(settings):
    """Clients that were refused by the system would wait for seconds before they connect again."""

    async def ask(channel: grpc.aio.Channel, until: float) -> list[grpc.StatusCode]:
        codes = []
        while monotonic() < until:
            try:
                await channel.unary_unary(ENCODE)(REQUEST, timeout=WAIT_S)
                codes.append(grpc.StatusCode.OK)
            except grpc.aio.AioRpcError as error:
                codes.append(error.code())
        return codes

    async def scenario():
        async with standby_and_channel(settings) as (standby, channel):
            app = create_app(settings, FakeEngine())
            async with app.running():
                until = monotonic() + 3.0
                asking = [asyncio.create_task(ask(channel, until)) for _ in range(4)]
                await asyncio.sleep(0.2)
                server = GrpcServer(app.oip, shares_port=True)
                await server.start("127.0.0.1", settings.grpc_port)
                await standby.stop()
                stopped = monotonic()
                for task in asking:
                    codes = await task
                    assert set(codes) == {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK}
                    assert codes[-1] == grpc.StatusCode.OK
                assert until - stopped > 1.0
                await server.stop(0)

    run(scenario)


def test_another_service_does_not_share_the_port(settings):
    async def scenario():
        async with standby_and_channel(settings):
            server = GrpcServer(create_app(settings, FakeEngine()).oip)
            with pytest.raises(OSError, match="cannot listen"):
                await server.start("127.0.0.1", settings.grpc_port)

    run(scenario)
