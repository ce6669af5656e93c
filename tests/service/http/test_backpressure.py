"""Answers of streams: their unsent bytes are bounded for each and for all, and are freed."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
import urllib.request

import pytest

from service.http.backpressure import BoundedSender
from service.operations.stream_budget import StreamBudget
from tests.support.server_process import server_process
from tests.support.waiting import run

MEDIA_TYPE = "application/octet-stream"
END = re.compile(rb'requests_total\{route="/v1/encode"|requests_cancelled_total 1')


class Reader:
    """A client that reads while `takes` is set."""

    def __init__(self) -> None:
        self.takes = asyncio.Event()
        self.body = b""

    async def send(self, message) -> None:
        await self.takes.wait()
        self.body += bytes(message.get("body", b""))


async def started(budget: StreamBudget, reader: Reader) -> tuple[BoundedSender, asyncio.Task]:
    sender = BoundedSender(reader.send, MEDIA_TYPE, budget, 10)
    return sender, asyncio.create_task(sender.run())


async def is_done(task: asyncio.Task) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


def test_all_streams_together_hold_a_bounded_number_of_bytes_and_each_goes_on():
    async def scenario():
        budget = StreamBudget(max_streams=9, max_bytes=1000, max_total_bytes=1500)
        readers = [Reader() for _ in range(4)]
        streams = [await started(budget, reader) for reader in readers]
        for sender, sending in streams:  # The first message is with the server, one waits.
            await sender.put(b"x" * 600)
            await is_done(sending)
            await sender.put(b"x" * 600)
        puts = [asyncio.create_task(sender.put(b"y" * 600)) for sender, _ in streams]
        assert [await is_done(put) for put in puts] == [False] * 4
        assert budget.num_bytes == 4 * 600
        readers[3].takes.set()
        await puts[3]
        for reader in readers:
            reader.takes.set()
        await asyncio.gather(*puts)
        for sender, sending in streams:
            await sender.close()
            await sending
        assert budget.num_bytes == 0
        assert all(reader.body == b"x" * 1200 + b"y" * 600 for reader in readers)

    run(scenario)


def test_a_stream_that_ends_early_releases_its_unsent_bytes():
    async def scenario():
        budget = StreamBudget(9, 1000, 1000)
        reader = Reader()
        sender, sending = await started(budget, reader)
        await sender.put(b"x" * 900)
        await sender.put(b"x" * 900)
        other, _ = await started(budget, Reader())
        await other.put(b"z")
        waiting = asyncio.create_task(other.put(b"z" * 900))
        assert budget.num_bytes > 900
        sending.cancel()
        await sender.drop()
        await waiting
        assert budget.num_bytes <= 901

    run(scenario)


def metrics(server) -> bytes:
    with urllib.request.urlopen(server.url + "/metrics") as answer:
        return answer.read()


@pytest.mark.slow
def test_a_client_that_takes_nothing_of_a_long_answer_is_cut_off(tmp_path):
    settings = {"WARPTOK_PRELOAD": "hyenadna", "WARPTOK_STREAM_IDLE_TIMEOUT_S": "1"}
    body = json.dumps({"vocabulary": "hyenadna", "text": "ACGT" * 2_000_000}).encode()
    head = f"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with server_process(tmp_path, settings) as server:
        port = int(server.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=180) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            deadline = time.monotonic() + 180
            while not (ended := END.search(metrics(server))) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert ended, server.log.read_text()
            num_bytes = 0
            try:
                while piece := connection.recv(1 << 20):
                    num_bytes += len(piece)
            except ConnectionResetError:
                pass
    assert num_bytes < 2 * 8_000_000  # An id and a comma for each base.
