"""Runs cases one after another: sends a changed message to its API and checks the answer.

A case is known by the seed and its number; whatever came before it matters only by the vocabulary
`mine`, which accepted uploads replace.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from tests.fuzz.faults import Answer, fault_of
from tests.fuzz.inputs.calls import calls
from tests.fuzz.inputs.messages import CANARY, Message
from tests.fuzz.inputs.mutators import changed
from tests.fuzz.inputs.requests import requests
from tests.fuzz.inputs.uploads import uploads
from tests.fuzz.open_apis import Apis
from vocabularies.batch.batch import EncodeOptions, RowRefused
from vocabularies.model.types import Upstream
from vocabularies.reference import tokenizer

SLOW_S = 2.0  # Processor time of one case, far above what its limits allow.
KINDS = {"reads": 1, "uploads": 5, "calls": 5, "requests": 14}
TEXTS = [f"{CANARY} ab ACGT acgtN", "", "ACGTACGT" * 9, "\u4e2d\u0301 \x00<s>", "abcabc"]


@dataclass(frozen=True, slots=True)
class Found:
    """A fault, and the message that shows it."""

    number: int
    fault: str
    message: Message

    def __str__(self) -> str:
        message = self.message
        content = message.bodies if message.method == "gRPC" else (message.content,)
        bodies = " ".join(base64.b64encode(body).decode() for body in content)
        line = f"case {self.number}: {message.method} {message.path} {message.headers}"
        return f"{line} {message.encoding}\n  {self.fault}\n  {bodies[:3000]}"


@dataclass(slots=True)
class Hunt:
    """A run of cases.

    Attributes:
        found: the faults, each kind of words once.
        statuses: how often each API gave each status.
    """

    apis: Apis
    seed: int
    found: list[Found] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    num_uploads: int = 0
    kinds: dict[str, list[Message]] = field(
        default_factory=lambda: _kinds([*requests(), *uploads(), *calls()])
    )

    async def run(self, numbers: Iterable[int], begin: Callable[[int], object] = id) -> int:
        """Run the cases of these numbers; return how many there were.

        Args:
            numbers: of the cases.
            begin: is told each case before it begins.
        """
        num_cases = 0
        for number in numbers:
            begin(number)
            await self.case(number)
            num_cases += 1
        return num_cases

    async def case(self, number: int) -> None:
        """Run one case."""
        rng = Random(f"{self.seed}/{number}")
        kind = rng.choices([*KINDS], [*KINDS.values()])[0]
        others = self.kinds[kind]
        message = rng.choice(others)
        if rng.randrange(50):
            message = changed(rng, message, others)
        before = time.process_time()
        try:
            way = _way(rng, message)
            answer = await self._sent(rng, message, way)
            fault = fault_of(message, answer, self.apis.log)
        except Exception as error:
            fault = f"raised {type(error).__name__}: {error}"
            self.apis.log.lines.clear()
            answer = Answer(-1, {}, b"")
        taken = time.process_time() - before
        if taken > SLOW_S:
            fault = fault or f"took {taken:.1f} s of the processor"
        if fault.startswith("a refusal of another shape") and way == "connect":
            fault = ""  # Its path may have been broken on the way.
        self.statuses[f"{kind} {answer.status}"] += 1
        self.num_uploads += kind == "uploads"
        if fault:
            self.found.append(Found(number, fault, message))
        elif message.method == "PUT" and answer.status in (200, 201):
            await self._use_what_came(number, message)

    async def _sent(self, rng: Random, message: Message, way: str) -> Answer:
        if way == "connect":
            return await self.apis.connect(_on_the_wire(rng, message), rng.choice([1, 2, 9]))
        if way == "leave":
            return await self.apis.request(message, leaves=True)
        return await self.apis.send(message)

    async def _use_what_came(self, number: int, put: Message) -> None:
        """Check that an accepted vocabulary gives the reference's ids."""
        name = put.path.partition("?")[0].rpartition("/")[2]
        entry = self.apis.app.service.registry.entries.get(name)
        body = json.dumps({"vocabulary": name, "texts": TEXTS, "return_offsets": "bytes"}).encode()
        headers = ((b"content-type", b"application/json"),)
        ask = Message("POST", "/v1/encode/batch", headers, (body,))
        answer = await self.apis.send(ask)
        fault = fault_of(ask, answer, self.apis.log)
        if not fault and entry is not None and not isinstance(entry.vocabulary.model, Upstream):
            fault = _difference(entry.vocabulary, json.loads(answer.body))
        ids = json.dumps({"vocabulary": name, "ids": [[*range(40)], [3, 1, 2], []]}).encode()
        ask = Message("POST", "/v1/decode/batch", headers, (ids,))
        fault = fault or fault_of(ask, await self.apis.send(ask), self.apis.log)
        if fault:
            self.found.append(Found(number, f"taken, and then: {fault}", put))


def _way(rng: Random, message: Message) -> str:
    """Choose how to send a message: mostly over ASGI, else a connection, or a leaving client."""
    chosen = rng.choices(["send", "leave", "connect"], [16, 1, 3])[0]
    return chosen if message.method == "POST" else "send"


def _difference(vocabulary: object, answer: dict) -> str:
    """Describe the difference to the reference; "" if there is none."""
    refused = {fault["row"]: fault["code"] for fault in answer.get("errors", [])}
    for row, text in enumerate(TEXTS):
        try:
            expected: object = tokenizer.encode(vocabulary, text, EncodeOptions(spans=True)).ids
        except RowRefused as error:
            expected = error.error.code
        if refused.get(row, answer["ids"][row]) != expected:
            return f"{text!r} gives {answer['ids'][row]} {refused.get(row)}, not {expected}"
    return ""


def _on_the_wire(rng: Random, message: Message) -> bytes:
    """Serialize a request; sometimes break its head as well."""
    content = message.content
    lines = [b"POST %b HTTP/1.1" % message.path.encode(errors="replace"), b"host: localhost"]
    lines += [b"%b: %b" % pair for pair in message.headers]
    if message.encoding:
        lines.append(b"content-encoding: " + message.encoding.encode())
    if all(name != b"content-length" for name, _ in message.headers):
        lines.append(b"content-length: %d" % len(content))
    data = bytearray(b"\r\n".join([*lines, b"", b""]) + content)
    if rng.randrange(4) == 0:
        data[rng.randrange(min(200, len(data)))] = rng.randrange(256)
    return bytes(data)


def _kinds(valid: list[Message]) -> dict[str, list[Message]]:
    """Group valid messages by kind, for their shares of the cases."""
    found: dict[str, list[Message]] = {kind: [] for kind in KINDS}
    for message in valid:
        kind = {"GET": "reads", "DELETE": "reads", "PUT": "uploads", "gRPC": "calls"}
        found[kind.get(message.method, "requests")].append(message)
    return found


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
