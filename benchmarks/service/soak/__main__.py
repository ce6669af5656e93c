"""Ten minutes of load with faults: memory stays flat, and every request is answered or refused.

    python -m benchmarks.service.soak                       # ten minutes, loopback only
    python -m benchmarks.service.soak --rounds 30 --round-s 115 --front-ends 2  # an hour
    python -m benchmarks.service.soak --rounds 2 --round-s 6 --long-bytes 20000000

Half of each round is open-loop traffic of all kinds with two keys, a long text, and beside them,
all the time, nine kinds of faults: clients that are killed, bodies that end halfway, slow readers,
bursts that fill the queue, an engine that is out of memory, a vocabulary that is swapped and one
that is unloaded, connections that stay silent, and bodies that come a byte at a time. Then come
1 kB requests alone, and 1 kB requests beside a long text. Between rounds nothing is sent; then the
counts of clients and service are compared, and the memory is read. At the end SIGTERM is sent while
requests run, and the log is searched for errors. The first round warms up. Other work on the
machine changes the latencies, but not the counts.

The service keeps freed memory for some seconds, 0.2 GB in each process, and then gives it back to
the system. So a round's memory is the least of GIVE_BACK_PERIOD_S, in which nothing is sent. The
pools between front ends and engine process keep up to 256 MiB each, and fill when long texts happen
to meet: they are `shared_mb`, and growth is that of all other memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import uvloop

from benchmarks.service.sample_requests import KINDS, huge_text, small_text
from benchmarks.service.soak.faults import Faults, RequestCounts
from benchmarks.service.soak.server import FORCED
from benchmarks.support.machine import machine
from benchmarks.support.open_loop import (
    LOST,
    Answer,
    Client,
    Repeated,
    Request,
    arrivals,
    quantiles,
)
from benchmarks.support.service_process import Memory, Running, service_process
from service.security.api_keys import SCOPES, add_key
from service.server.lifespan import GIVE_BACK_PERIOD_S

SETTINGS = {
    "engine": "auto",
    "preload": "gpt2,cl100k_base,nt_v2,mtdna6,hyenadna",
    "max_body_bytes": 1 << 28,
    "max_text_bytes": 1 << 28,
    "max_queue_bytes": 160_000_000,
    "request_timeout_ms": 20_000,
    "stream_idle_timeout_s": 3,
    "head_timeout_s": 3,
}
SHARES = {"chat": 60, "rag": 3, "reads": 10, "mtdna": 15, "megabase": 2}
SMALL_SHARE = 60
RATE = 60.0
REFUSED = (429, 503, 504)
QUIET_S = 60.0
SLACK_S = 2.0  # For giving back, beyond its period.
PACKAGES = ("fastapi", "uvicorn", "uvloop", "fastokens", "tokenizers", "numpy")
LINE_START = re.compile(r"^(?=[0-9]{4}-[0-9]{2}-[0-9]{2} )", re.MULTILINE)
SEVERE = re.compile(r"[0-9-]+ [0-9:,]+ (ERROR|CRITICAL) |Traceback")
Make = Callable[[random.Random], Request]


class Soak:
    """One service under load, and the counts of clients and service."""

    def __init__(self, running: Running, keys: list[str], args: argparse.Namespace) -> None:
        self.running = running
        self.args = args
        self.headers = [{"x-api-key": key} for key in keys]
        self.chance = random.Random(args.seed)
        self.requests = RequestCounts()
        self.client = Client(running.port)
        self.failures: list[str] = []
        self.batches: Counter[str] = Counter()  # By engine.

    def make(self, chance: random.Random) -> Request:
        """Make a request of any kind, with either key."""
        names = ["small", *SHARES]
        [name] = chance.choices(names, [SMALL_SHARE, *SHARES.values()])
        headers = chance.choice(self.headers)
        return small_text(chance, headers) if name == "small" else KINDS[name](chance, headers)

    def make_small(self, chance: random.Random) -> Request:
        """Make a request of 1 kB of text, with either key."""
        return small_text(chance, chance.choice(self.headers))

    async def traffic(self, seconds: float, make: Make) -> list[Answer]:
        """Send open-loop requests, and count the outcome of each."""
        answers = await arrivals(self.client, RATE, seconds, make, self.chance)
        for answer in answers:
            self.requests.enter(answer.status)
        return answers

    async def round(self) -> dict[str, Any]:
        """Run a round: traffic beside faults, then small requests alone and beside a long text."""
        half_s = self.args.round_s / 2
        faults = Faults(self.running.port, self.headers, self.requests, self.chance.random())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(faults.run(half_s))
            with Repeated(self.running.port, self._long_text()) as long:
                under_faults = await self.traffic(half_s, self.make)
        self.requests.heads += long.num_sent
        without = await self.traffic(half_s / 2, self.make_small)
        with Repeated(self.running.port, self._long_text()) as long:
            beside = await self.traffic(half_s / 2, self.make_small)
        self.requests.heads += long.num_sent
        await self._until_quiet()
        self._compare()
        memory = await self._settled_memory()
        return {
            "resident_mb": round(memory.resident / 1e6, 1),
            "shared_mb": round(memory.shared / 1e6, 1),
            "small_under_faults": self._row(under_faults),
            "small_without": self._row(without),
            "small_beside": self._row(beside) | {"long_texts": long.num_done},
            "faults": dict(faults.counts),
        }

    def _long_text(self) -> Request:
        return huge_text(self.args.long_bytes, self.headers[0])

    def _row(self, answers: list[Answer]) -> dict[str, Any]:
        small = [a.seconds for a in answers if a.kind == "1 kB" and a.status == 200]
        refused = sum(answer.status in REFUSED for answer in answers)
        return {"num_requests": len(answers), "refused": refused} | quantiles(small)

    async def _until_quiet(self) -> None:
        """Wait until the service has answered or refused every request."""
        deadline = perf_counter() + QUIET_S
        while perf_counter() < deadline:
            await asyncio.sleep(0.2)
            counters = await asyncio.to_thread(self.running.counters)
            if not counters["warptok_queue_rows", ()] and self._in_progress(counters) <= 1:
                return
        self.failures.append(f"still {self._in_progress(counters)} requests after {QUIET_S} s")

    async def _settled_memory(self) -> Memory:
        """Read the memory until every process has given back what is free; return the least."""
        until = perf_counter() + GIVE_BACK_PERIOD_S + SLACK_S
        least = self.running.memory()
        while perf_counter() < until:
            await asyncio.sleep(1.0)
            least = min(least, await asyncio.to_thread(self.running.memory))
        return least

    def _in_progress(self, counters: dict[Any, float]) -> float:
        """Read the requests that are received and not answered; reading /metrics itself is one."""
        answered = sum(n for (name, _), n in counters.items() if name == "warptok_requests_total")
        cancelled = counters["warptok_requests_cancelled_total", ()]
        return counters["warptok_requests_received_total", ()] - answered - cancelled

    def _compare(self) -> None:
        """Compare the counts of the clients, of the service and of its queue."""
        counters = self.running.counters()
        self.batches.clear()
        for (name, labels), number in counters.items():
            if name == "warptok_batches_total":
                self.batches[labels[0]] += int(number)
        accepted = counters["warptok_work_accepted_total", ()]
        finished = sum(
            n for (name, _), n in counters.items() if name == "warptok_work_finished_total"
        )
        if accepted != finished:
            self.failures.append(f"{accepted} accepted, {finished} finished")
        probes = sum(
            n
            for (name, labels), n in counters.items()
            if name == "warptok_requests_total" and labels[0] in ("/metrics", "/readyz", "/livez")
        )
        received = counters["warptok_requests_received_total", ()] - probes - 1
        self.requests.received.append(int(received))
        if received != self.requests.heads:
            self.failures.append(f"{self.requests.heads} requests sent, {received} received")
        if self.requests.lost:
            self.failures.append(f"{self.requests.lost} requests got no answer")

    async def end(self) -> dict[str, Any]:
        """Send SIGTERM during traffic: accepted requests are answered, the others refused."""
        traffic = asyncio.create_task(
            arrivals(self.client, RATE, 3.0, self.make, random.Random(self.args.seed + 1))
        )
        await asyncio.sleep(1.0)
        self.running.process.send_signal(signal.SIGTERM)
        answers = await traffic
        code = await asyncio.to_thread(self.running.process.wait, 40)
        by_status: dict[str, int] = {}
        for answer in answers:
            word = "not connected" if answer.status == LOST else str(answer.status)
            by_status[word] = by_status.get(word, 0) + 1
        last = self.running.log.read_text().splitlines()[-1]
        errors = self._find_errors()
        if code:
            self.failures.append(f"exit code {code}")
        if errors:
            self.failures.append(f"{len(errors)} errors in the log, the first: {errors[0]}")
        before = {answer.status for answer in answers if answer.due_s < 0.9}
        if not before <= {200, 429, 504}:  # A slow machine may refuse some, not for the signal.
            self.failures.append(f"requests from before SIGTERM got {before}")
        return {"exit_code": code, "answers": by_status, "last_line": last.partition(": ")[2]}

    def _find_errors(self) -> list[str]:
        """Find the errors in the log, without those that the soak's engine has caused."""
        entries = LINE_START.split(self.running.log.read_text(errors="replace"))
        return [entry for entry in entries if SEVERE.match(entry) and FORCED not in entry]


