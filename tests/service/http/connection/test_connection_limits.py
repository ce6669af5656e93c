"""Limits on connections: the silent give way, and probes are always answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field

import pytest

from service.core.settings import Settings
from service.http.connection.connection_limits import ConnectionLimits
from service.observability.closed_connections import ClosedConnections
from service.observability.metrics import Metrics
from service.runtime import file_limits
from service.runtime.file_limits import (
    RESERVED_CONNECTIONS,
    limit_grpc_connections,
    limit_http_connections,
)
from tests.service.http.connection.test_protocol import Reader, Writer, answer, listening
from tests.service.http.connection.test_slow_clients import closed_by_reason
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run, until

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
VERSION = LIVEZ.replace(b"/livez", b"/version")


@dataclass(eq=False)
class Connection:
    address: str = "10.0.0.1"
    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True


@dataclass
class Opened:
    """Limits, and all connections that were added."""

    limits: ConnectionLimits
    connections: list[Connection] = field(default_factory=list)

    def add(self, address: str = "10.0.0.1") -> tuple[Connection, str]:
        connection = Connection(address)
        self.connections.append(connection)
        return connection, self.limits.add(connection)


def opened(**settings: object) -> Opened:
    made = Settings(**{"max_connections": 4, "max_connections_per_address": 3} | settings)
    return Opened(ConnectionLimits(made, ClosedConnections(Metrics("0"), "whole")))


async def scenario_of_limits() -> None:
    state = opened()
    silent, _ = state.add("10.0.0.1")
    others = [state.add(f"10.0.1.{i}")[0] for i in range(3)]
    for each in others:
        state.limits.note_head(each)
    newest, exceeded = state.add("10.0.2.1")
    assert (exceeded, silent.is_aborted) == ("", True)
    state.limits.note_head(newest)
    surplus, exceeded = state.add("10.0.2.2")
    assert exceeded == "max_connections"
    for i in range(RESERVED_CONNECTIONS):
        assert not surplus.is_aborted
        assert state.add(f"10.0.3.{i}")[1] == "max_connections"
    assert surplus.is_aborted
    first, second, *_ = state.connections[-RESERVED_CONNECTIONS:]
    state.limits.note_head(first)
    state.add("10.0.4.1")
    assert (first.is_aborted, second.is_aborted) == (False, True)
    assert state.limits.num_open == 4 + RESERVED_CONNECTIONS
    assert not any(each.is_aborted for each in others)
    for each in state.connections:
        state.limits.remove(each)
    assert state.limits.num_open == 0
    assert not state.limits._by_group


def test_a_silent_connection_gives_way_and_a_surplus_one_is_the_next_to_go():
    run(scenario_of_limits)


def test_an_address_has_a_limit_of_its_own_unless_it_is_a_proxy():
    async def scenario():
        state = opened(max_connections=100, trusted_proxies="10.9.0.0/16, ::1")
        assert [state.add("10.0.0.1")[1] for _ in range(4)][2:] == [
            "",
            "max_connections_per_address",
        ]
        assert not any(state.add("10.9.1.1")[1] for _ in range(9))
        assert not any(state.add("::1")[1] for _ in range(9))
        for i in range(3):
            assert not state.add(f"2001:db8:1:2::{i}")[1]
        assert state.add("2001:db8:1:2:ffff::1")[1] == "max_connections_per_address"
        assert not state.add("2001:db8:1:3::1")[1]

    run(scenario)


def test_a_proxy_that_is_no_address_stops_the_start():
    with pytest.raises(ValueError, match="WARPTOK_TRUSTED_PROXIES"):
        opened(trusted_proxies="proxy.example")


@pytest.mark.parametrize(
    ("soft", "settings", "http", "grpc"),
    [
        (256, {}, 90, 30),
        (256, {"grpc": False}, 120, 30),
        (256, {"frontends": 2}, 120, 120),
        (65_536, {"max_connections": 100}, 100, 100),
        (65_536, {"max_connections": 100, "frontends": 3}, 34, 100),
        (100, {}, 8, 8),
    ],
)
def test_connections_leave_files_for_the_rest(monkeypatch, soft, settings, http, grpc):
    monkeypatch.setattr(file_limits.resource, "getrlimit", lambda _: (soft, soft))
    monkeypatch.setattr(file_limits.os, "listdir", lambda _: range(40))
    made = Settings(**settings)
    assert (limit_http_connections(made), limit_grpc_connections(made)) == (http, grpc)


@contextlib.asynccontextmanager
async def full(**settings: object):
    """A service all of whose connections are in use; yields it, its port and the connections."""
    async with listening(FakeEngine(), **settings) as (app, port):
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for reader, writer in connections:
            writer.write(VERSION)
            assert (await answer(reader))[0] == 200
        yield app, port, connections
        for _, writer in connections:
            writer.close()


async def ask(port: int, sent: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answered = await answer(reader)
    assert await reader.read() == b""
    writer.close()
    return answered


@pytest.mark.parametrize("setting", ["max_connections", "max_connections_per_address"])
def test_above_a_limit_probes_are_answered_and_others_refused(setting):
    async def scenario():
        async with full(**{setting: 4}) as (app, port, connections):
            for _ in range(2):
                assert (await ask(port, LIVEZ))[0] == 200
                assert (await ask(port, LIVEZ.replace(b"/livez", b"/metrics/")))[0] == 200
            status, fields, body = await ask(port, VERSION)
            assert (status, json.loads(body)["code"]) == (503, "too_many_connections")
            assert setting in json.loads(body)["detail"]
            assert (fields[b"retry-after"], fields[b"connection"]) == (b"1", b"close")
            reader, writer = connections[0]
            writer.write(VERSION)
            assert (await answer(reader))[0] == 200
            rejected = app.service.metrics.counts()["warptok_requests_rejected_total"]
            assert rejected["too_many_connections",] == 1
            writer.close()
            await until(lambda: app.service.metrics.gauges.connections()[0] == 3)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(VERSION)
            assert (await answer(reader))[0] == 200
            writer.close()

    run(scenario)


def test_silent_connections_keep_nobody_out():
    async def scenario():
        async with listening(FakeEngine(), max_connections=4) as (app, port):
            silent: list[tuple[Reader, Writer]] = []
            for _ in range(50):
                silent.append(await asyncio.open_connection("127.0.0.1", port))
            for path in (LIVEZ, VERSION):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(path)
                assert (await answer(reader))[0] == 200
                writer.close()
            assert closed_by_reason(app.service)["make_room"] >= 46
            for _, writer in silent:
                writer.close()

    run(scenario)
