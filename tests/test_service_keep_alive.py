"""A connection that waits for its next request ends in time, and no other one does."""

from __future__ import annotations

import asyncio
import socket
from time import perf_counter

import pytest
import uvloop

from service.hot_protocol import HotProtocol
from tests.fake_engine import FakeEngine
from tests.test_service_hot_protocol import answer, listening, request, text_body, warm
from tests.waiting import GIVEN_UP_S, run, until

KEEP_ALIVE_S = 0.4


async def seconds_until_end(reader: asyncio.StreamReader) -> float:
    """How long the server keeps a connection on which nothing happens."""
    begin = perf_counter()
    assert await asyncio.wait_for(reader.read(), GIVEN_UP_S) == b""
    return perf_counter() - begin


def test_a_connection_lives_as_long_as_its_calls_follow_each_other_and_ends_after_them(monkeypatch):
    timers = []
    started = HotProtocol.on_response_complete

    def note(protocol):
        timers.append(protocol)
        started(protocol)

    monkeypatch.setattr(HotProtocol, "on_response_complete", note)

    async def scenario():
        async with listening(FakeEngine(), keep_alive_s=KEEP_ALIVE_S) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await warm(reader, writer)
            for _ in range(2):
                writer.write(request(text_body("a")))
                assert (await answer(reader))[0] == 200
            timers.clear()
            for _ in range(8):
                await asyncio.sleep(KEEP_ALIVE_S / 4)
                writer.write(request(text_body("a")))
                assert (await answer(reader))[0] == 200
            assert not timers
            assert KEEP_ALIVE_S * 0.9 < await seconds_until_end(reader) < GIVEN_UP_S
            writer.close()

    run(scenario)


def test_a_call_that_takes_longer_than_a_connection_may_wait_is_answered():
    async def scenario():
        engine = FakeEngine()
        async with listening(engine, keep_alive_s=KEEP_ALIVE_S) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await warm(reader, writer)
            for is_slow in (False, False, True, False, True):
                if is_slow:
                    engine.gate.clear()
                    asyncio.get_running_loop().call_later(2 * KEEP_ALIVE_S, engine.gate.set)
                writer.write(request(text_body("a")))
                assert (await answer(reader))[0] == 200
            assert KEEP_ALIVE_S * 0.9 < await seconds_until_end(reader) < GIVEN_UP_S
            writer.close()

    run(scenario)


def test_calls_of_both_ways_share_the_timer():
    async def scenario():
        async with listening(FakeEngine(), keep_alive_s=KEEP_ALIVE_S) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await warm(reader, writer)
            for query in ("", "", "?a=b", "", "", "?a=b"):
                await asyncio.sleep(KEEP_ALIVE_S / 2)
                writer.write(request(text_body("a"), f"/v1/encode{query}"))
                assert (await answer(reader))[0] == 200
            assert KEEP_ALIVE_S * 0.9 < await seconds_until_end(reader) < GIVEN_UP_S
            writer.close()

    run(scenario)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("sent_first", [0, 9])
def test_a_call_that_lies_unread_when_the_time_has_run_out_is_answered(
    monkeypatch, new_loop, sent_first
):
    """A loop that was busy comes to its timers with what was sent meanwhile still unread."""
    protocols = []
    made = HotProtocol.connection_made

    def note(protocol, transport):
        protocols.append(protocol)
        made(protocol, transport)

    monkeypatch.setattr(HotProtocol, "connection_made", note)

    def run_out(protocol):
        if sent_first:
            protocol.idle.cancel()
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