async def run(args: argparse.Namespace, running: Running, keys: list[str]) -> dict[str, Any]:
    """Run all rounds and the end; return the results."""
    soak = Soak(running, keys, args)
    rounds = []
    for number in range(args.rounds):
        rounds.append(await soak.round())
        print(f"round {number + 1}: {json.dumps(rounds[-1])}", flush=True)
    end = await soak.end()
    residents = [row["resident_mb"] - row["shared_mb"] for row in rounds[1:]]
    growth = round(100 * (residents[-1] / residents[0] - 1), 2)
    if growth > args.max_growth:
        soak.failures.append(f"memory grew by {growth} % from the second round to the last")
    p99s = [
        [row[name]["p99_ms"] for row in rounds[1:]] for name in ("small_without", "small_beside")
    ]
    without, beside = map(statistics.median, p99s)
    return {
        "requests": soak.requests.heads,
        "received": soak.requests.received[-1],
        "batches": dict(soak.batches),
        "answered_by_status": soak.requests.by_status,
        "resident_growth_percent": growth,
        "small_p99_ms": {"without": without, "beside": beside, "ratio": round(beside / without, 2)},
        "failures": soak.failures,
        "rounds": rounds,
        "sigterm": end,
    }


def main() -> None:
    """Run the command line; exit with 1 if a request was lost or memory grew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--round-s", type=float, default=55.0)
    parser.add_argument("--long-bytes", type=int, default=100_000_000)
    parser.add_argument("--front-ends", type=int, default=0)
    parser.add_argument("--max-growth", type=float, default=2.0, help="percent, second to last")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[2] / "results/service/soak.json"
    )
    args = parser.parse_args()
    about = machine(PACKAGES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "keys.json"
        keys = [add_key(path, client, SCOPES[:3]) for client in ("first", "second")]
        settings = SETTINGS | {"api_keys_file": path, "frontends": args.front_ends}
        with service_process(folder, settings, "benchmarks.service.soak.server") as running:
            results = uvloop.run(run(args, running, keys))
    command = " ".join(["python -m benchmarks.service.soak", *sys.argv[1:]])
    document = {"command": command, "machine": about} | results
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps({key: value for key, value in results.items() if key != "rounds"}, indent=1))
    raise SystemExit(1 if results["failures"] else 0)


if __name__ == "__main__":
    main()
