"""Faulty clients of the soak: closed connections, half bodies, bursts and others, all at once.

Every request whose head was sent is counted, with or without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from benchmarks.service.sample_requests import OCTETS, bases, english
from benchmarks.service.soak.server import MARK
from benchmarks.support.open_loop import LOST, Connection, Request, json_request
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

GONE = (OSError, EOFError, asyncio.IncompleteReadError)
SLOW_S = 2.0
SILENT_S = 30.0  # Longer than head_timeout_s.
TRICKLE_S = 0.1  # Between the bytes of a body.
BURST, BURST_BYTES = 30, 4_000_000
Headers = Mapping[str, str]


@dataclass(slots=True)
class RequestCounts:
    """The clients' counts of requests and answers.

    Attributes:
        heads: requests whose head was sent.
        by_status: answers that came whole, by status.
        lost: requests of waiting clients that got no answer.
        received: the requests that the service has received by its own count, after each round.
    """

    heads: int = 0
    by_status: dict[int, int] = field(default_factory=dict)
    lost: int = 0
    received: list[int] = field(default_factory=list)

    def enter(self, status: int) -> None:
        """Count a request whose client waited for the answer."""
        self.heads += 1
        if status == LOST:
            self.lost += 1
        else:
            self.by_status[status] = self.by_status.get(status, 0) + 1


class Faults:
    """All faults of one round, with their own connections.

    Attributes:
        counts: how often each fault was caused, and which answers it got.
    """

    def __init__(
        self, port: int, headers: Sequence[Headers], requests: RequestCounts, seed: float
    ) -> None:
        self.port = port
        self.headers = headers
        self.requests = requests
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._text = english(self.chance, BURST_BYTES)

    async def run(self, seconds: float) -> None:
        """Cause all faults until the time is over."""
        until = perf_counter() + seconds
        kinds = (
            (self._killed, 0.2),
            (self._half_sent, 0.5),
            (self._slow_reader, 1.0),
            (self._burst, seconds / 3),
            (self._out_of_memory, 0.5),
            (self._swap, 2.0),
            (self._unload, 3.0),
            (self._silent, 2.0),
            (self._trickled, 2.0),
        )

        async def repeat(do, period_s: float) -> None:  # type: ignore[no-untyped-def]
            while perf_counter() < until:
                self.counts[do.__name__.strip("_")] += 1
                await do()
                await asyncio.sleep(period_s * self.chance.uniform(0.5, 1.5))

        async with asyncio.TaskGroup() as tasks:
            for do, period_s in kinds:
                tasks.create_task(repeat(do, period_s))

    def _headers(self) -> Headers:
        return self.chance.choice(self.headers)

    async def _ask(self, request: Request) -> tuple[int, bytes]:
        """Send a request on a new connection and wait for the answer."""
        connection = await Connection.open(self.port)
        status, body = LOST, b""
        with contextlib.suppress(*GONE):
            status, body = await connection.ask(request)
        connection.close()
        self.requests.enter(status)
        return status, body

    async def _killed(self) -> None:
        """Send a whole request and close the connection at some moment."""
        text = self._text[: self.chance.choice((100, 10_000, 500_000))]
        body = {"vocabulary": "gpt2", "text": text}
        request = json_request("killed", "/v1/encode", body, self._headers())
        connection = await Connection.open(self.port)
        connection.writer.write(request.head + request.body)
        with contextlib.suppress(*GONE):
            await connection.writer.drain()
        await asyncio.sleep(self.chance.choice((0.0, 0.005, 0.1)))
        self.requests.heads += 1
        connection.close()

    async def _half_sent(self) -> None:
        """Send half of a body and close the connection."""
        body = {"vocabulary": "gpt2", "text": self._text[:100_000]}
        request = json_request("half", "/v1/encode", body, self._headers())
        connection = await Connection.open(self.port)
        connection.writer.write(request.head + request.body[: len(request.body) // 2])
        await asyncio.sleep(self.chance.choice((0.1, 1.0)))
        self.requests.heads += 1
        connection.close()

    async def _slow_reader(self) -> None:
        """Read an answer of 4 MB slowly, and close the connection in the middle."""
        path = "/v1/encode?vocabulary=hyenadna"
        text = bases(self.chance, 1_000_000).encode()
        request = Request.post("slow", path, text, {**OCTETS, **self._headers()})
        connection = await Connection.open(self.port)
        connection.writer.write(request.head + request.body)
        with contextlib.suppress(*GONE, TimeoutError):  # A refusal is shorter than ten pieces.
            async with asyncio.timeout(SLOW_S):
                for _ in range(10):
                    await connection.reader.read(65_536)
                    await asyncio.sleep(0.1)
        self.requests.heads += 1
        connection.close()

    async def _silent(self) -> None:
        """Send nothing or half of a head, and wait until the service closes the connection."""
        connection = await Connection.open(self.port)
        connection.writer.write(self.chance.choice((b"", b"POST /v1/encode HTTP/1.1\r\nhost: l")))
        try:
            async with asyncio.timeout(SILENT_S):
                with contextlib.suppress(*GONE):
                    await connection.reader.read()
            self.counts["silent closed"] += 1
        except TimeoutError:
            self.counts["silent open"] += 1
        connection.close()

    async def _trickled(self) -> None:
        """Send a body a byte at a time, until the service refuses it."""
        body = {"vocabulary": "gpt2", "text": self._text[:10_000]}
        request = json_request("trickled", "/v1/encode", body, self._headers())
        connection = await Connection.open(self.port)
        connection.writer.write(request.head)
        answering = asyncio.ensure_future(connection.answer())
        for byte in request.body:
            connection.writer.write(bytes([byte]))
            done, _ = await asyncio.wait([answering], timeout=TRICKLE_S)
            if done:
                break
        status = LOST
        with contextlib.suppress(*GONE):
            status, _ = await answering
        connection.close()
        self.requests.enter(status)
        self.counts[f"trickled {status}"] += 1

    async def _burst(self) -> None:
        """Send more requests at once than the queue holds; the service refuses the others."""
        body = {"vocabulary": "gpt2", "texts": [self._text]}
        request = json_request("burst", "/v1/count", body, self.headers[1])
        answers = await asyncio.gather(*(self._ask(request) for _ in range(BURST)))
        for status, _ in answers:
            self.counts[f"burst {status}"] += 1

    async def _out_of_memory(self) -> None:
        """Send a text for which the engine has no memory beside one for which it has."""
        body = {"vocabulary": "gpt2", "texts": ["fine", f"{MARK} {self.chance.random()}"]}
        request = json_request("memory", "/v1/encode/batch", body, self._headers())
        status, answer = await self._ask(request)
        alone = b'"code":"engine_failed"' in answer and b'"row":1' in answer and b"[[" in answer
        self.counts[f"out_of_memory {status} {'alone' if alone else ''}".strip()] += 1

    async def _swap(self) -> None:
        """Replace the vocabulary of a name while requests use it."""
        for document in SWAPPED:
            path = "/v1/vocabularies/swapped?replace=true"
            put = Request.post("swap", path, document, self.headers[0])
            put = Request("swap", put.head.replace(b"POST", b"PUT", 1), put.body)
            uses = asyncio.gather(*(self._use_swapped() for _ in range(5)))
            status, _ = await self._ask(put)
            await uses
            self.counts[f"swap {status}"] += 1

    async def _use_swapped(self) -> None:
        body = {"vocabulary": "swapped", "text": "ACGTACGTAC"}
        status, _ = await self._ask(json_request("swapped", "/v1/encode", body, self._headers()))
        self.counts[f"swapped {status}"] += 1

    async def _unload(self) -> None:
        """Unload a vocabulary while requests use it; the next request loads it again."""
        request = Request.post("unload", "/v1/vocabularies/nt_v2/unload", b"", self.headers[0])
        status, _ = await self._ask(request)
        self.counts[f"unload {status}"] += 1


def _document(pair: bytes) -> bytes:
    """Make a tokenizer.json of all bytes and one merge."""
    tokens = (*(bytes([byte]) for byte in range(256)), pair)
    model = Bpe(((pair[0], pair[1]),))
    return tokenizer_json(Vocabulary(tokens, model, pretokenizer="gpt2")).encode()


SWAPPED = (_document(b"AC"), _document(b"GT"))
