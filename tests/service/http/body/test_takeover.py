"""Bodies received into the reader's memory: the same ids, the next request, ends at any moment."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import uvloop

from service.engines.cpu.engine import CpuEngine
from service.http.body import takeover
from service.http.body.takeover import MIN_BYTES, TICK_BYTES, BodyReceiver
from tests.service.http.connection.test_protocol import (
    Reader,
    Writer,
    answer,
    listening,
    request,
    text_body,
)
from tests.support.waiting import GIVEN_UP_S, until
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch
from vocabularies.builtin import load


class OpenEngine(CpuEngine):
    """With the gate that `listening` opens at the end."""

    gate = threading.Event()


ENGINE = OpenEngine()
NAME = "hyenadna"
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
OCTETS = "Accept: application/octet-stream"


def run(scenario: Callable[[], Coroutine[Any, Any, None]], loop=asyncio.new_event_loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(scenario(), GIVEN_UP_S))


@pytest.fixture(autouse=True)
def taken(monkeypatch) -> list[int]:
    """How many bytes each receiver was to receive."""
    seen: list[int] = []
    made = BodyReceiver.__init__

    def note(receiver: BodyReceiver, http: Any, cycle: Any, num_remaining: int) -> None:
        seen.append(num_remaining)
        made(receiver, http, cycle, num_remaining)

    monkeypatch.setattr(BodyReceiver, "__init__", note)
    return seen


def sequence(size: int, seed: int) -> bytes:
    return bytes(random.Random(seed).choices(b"ACGTNacgt", k=size))


def ids_of(text: bytes, name: str = NAME) -> bytes:
    batch = Batch(data=np.frombuffer(text, np.uint8), offsets=np.array([0, len(text)]))
    return ENGINE.encode(load(name), batch.with_options(DEFAULT_OPTIONS)).ids.tobytes()


def octets(body: bytes, *fields: str, name: str = NAME) -> bytes:
    made = request(body, f"/v1/encode?vocabulary={name}", OCTETS, *fields)
    return made.replace(b"application/json", b"application/octet-stream")


async def connected(port: int) -> tuple[Reader, Writer]:
    return await asyncio.open_connection("127.0.0.1", port, limit=2**20)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", [NAME, "gpt2"])
def test_bodies_and_the_requests_behind_them_on_one_connection(loop, name, taken):
    sizes = [1, MIN_BYTES, 300_000, 3 << 20, 5, MIN_BYTES + 70_000, 0]
    if name == "gpt2":
        sizes = [1 << 20, 10]

    async def scenario():
        async with listening(ENGINE) as (_, port):
            reader, writer = await connected(port)
            texts = [sequence(size, seed) for seed, size in enumerate(sizes)]
            sent = b"".join(octets(text, name=name) for text in texts)
            sent += request(text_body("hello").replace(b'"gpt2"', b'"hyenadna"'))

            async def send():
                begin, random_ = 0, random.Random(5)
                while begin < len(sent):
                    size = random_.choice([1, 1000, 200_000, 1 << 20])
                    writer.write(sent[begin : begin + size])
                    await writer.drain()
                    begin += size

            sending = asyncio.ensure_future(send())
            for text in texts:
                status, _, got = await answer(reader)
                assert (status, got) == (200, ids_of(text, name))
            assert (await answer(reader))[0] == 200
            await sending
            writer.close()

    run(scenario, loop)
    assert len(taken) >= 1


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_leaves_in_its_body_leaves_nothing_behind(loop, taken):
    async def scenario():
        async with listening(ENGINE) as (app, port):
            for _ in range(3):
                _, writer = await connected(port)
                writer.write(octets(sequence(1 << 20, 1))[: 1 << 19])
                await writer.drain()
                await until(lambda: taken)
                writer.transport.abort()
                taken.clear()
            await until(lambda: not app.service.batcher.queue_rows)
            reader, writer = await connected(port)
            text = sequence(200_000, 2)
            writer.write(octets(text))
            assert (await answer(reader))[2] == ids_of(text)
            writer.close()

    run(scenario, loop)


def test_data_that_arrives_at_once_is_received_in_bounded_reads(monkeypatch):
    turns, full = [0], []
    updated = BodyReceiver.buffer_updated

    def end_turn() -> None:
        turns[0] += 1

    def note(receiver: BodyReceiver, num_bytes: int) -> None:
        assert num_bytes <= TICK_BYTES
        if num_bytes == TICK_BYTES:
            full.append(turns[0])
            asyncio.get_running_loop().call_soon(end_turn)
        updated(receiver, num_bytes)

    async def scenario():
        async with listening(ENGINE) as (_, port):
            reader, writer = await connected(port)
            sent = octets(sequence(16 * TICK_BYTES, 6))
            writer.write(sent.replace(NAME.encode(), b"hyenadna&reverse_complement=true", 1))
            assert len((await answer(reader))[2]) == 4 * (16 * TICK_BYTES + 1)
            writer.close()

    monkeypatch.setattr(BodyReceiver, "buffer_updated", note)
    run(scenario, uvloop.new_event_loop)
    assert len(full) == len(set(full))  # Nothing else had to wait for more than one of them.


def test_a_client_that_asks_whether_to_go_on(taken):
    async def scenario():
        async with listening(ENGINE) as (_, port):
            reader, writer = await connected(port)
            text = sequence(1 << 20, 3)
            sent = octets(text, "Expect: 100-continue")
            writer.write(sent[: -len(text)])
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(text)
            assert (await answer(reader))[2] == ids_of(text)
            writer.close()

    run(scenario)
    assert taken


def test_a_stream_that_falls_silent_is_refused_and_closed(taken):
    async def scenario():
        async with listening(ENGINE, stream_idle_timeout_s=0.2) as (_, port):
            reader, writer = await connected(port)
            record = b">a\n" + sequence(1 << 20, 4)
            writer.write(request(record, f"/v1/encode/fasta?vocabulary={NAME}")[:-500_000])
            status, fields, _ = await answer(reader)
            assert (status, fields[b"connection"]) == (408, b"close")
            assert await reader.read() == b""
            writer.close()

    run(scenario)
    assert taken


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("begin", "path", "status"),
    [
        (b">a\nACGT\n>b\nAC;GT\n", "/v1/encode/fasta?vocabulary=hyenadna", 400),
        (b">a\n" + b"ACGTACGTA\n" * 9_000, "/v1/encode/fasta?vocabulary=hyenadna", 413),
        (b"\xff\xff\xff\xff" + b"\xff" * 8, "/v1/encode/batch?vocabulary=gpt2", 400),
    ],
    ids=["record", "long record", "Arrow"],
)
def test_the_rest_of_a_refused_body_is_discarded_while_it_comes(
    loop, begin, path, status, taken, caplog
):
    body = begin + bytes(3 << 20)
    kind = b"application/vnd.apache.arrow.stream"

    async def scenario():
        async with listening(ENGINE, max_text_bytes=60_000) as (app, port):
            reader, writer = await connected(port)
            sent = request(body, path).replace(b"application/json", kind)
            begin = len(sent) - len(body) // 2
            writer.write(sent[:begin])
            await writer.drain()
            assert (await answer(reader))[0] == status
            for place in range(begin, len(sent), 1 << 18):
                writer.write(sent[place : min(place + (1 << 18), len(sent))])
                await writer.drain()
            writer.write(octets(b"ACGT"))  # The next request finds the connection in order.
            assert (await answer(reader))[2] == ids_of(b"ACGT")
            writer.close()
            assert app.service.streams.num_streams == 0

    run(scenario, loop)
    assert taken
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "CRITICAL")]


def test_a_body_is_not_discarded_for_ever(taken, monkeypatch):
    monkeypatch.setattr(takeover, "DISCARD_S", 0.2)

    async def scenario():
        async with listening(ENGINE) as (_, port):
            reader, writer = await connected(port)
            sent = request(b">a\nA;C\n" + bytes(64 << 20), "/v1/encode/fasta?vocabulary=gpn")
            writer.write(sent[: 1 << 20])
            assert (await answer(reader))[0] == 400
            with pytest.raises(ConnectionError):
                for place in range(1 << 20, len(sent), 1 << 16):
                    writer.write(sent[place : place + (1 << 16)])
                    await writer.drain()
                    await asyncio.sleep(0.01)
            writer.close()

    run(scenario)
    assert taken


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stream_ends_with_its_error_and_the_connection_goes_on(loop, taken, caplog):
    records = [b">%d\nACGT\n" % number for number in range(20_000)]
    body = b"".join([*records, b">x\nA;C\n", b">y\nACGT\n" * 300_000])

    async def scenario():
        async with listening(ENGINE) as (_, port):
            reader, writer = await connected(port)
            sent = request(body, f"/v1/encode/fasta?vocabulary={NAME}&dtype=uint8")

            async def send():
                for place in range(0, len(sent), 1 << 18):
                    writer.write(sent[place : place + (1 << 18)])
                    await writer.drain()

            sending = asyncio.ensure_future(send())
            assert b" 200 " in (await reader.readuntil(b"\r\n\r\n"))
            received = b""
            while size := int(await reader.readline(), 16):
                received += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
            rows = pa.ipc.open_stream(received).read_all()
            assert rows.num_rows == 16_384 + 1
            assert "(record 20001)" in rows.column("error").to_pylist()[-1]
            await sending
            writer.write(octets(b"ACGT"))
            assert (await answer(reader))[2] == ids_of(b"ACGT")
            writer.close()

    run(scenario, loop)
    assert taken
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "CRITICAL")]


def test_a_body_of_unknown_length_stays_with_the_parser(taken):
    async def scenario():
        async with listening(ENGINE) as (_, port):
            reader, writer = await connected(port)
            text = sequence(300_000, 6)
            head = octets(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            writer.write(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text))
            assert (await answer(reader))[2] == ids_of(text)
            writer.close()

    run(scenario)
    assert not taken
