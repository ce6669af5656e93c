"""Open-loop loads of the service: each kind of request alone, all together, and beside 100 MB.

    python -m benchmarks.service.load                       # about three minutes, loopback only
    python -m benchmarks.service.load --seconds 5 --rounds 1 --only beside

Arrivals are a Poisson process, and latencies count from the time at which a request was due, so
that a pause of the service counts for every request that is due in it. Service and client share the
machine's cores; the client's own lateness is in the figures, and so is other work on the machine,
of which `loop_waited_percent` tells: how long the service's event loop could have run and had no
core. `beside` sends 1 kB requests with and without one long text after the other, in turn (A B A
B), and compares their p99; the first round warms up. Every answer must be 200, or nothing is
written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.service.sample_requests import KINDS, Make, huge_text, small_text
from benchmarks.support.machine import machine
from benchmarks.support.open_loop import Answer, Client, Repeated, Request, arrivals, quantiles
from benchmarks.support.service_process import Running, service_process

RATES = {"chat": 200.0, "rag": 10.0, "reads": 30.0, "mtdna": 60.0, "megabase": 8.0}
MIXED = {"chat": 70, "rag": 3, "reads": 10, "mtdna": 15, "megabase": 2}
MIXED_RATE, SMALL_RATE = 100.0, 100.0
PACKAGES = ("fastapi", "uvicorn", "uvloop", "fastokens", "tokenizers", "numpy")
SETTINGS = {
    "preload": "gpt2,cl100k_base,nt_v2,mtdna6,hyenadna",
    "max_body_bytes": 1 << 28,
    "max_text_bytes": 1 << 28,
    "request_timeout_ms": 120_000,
}


def row_of(answers: list[Answer], seconds: float) -> dict[str, Any]:
    """Summarize answers: requests per second and latencies.

    Raises:
        SystemExit: the status of an answer is not 200.
    """
    wrong = [answer for answer in answers if answer.status != 200]
    if wrong:
        raise SystemExit(f"{len(wrong)} requests failed, the first: {wrong[0]}")
    row = quantiles([answer.seconds for answer in answers])
    return {"requests_per_s": round(len(answers) / seconds, 1), "num_requests": len(answers)} | row


def without_headers(make: Make) -> Callable[[random.Random], Request]:
    """Make requests of a kind without headers of their own."""
    return lambda chance: make(chance, {})


async def alone(client: Client, name: str, seconds: float, chance: random.Random) -> dict[str, Any]:
    """Time one kind of request."""
    make = without_headers(KINDS[name])
    return row_of(await arrivals(client, RATES[name], seconds, make, chance), seconds)


async def mixed(client: Client, seconds: float, chance: random.Random) -> dict[str, Any]:
    """Time all kinds of requests at once; return a row for each."""

    def make(chance: random.Random) -> Request:
        [name] = chance.choices(list(MIXED), list(MIXED.values()))
        return KINDS[name](chance, {})

    answers = await arrivals(client, MIXED_RATE, seconds, make, chance)
    kinds = sorted({answer.kind for answer in answers})
    return {kind: row_of([a for a in answers if a.kind == kind], seconds) for kind in kinds}


async def small(
    client: Client, running: Running, seconds: float, chance: random.Random
) -> dict[str, Any]:
    """Time 1 kB requests, and how long the service's event loop ran and waited for a core."""
    before = running.scheduled_s()
    make = partial(small_text, headers={})
    row = row_of(await arrivals(client, SMALL_RATE, seconds, make, chance), seconds)
    for name, begin, end in zip(("ran", "waited"), before, running.scheduled_s(), strict=True):
        row[f"loop_{name}_percent"] = round(100 * (end - begin) / seconds, 1)
    return row


async def beside(
    client: Client, running: Running, seconds: float, chance: random.Random, size: int
) -> dict[str, dict[str, Any]]:
    """Time 1 kB requests without and with a long text that is always being encoded."""
    without = await small(client, running, seconds, chance)
    with Repeated(client.port, huge_text(size, {})) as long:
        await asyncio.sleep(0.5)
        row = await small(client, running, seconds, chance)
        row["long_texts"] = long.num_done
    return {"without": without, "with": row}


async def run(args: argparse.Namespace, running: Running) -> dict[str, Any]:
    """Run the chosen loads."""
    client, chance = Client(running.port), random.Random(args.seed)
    for name in KINDS:  # The first call of each kind warms up.
        await arrivals(client, RATES[name], 1.0, without_headers(KINDS[name]), chance)
    results: dict[str, Any] = {}
    if "kinds" in args.only:
        results["kinds"] = {name: await alone(client, name, args.seconds, chance) for name in KINDS}
    if "mixed" in args.only:
        results["mixed"] = await mixed(client, args.seconds, chance)
    if "beside" in args.only:
        rounds = [
            await beside(client, running, args.seconds, chance, args.long_bytes)
            for _ in range(args.rounds + 1)
        ][1:]
        ratios = [row["with"]["p99_ms"] / row["without"]["p99_ms"] for row in rounds]
        results["beside"] = {"rounds": rounds, "p99_ratios": ratios}
        results["beside"]["median_p99_ratio"] = round(statistics.median(ratios), 2)
    client.close()
    return results


def main() -> None:
    """Measure the chosen loads, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["kinds", "mixed", "beside"])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3, help="of beside, after one to warm up")
    parser.add_argument("--long-bytes", type=int, default=100_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "results/service/load.json"
    )
    args = parser.parse_args()
    about = machine(PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        with service_process(Path(folder), SETTINGS) as running:
            results = uvloop.run(run(args, running))
            if code := running.terminate():
                raise SystemExit(f"the service ended with {code}: {running.log.read_text()}")
    command = " ".join(["python -m benchmarks.service.load", *sys.argv[1:]])
    args.out.write_text(
        json.dumps({"command": command, "machine": about} | results, indent=1) + "\n"
    )
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
