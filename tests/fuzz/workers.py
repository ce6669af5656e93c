"""Runs the cases in several processes, watches them and adds up their results."""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import multiprocessing
import os
import struct
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from service.runtime.malloc import keep_large_blocks
from tests.fuzz.hunt import Hunt
from tests.fuzz.memory import Size, measured, what_grew
from tests.fuzz.open_apis import LIMITS, open_apis

STUCK_S = 120.0
REPORT_CASES = 20_000


def work(seed: int, first: int, end: int, place: str) -> None:
    """Run the cases first to end; the file `place` names the current one."""
    with open(place, "r+b") as file:
        now = mmap.mmap(file.fileno(), 8)

    def begin(number: int) -> None:
        now[:8] = struct.pack("<q", number)

    keep_large_blocks()  # As the service does.
    answer = asyncio.run(hunted(seed, first, end, begin))
    Path(place + ".json").write_text(json.dumps(answer))


async def hunted(seed: int, first: int, end: int, begin: Any) -> dict[str, Any]:
    """Return the results of a worker."""
    sizes: list[Size] = []
    async with open_apis() as apis:
        hunt = Hunt(apis, seed)
        started = time.perf_counter()
        shown = 0
        for part in range(first, end, REPORT_CASES):
            await hunt.run(range(part, min(part + REPORT_CASES, end)), begin)
            sizes.append(measured(apis.app.service))
            rate = (part + REPORT_CASES - first) / (time.perf_counter() - started)
            memory = f"{sizes[-1].loaded >> 20} MiB, {sizes[-1].settled >> 20} with nothing loaded"
            print(f"{part}: {rate:.0f}/s, {memory}, {len(hunt.found)} found", flush=True)
            for found in hunt.found[shown:]:
                print(found, flush=True)
            shown = len(hunt.found)
    return {
        "found": [str(found) for found in hunt.found],
        "statuses": hunt.statuses,
        "num_uploads": hunt.num_uploads,
        "seconds": time.perf_counter() - started,
        "sizes": [[size.loaded, size.settled] for size in sizes],
    }


def run_all(asked: argparse.Namespace) -> bool:
    """Run all workers; return whether there were faults."""
    # A panic's stack would have each process keep the libraries' debug information: 37 MiB, and
    # 15 of pages.
    os.environ["RUST_BACKTRACE"] = "0"
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder:
        workers = []
        for number in range(asked.workers):
            place = Path(folder, str(number))
            place.write_bytes(struct.pack("<q", -1))
            ends = [asked.first + asked.cases * n // asked.workers for n in (number, number + 1)]
            process = context.Process(target=work, args=(asked.seed, *ends, str(place)))
            process.start()
            workers.append((process, place))
        is_wrong = watch(workers)
        answers = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    return report(answers) or is_wrong


def watch(workers: list[Any]) -> bool:
    """Wait for the workers; one that stands still or ends early names its case."""
    is_wrong = False
    seen = {process.pid: (-2, time.monotonic()) for process, _ in workers}
    while any(process.is_alive() for process, _ in workers):
        time.sleep(0.5)
        for process, place in workers:
            (number,) = struct.unpack("<q", place.read_bytes())
            if number != seen[process.pid][0]:
                seen[process.pid] = number, time.monotonic()
            elif process.is_alive() and time.monotonic() - seen[process.pid][1] > STUCK_S:
                print(f"case {number} does not end", flush=True)
                process.kill()
    for process, place in workers:
        process.join()
        if process.exitcode:
            (number,) = struct.unpack("<q", place.read_bytes())
            print(f"case {number} ended its process: {process.exitcode}", flush=True)
            is_wrong = True
    return is_wrong


def report(answers: list[dict[str, Any]]) -> bool:
    """Print the results of all workers; return whether there were faults or growth."""
    statuses: Counter[str] = Counter()
    is_wrong = False
    for answer in answers:
        statuses += Counter(answer["statuses"])
        sizes = [Size(*size) for size in answer["sizes"]]
        fifth, most = sizes[len(sizes) // 5], max(size.loaded for size in sizes)
        print(
            f"memory: {fifth.settled >> 20} MiB after a fifth and {sizes[-1].settled >> 20} at the "
            f"end with nothing loaded, {most >> 20} at most"
        )
        grown = what_grew(sizes, LIMITS["loaded_vocabulary_bytes"])
        print(f"  it {grown}" if grown else "  no growth")
        is_wrong |= bool(grown or answer["found"])
    num_cases, uploads = statuses.total(), sum(answer["num_uploads"] for answer in answers)
    seconds = max((answer["seconds"] for answer in answers), default=0.0)
    print(f"{num_cases} cases, {uploads} of them uploads, in {seconds:.0f} s: {dict(statuses)}")
    print(f"{sum(len(answer['found']) for answer in answers)} faults")
    return is_wrong
