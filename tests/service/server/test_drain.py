"""A stop under load: every request that a client has sent is answered with its ids."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import httpx
import numpy as np
import pytest

from service.core.settings import Settings
from service.http.connection.protocol import LINGER_S
from service.protos import warptok_pb2 as pb
from service.server import uvicorn_server
from service.server.app import create_app
from tests.support.certificates import make_certificate
from tests.support.server_process import (
    AT_ONCE_S,
    STOP_TIMEOUT_S,
    Server,
    half_request,
    server_process,
)
from tests.support.waiting import GIVEN_UP_S, run, until

LAME_DUCK_S = 2.0
SETTINGS = {"WARPTOK_PRELOAD": "gpt2", "WARPTOK_LAME_DUCK_S": str(LAME_DUCK_S)}
HELLO_IDS = [15496, 11, 995, 0]
LONG = 8_000  # A body of so many times the text is longer than those that connections answer.
BODIES = [
    json.dumps({"vocabulary": "gpt2", "text": "Hello, world!" * times}).encode()
    for times in (1, LONG)
]
IDS = [HELLO_IDS, HELLO_IDS * LONG]
METHOD = "/warptok.v1.Tokenizer/Encode"


@dataclass
class Tally:
    """The results of the requests of all clients; each client ends when the port is closed.

    Attributes:
        answered: the numbers of right answers, by client.
        failures: what came instead of a right answer.
    """

    answered: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def count(self, client: str, status: int, ids: list[int], expected: list[int]) -> None:
        """Count an answer."""
        if status == 200 and ids == expected:
            self.answered[client] += 1
        else:
            self.failures.append(f"{client}: {status} {ids[:9]}")


Client = Callable[[Server, Tally], Awaitable[None]]


async def httpx_client(server: Server, tally: Tally) -> None:
    """Send small and long texts one after another, over a pool of connections."""
    async with httpx.AsyncClient(base_url=server.url, timeout=GIVEN_UP_S) as client:
        for turn in range(1_000_000):
            which = turn % 20 == 0
            try:
                json_type = {"content-type": "application/json"}
                answer = await client.post("/v1/encode", content=BODIES[which], headers=json_type)
            except httpx.ConnectError:
                return
            except httpx.TransportError as error:
                tally.failures.append(f"httpx: {error!r}")
                return
            ids = answer.json().get("ids", [])
            tally.count("httpx", answer.status_code, ids, IDS[which])


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[Server], Awaitable[Streams]]


async def connect_to_port(server: Server) -> Streams:
    """Connect to the port, by TLS if the server speaks it."""
    name = None if server.context is None else "localhost"
    return await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=server.context, server_hostname=name
    )


async def connect_to_unix_socket(server: Server) -> Streams:
    """Connect to the Unix socket that the server prints."""
    path = server.log.read_text().split("unix:")[1].split()[0].rstrip(",")
    return await asyncio.open_unix_connection(path)


async def raw_client(
    server: Server, tally: Tally, pause_s: float = 0.0, connect: Connect = connect_to_port
) -> None:
    """Send small texts on one connection after another, each until an answer closes it."""
    body = BODIES[0]
    head = b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    while True:
        try:
            reader, writer = await connect(server)
        except OSError:
            return
        try:
            closes = False
            while not closes:
                writer.write(request)
                answer_head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(answer_head.split(b"content-length: ")[1].split(b"\r")[0])
                answer = json.loads(await reader.readexactly(length))
                status = int(answer_head.split()[1])
                tally.count("raw", status, answer.get("ids", []), HELLO_IDS)
                closes = b"connection: close" in answer_head
                await asyncio.sleep(random.uniform(0, pause_s))
        except (OSError, EOFError) as error:
            tally.failures.append(f"raw: {error!r}")
            return
        finally:
            writer.close()


async def slow_raw_client(server: Server, tally: Tally) -> None:
    """Pause between requests."""
    await raw_client(server, tally, pause_s=0.8)


async def pipelining_client(server: Server, tally: Tally) -> None:
    """Keep eight requests on the way on one connection, until requests are refused."""
    # asyncio's streams lose what has arrived before a write fails.
    await asyncio.to_thread(pipeline_requests, server, tally)


def pipeline_requests(server: Server, tally: Tally) -> None:
    """Send a request for each answer, until new ones are refused."""
    body = BODIES[0]
    head = b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    address = "127.0.0.1", server.port
    with (
        socket.create_connection(address, GIVEN_UP_S) as connection,
        connection.makefile("rb") as f,
    ):
        connection.sendall(8 * request)
        while True:
            answer_head = b""
            while (line := f.readline()) != b"\r\n":
                if not line:
                    tally.failures.append(f"pipelined: the connection ended after {answer_head!r}")
                    return
                answer_head += line.lower()
            length = int(answer_head.split(b"content-length: ")[1].split(b"\r")[0])
            answer = json.loads(f.read(length))
            if answer.get("code") == "draining":
                return
            status = int(answer_head.split()[1])
            tally.count("pipelined", status, answer.get("ids", []), HELLO_IDS)
            with contextlib.suppress(OSError):
                connection.sendall(request)


async def unix_client(server: Server, tally: Tally) -> None:
    """Send on the Unix socket."""
    await raw_client(server, tally, connect=connect_to_unix_socket)


async def slow_unix_client(server: Server, tally: Tally) -> None:
    """Pause between requests on the Unix socket."""
    await raw_client(server, tally, pause_s=0.8, connect=connect_to_unix_socket)


def encode_call(channel: grpc.aio.Channel) -> grpc.aio.UnaryUnaryMultiCallable:
    """Return the callable of the method Encode on a channel."""
    return channel.unary_unary(
        METHOD,
        request_serializer=pb.EncodeRequest.SerializeToString,
        response_deserializer=pb.EncodeResponse.FromString,
    )


async def grpc_client(server: Server, tally: Tally) -> None:
    """Make four calls at a time on one channel."""
    address = server.log.read_text().split("gRPC on ")[1].split()[0].rstrip(",")
    request = pb.EncodeRequest(vocabulary="gpt2", text=b"Hello, world!")
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        call = encode_call(channel)

        async def make_calls() -> None:
            while True:
                try:
                    answer = await call(request, timeout=GIVEN_UP_S)
                except grpc.aio.AioRpcError as error:
                    if "failed to connect" not in (error.details() or ""):
                        tally.failures.append(f"gRPC: {error.code()} {error.details()}")
                    return
                tally.count("gRPC", 200, np.frombuffer(answer.ids, "<i4").tolist(), HELLO_IDS)

        await asyncio.gather(*(make_calls() for _ in range(4)))


@contextlib.asynccontextmanager
async def load(server: Server, *clients: Client) -> AsyncIterator[Tally]:
    """Load a server within the block, and beyond it until all ports are closed."""
    tally = Tally()
    tasks = [asyncio.create_task(client(server, tally)) for client in clients for _ in range(4)]
    await until(lambda: tally.answered.total() > 200 or tally.failures)
    assert tally.failures == []
    yield tally
    async with asyncio.timeout(STOP_TIMEOUT_S):
        await asyncio.gather(*tasks)


async def readiness(server: Server) -> tuple[int, list[str]]:
    """Ask on a new connection whether the server is ready."""
    verify = True if server.context is None else server.context
    async with httpx.AsyncClient(timeout=GIVEN_UP_S, verify=verify) as client:
        answer = await client.get(server.url + "/readyz")
    return answer.status_code, answer.json().get("reasons", [])


async def stop_under_load(server: Server, *clients: Client) -> Tally:
    """Stop a server under load, and look at its readiness meanwhile."""
    async with load(server, *clients) as tally:
        assert (await readiness(server))[0] == 200
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert await until_it_drains(server) == (503, ["draining"])
        before = tally.answered.total()
    assert time.monotonic() - begin > LAME_DUCK_S
    assert tally.answered.total() > before
    assert await asyncio.to_thread(server.process.wait, STOP_TIMEOUT_S) == 0
    assert "Traceback" not in server.log.read_text()
    return tally


@pytest.mark.slow
@pytest.mark.parametrize("front_ends", ["0", "2"])
def test_sigterm_under_load_fails_no_request(tmp_path, front_ends):
    settings = SETTINGS | {"WARPTOK_FRONTENDS": front_ends}
    clients = (httpx_client, raw_client, slow_raw_client, pipelining_client, grpc_client)
    with server_process(tmp_path, settings, expect_exit=False) as server:
        tally = run(lambda: stop_under_load(server, *clients))
    assert tally.failures == []
    assert tally.answered.keys() == {"httpx", "raw", "pipelined", "gRPC"}


@contextlib.asynccontextmanager
async def started_server(port: socket.socket) -> AsyncIterator[uvicorn_server.Server]:
    """Start a server in this process, which the block shuts down."""
    settings = Settings(preload="gpn", engine="cpu", grpc_port=0, metrics_port=0)
    server = uvicorn_server.Server((app := create_app(settings)).asgi, settings, app)
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([port])
    yield server


@pytest.mark.slow
def test_a_call_that_the_drain_holds_is_answered(monkeypatch):
    monkeypatch.setattr("service.apis.grpc.ports.HOLD_S", 1.0)  # uvicorn's shutdown takes 0.1 s.

    async def scenario() -> pb.EncodeResponse:
        with socket.create_server(("127.0.0.1", 0)) as port:
            async with started_server(port) as server:
                assert server.grpc is not None
                async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
                    call, request = (
                        encode_call(channel),
                        pb.EncodeRequest(vocabulary="gpn", text=b"ACGT"),
                    )
                    await call(request)
                    stopping = asyncio.create_task(server.shutdown([port]))
                    await until(lambda: server.grpc._released)  # The drain holds calls from now on.
                    answer = await call(request)
                await stopping
        return answer

    assert len(run(scenario).ids) == 4 * 4


@pytest.mark.slow
def test_a_drain_that_takes_longer_than_uvicorn_waits_is_finished(caplog):
    caplog.set_level("INFO", "service")

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as port:
            async with started_server(port) as server:
                server.config.timeout_graceful_shutdown = 0
                await server.shutdown([port])
                assert server.grpc is not None and server.grpc._stopping is not None
                assert server.grpc._stopping.done()

    run(scenario)
    assert any(each.message.startswith("stopped: 0 accepted") for each in caplog.records)


@pytest.mark.slow
@pytest.mark.parametrize("front_ends", ["0", "2"])
def test_sigterm_fails_no_request_by_tls_and_on_a_unix_socket(tmp_path, front_ends):
    signed = make_certificate(tmp_path, "drained")
    settings = SETTINGS | {
        "WARPTOK_FRONTENDS": front_ends,
        "WARPTOK_TLS_CERTIFICATE": str(signed.certificate),
        "WARPTOK_TLS_KEY": str(signed.key),
        "WARPTOK_UNIX_SOCKET": str(tmp_path / "http.sock"),
    }
    clients = (raw_client, slow_raw_client, unix_client, slow_unix_client)
    context = signed.trust()
    with server_process(tmp_path, settings, expect_exit=False, context=context) as server:
        tally = run(lambda: stop_under_load(server, *clients))
    assert tally.failures == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "lame_duck_s"), [(signal.SIGTERM, "0"), (signal.SIGINT, "60")])
@pytest.mark.parametrize("front_ends", ["0", "2"])
def test_the_short_way_answers_open_connections_too(tmp_path, front_ends, number, lame_duck_s):
    settings = SETTINGS | {"WARPTOK_FRONTENDS": front_ends, "WARPTOK_LAME_DUCK_S": lame_duck_s}

    async def scenario() -> Tally:
        async with load(server, raw_client, slow_raw_client, grpc_client) as tally:
            server.process.send_signal(number)
        return tally

    with server_process(tmp_path, settings, expect_exit=False) as server:
        tally = run(scenario)
        assert server.process.wait(AT_ONCE_S) == 0, server.log.read_text()
    assert tally.failures == []


@pytest.mark.slow
def test_a_request_that_comes_too_late_is_refused_with_a_time_to_retry(tmp_path):
    settings = {"WARPTOK_PRELOAD": "gpn"}
    with (
        server_process(tmp_path, settings, expect_exit=False) as server,
        half_request(server) as connection,
    ):
        server.process.send_signal(signal.SIGTERM)
        server.wait_draining()
        time.sleep(2 * LINGER_S)
        connection.sendall(b'"vocabulary": "gpn", "text": "ACGT"}'.ljust(9998))
        answer = connection.makefile("rb").read().lower()
        assert answer.startswith(b"http/1.1 503 ")
        assert b"\r\nretry-after: 5\r\n" in answer
        assert b"\r\nconnection: close\r\n" in answer
        assert b'"code":"draining"' in answer
        assert server.process.wait(AT_ONCE_S) == 0


@pytest.mark.parametrize("front_ends", ["0", "1"])
@pytest.mark.slow
def test_a_second_signal_ends_the_lame_duck_at_once(tmp_path, front_ends):
    settings = {
        "WARPTOK_PRELOAD": "none",
        "WARPTOK_FRONTENDS": front_ends,
        "WARPTOK_LAME_DUCK_S": str(STOP_TIMEOUT_S),
    }
    with server_process(tmp_path, settings, expect_exit=False) as server:
        server.process.send_signal(signal.SIGTERM)
        assert run(lambda: until_it_drains(server)) == (503, ["draining"])
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(AT_ONCE_S) == 128 + signal.SIGINT


async def until_it_drains(server: Server) -> tuple[int, list[str]]:
    """Return the readiness as soon as it is not 200."""
    while (state := await readiness(server))[0] == 200:
        await asyncio.sleep(0.05)
    return state
