"""The open-loop load counts latency from the due time; a short soak loses no request."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys

import pytest

from benchmarks.support.open_loop import LOST, Client, arrivals, json_request, quantiles
from tests.support.data_files import ROOT
from tests.support.waiting import run


async def serve(stall_s: float) -> tuple[asyncio.Server, int]:
    """Run a server whose loop blocks once, half a second after the first request."""
    stalled = False

    async def answer(reader, writer):
        nonlocal stalled
        while head := await reader.readline():
            size = 0
            while head.strip():
                name, _, value = head.partition(b":")
                size = int(value) if name == b"content-length" else size
                head = await reader.readline()
            body = await reader.readexactly(size)
            while not stalled and asyncio.get_running_loop().time() > begin + 0.5:
                stalled = True
                await gate(stall_s)
            async with lock:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, body))
        writer.close()

    async def gate(seconds):
        async with lock:
            await asyncio.sleep(seconds)

    lock, begin = asyncio.Lock(), asyncio.get_running_loop().time()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.slow
def test_a_stalled_server_counts_for_every_request_due_meanwhile():
    async def scenario():
        server, port = await serve(1.0)
        client = Client(port, max_connections=2)

        def make(_):
            return json_request("x", "/", {"a": 1})

        answers = await arrivals(client, 200, 2.0, make, random.Random(1))
        client.close()
        server.close()
        await asyncio.sleep(0.1)
        return answers

    answers = run(scenario)
    assert 300 < len(answers) < 520
    assert {answer.status for answer in answers} == {200}
    late = [answer for answer in answers if answer.seconds > 0.2]
    # Some 160 were due while nothing was answered; a closed loop would have seen two.
    assert len(late) > 100
    assert max(answer.seconds for answer in answers) > 0.9


def test_chunks_and_lost_connections_are_distinguished():
    async def scenario():
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 429 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client, request = Client(port), json_request("x", "/", {})
        outcomes = [await client.ask(request) for _ in range(2)]
        client.close()
        server.close()
        await asyncio.sleep(0.1)
        return outcomes

    first, second = run(scenario)
    assert first == (429, b"abc")
    assert second == (LOST, b"")


def test_quantiles_are_in_milliseconds():
    row = quantiles([i / 1000 for i in range(1, 1001)])
    assert row == {"p50_ms": 501.0, "p99_ms": 991.0, "p999_ms": 1000.0, "max_ms": 1000.0}


@pytest.mark.slow
@pytest.mark.parametrize("front_ends", (0, 2))
def test_a_short_soak_loses_nothing(tmp_path, front_ends):
    out = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks.service.soak", "--rounds", "2", "--round-s", "2"]
    command += ["--front-ends", str(front_ends)]
    command += ["--long-bytes", "5000000", "--max-growth", "1000", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(out.read_text())
    assert report["failures"] == []
    assert report["requests"] == report["received"] > 100
    assert sum(report["batches"].values()) > 100
    assert report["sigterm"]["exit_code"] == 0
    faults = report["rounds"][-1]["faults"]
    assert all(faults[name] for name in ("killed", "half_sent", "slow_reader", "burst", "swap"))
    assert faults["silent closed"] == faults["silent"]
    assert faults["trickled 408"] == faults["trickled"]
    # A slow machine may refuse the whole request.
    refused = sum(faults.get(f"out_of_memory {status}", 0) for status in (429, 503, 504))
    assert faults["out_of_memory 200 alone"] == faults["out_of_memory"] - refused
