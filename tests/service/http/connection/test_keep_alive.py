"""A connection that waits for its next request ends in time, and no other one does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from service.http.connection.protocol import FastPathProtocol
from tests.service.http.connection.test_protocol import answer, listening, request, text_body, warm
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import GIVEN_UP_S, run, until

KEEP_ALIVE_S = 100.0
LONG_WAY = (
    b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"  # By uvicorn, as all but small hot calls.
)


class Clock:
    """The event loop of one connection, whose time the test advances."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: asyncio.Transport) -> None:
        self.loop, self.connection, self.now = loop, connection, 1000.0
        self.timers: list[SimpleNamespace] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], object]) -> SimpleNamespace:
        timer = SimpleNamespace(at=self.now + seconds, call=call)
        timer.cancel = lambda: timer in self.timers and self.timers.remove(timer)
        self.timers.append(timer)
        return timer

    def wait(self, seconds: float) -> None:
        """Let so many pass."""
        self.now += seconds
        for timer in [each for each in self.timers if each.at <= self.now]:
            timer.cancel()
            timer.call()


@pytest.fixture
def clocks(monkeypatch) -> list[Clock]:
    """The clocks of the connections, in their order."""
    made: list[Clock] = []
    begin = FastPathProtocol.connection_made

    def connection_made(protocol: FastPathProtocol, transport: asyncio.Transport) -> None:
        protocol.loop = Clock(protocol.loop, transport)
        made.append(protocol.loop)
        begin(protocol, transport)

    monkeypatch.setattr(FastPathProtocol, "connection_made", connection_made)
    return made


async def ends_in_time(reader: asyncio.StreamReader, clock: Clock) -> bool:
    """Return whether the server keeps a connection on which nothing happens, and not for longer."""
    clock.wait(KEEP_ALIVE_S * 0.9)
    is_kept = not clock.connection.is_closing()
    clock.wait(KEEP_ALIVE_S * 0.2)
    return is_kept and clock.connection.is_closing() and await reader.read() == b""


def test_a_connection_lives_as_long_as_its_calls_follow_each_other_and_ends_after_them(
    monkeypatch, clocks
):
    timers = []
    started = FastPathProtocol.on_response_complete

    def note(protocol):
        timers.append(protocol)
        started(protocol)

    monkeypatch.setattr(FastPathProtocol, "on_response_complete", note)

    async def scenario():
        async with listening(FakeEngine(), keep_alive_s=KEEP_ALIVE_S) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await warm(reader, writer)
            for _ in range(2):
                writer.write(request(text_body("a")))
                assert (await answer(reader))[0] == 200
            timers.clear()
            for _ in range(8):
                clocks[0].wait(KEEP_ALIVE_S / 4)
                writer.write(request(text_body("a")))
                assert (await answer(reader))[0] == 200
            assert not timers
            assert await ends_in_time(reader, clocks[0])
            writer.close()

    run(scenario)


def test_a_call_that_takes_longer_than_a_connection_may_wait_is_answered(clocks):
    async def scenario():
        engine = FakeEngine()
        async with listening(engine, keep_alive_s=KEEP_ALIVE_S) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await warm(reader, writer)
            for is_slow in (False, False, True, False, True):
                asked = len(engine.batches)
                if is_slow:
                    engine.gate.clear()
                writer.write(request(text_body("a")))
                if is_slow:
                    await until(lambda asked=asked: len(engine.batches) > asked)
                    clocks[0].wait(2 * KEEP_ALIVE_S)
                    engine.gate.set()
                assert (await answer(reader))[0] == 200
            assert await ends_in_time(reader, clocks[0])
            writer.close()

    run(scenario)


def test_calls_of_both_ways_share_the_timer(clocks):
    async def scenario():
        async with listening(FakeEngine(), keep_alive_s=KEEP_ALIVE_S) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await warm(reader, writer)
            for is_short in (True, True, False, True, True, False):
                clocks[0].wait(KEEP_ALIVE_S / 2)
                writer.write(request(text_body("a")) if is_short else LONG_WAY)
                assert (await answer(reader))[0] == 200
            assert await ends_in_time(reader, clocks[0])
            writer.close()

    run(scenario)


def test_a_connection_ends_by_the_loops_own_clock():
    async def scenario():
        async with listening(FakeEngine(), keep_alive_s=0.2) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            begin = perf_counter()
            await warm(reader, writer)
            assert await reader.read() == b""
            assert perf_counter() - begin > 0.2
            writer.close()

    run(scenario)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("sent_first", [0, 9])
def test_a_call_that_lies_unread_when_the_time_has_run_out_is_answered(
    monkeypatch, new_loop, sent_first
):
    """A loop that was busy comes to its timers with what was sent meanwhile still unread."""
    protocols = []
    made = FastPathProtocol.connection_made

    def note(protocol, transport):
        protocols.append(protocol)
        made(protocol, transport)

    monkeypatch.setattr(FastPathProtocol, "connection_made", note)

    def run_out(protocol):
        if sent_first:
            protocol.reading.cancel()
            protocol._nothing_came()
        else:
            protocol.timeout_keep_alive_task.cancel()
            protocol.waiting_since = -1e9
            protocol.timeout_keep_alive_handler()

    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            client = socket.create_connection(("127.0.0.1", port))
            client.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=client)
            await warm(reader, writer)
            call = request(text_body("a"))
            if sent_first:
                writer.write(call[:sent_first])
                await until(lambda: protocols[0].in_head)
            assert writer.transport.get_write_buffer_size() == 0
            client.send(call[sent_first:])
            run_out(protocols[0])
            assert (await answer(reader))[0] == 200
            if not sent_first:
                run_out(protocols[0])
                assert await asyncio.wait_for(reader.read(), GIVEN_UP_S) == b""
            writer.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), GIVEN_UP_S))
