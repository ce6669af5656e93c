"""Times several GPUs beside one, from text to ids in shared memory of host and devices.

    python -m benchmarks.service.several_gpus --data FOLDER --gpus 1 2 --out FILE.json

For each number of GPUs a service is started with WARPTOK_GPUS, and the services take turns. The
text is English in rows of 64 KiB; a call encodes all of it to uint16 ids of gpt2, and each caller
goes on calling for `--seconds` in a round. The first of several rounds does not count, as memory is
page-locked in it: the summary has it as `first`. *host*: memory
that is page-locked, CALLERS calls at once for each GPU, which the service divides among its GPUs.
*device*: the memory of every GPU, as many calls at once. *copies*: the limit of *host*, the same
bytes from page-locked memory to all devices at once. All ids are proved equal to the CPU engine's
before and after they are timed. For Arrow over HTTP run `benchmarks.service.frontends --kinds
arrow` with WARPTOK_GPUS=1 and with WARPTOK_GPUS=2.

Without a GPU, `--gpus 0` tries the host's regions on the CPU engine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.service.region_client import (
    OFFSETS,
    Client,
    Pair,
    cuda_pair,
    host_memory,
    infer,
    system_pair,
)
from benchmarks.service.shared_regions import ROW_BYTES, check, settings
from benchmarks.support.corpora import make_corpus
from benchmarks.support.machine import device_facts, machine
from benchmarks.support.service_process import service_process
from benchmarks.support.texts import Bytes, Text, cut_rows

VOCABULARY, DTYPE = "gpt2", "uint16"
CALLERS = 2  # At once for each GPU.
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Served:
    """A service, and the regions that its clients have registered.

    Attributes:
        num_gpus: the GPUs that it uses; 0: it computes on the CPU.
        clients: connections, one for each call at once.
        pairs: the regions by kind: "host", and "device" with a pair for each GPU.
    """

    num_gpus: int
    clients: list[Client]
    pairs: dict[str, list[Pair]]

    def prove(self, rows: Text) -> None:
        """Exit if the ids in any region are not the CPU engine's."""
        for pair in [pair for pairs in self.pairs.values() for pair in pairs]:
            pair.clear()
            num_bytes = infer(self.clients[0], pair, VOCABULARY, rows, DTYPE)
            check(pair.ids(num_bytes).view(DTYPE), rows, VOCABULARY, pair.kind)

    def rate(self, kind: str, rows: Text, seconds: float) -> float:
        """Measure GB/s of text while all clients call at once, for at least `seconds` seconds."""
        pairs = self.pairs[kind]
        begin = perf_counter()

        def call_often(number: int) -> int:
            pair = pairs[number % len(pairs)]
            num_calls = 0
            while not num_calls or perf_counter() - begin < seconds:
                infer(self.clients[number], pair, VOCABULARY, rows, DTYPE)
                num_calls += 1
            return num_calls

        with ThreadPoolExecutor(len(self.clients)) as pool:
            num_calls = sum(pool.map(call_often, range(len(self.clients))))
        return num_calls * len(rows.data) / (perf_counter() - begin) / GIGA


@contextlib.contextmanager
def serving(num_gpus: int, rows: Text) -> Iterator[Served]:
    """Start a service on `num_gpus` GPUs, and register regions of the host and of each GPU."""
    named = settings(rows, num_gpus > 0) | {"preload": VOCABULARY}
    if num_gpus:
        named |= {"gpus": num_gpus, "crossover_bytes": 0}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        running = stack.enter_context(service_process(Path(folder), named))
        clients = [Client(running.port) for _ in range(CALLERS * max(1, num_gpus))]
        offsets = host_memory(clients[0], {OFFSETS: rows.offsets.nbytes})
        stack.enter_context(offsets)[OFFSETS][:] = rows.offsets.view(np.uint8)
        pairs = {"host": [stack.enter_context(system_pair(clients[0], rows.data))]}
        devices = [
            stack.enter_context(cuda_pair(clients[0], rows.data, number, f"cuda{number}"))
            for number in range(num_gpus)
        ]
        if devices:
            pairs["device"] = devices
        yield Served(num_gpus, clients, pairs)


def copy_rate(data: Bytes, num_gpus: int, seconds: float) -> float:
    """Measure GB/s of copies from page-locked memory to all of these devices at once.

    Args:
        data: the bytes that are copied to each device.
        num_gpus: the number of devices.
        seconds: for at least how long it copies.
    """
    import cupy

    pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(len(data)), np.uint8, len(data))
    pinned[:] = data
    places, streams = [], []
    for number in range(num_gpus):
        with cupy.cuda.Device(number):
            places.append(cupy.empty(len(data), np.uint8))
            streams.append(cupy.cuda.Stream(non_blocking=True))
    begin, num_copies = perf_counter(), -1  # The first is a warm-up.
    while num_copies < 1 or perf_counter() - begin < seconds:
        if not num_copies:
            begin = perf_counter()
        for number, (place, stream) in enumerate(zip(places, streams, strict=True)):
            with cupy.cuda.Device(number):
                place.set(pinned, stream)
        for stream in streams:
            stream.synchronize()
        num_copies += 1
    return num_copies * num_gpus * len(data) / (perf_counter() - begin) / GIGA


def run(counts: list[int], rows: Text, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Verify the ids for each number of GPUs, and time the calls in turns."""
    found: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        services = [stack.enter_context(serving(count, rows)) for count in counts]
        for served in services:
            served.prove(rows)
        for number in range(rounds):
            for served in services:
                row: dict[str, Any] = {"gpus": served.num_gpus, "round": number}
                row |= {kind: served.rate(kind, rows, seconds) for kind in served.pairs}
                if served.num_gpus:
                    row["copies"] = copy_rate(rows.data, served.num_gpus, seconds)
                found.append(row)
                print(json.dumps(row), flush=True)
        for served in services:
            served.prove(rows)
    return found


def summary(rows: list[dict[str, Any]], counts: list[int]) -> dict[str, Any]:
    """Return the median GB/s of each kind and number of GPUs, and its ratio to the first number.

    The first of several rounds is reported apart.
    """
    found: dict[str, Any] = {}
    for kind in ("host", "device", "copies"):
        values = {
            n: [row[kind] for row in rows if row["gpus"] == n and kind in row] for n in counts
        }
        first = {n: {"first": own.pop(0)} for n, own in values.items() if len(own) > 1}
        for count, own in values.items():
            if own:
                pairs = zip(own, values[counts[0]], strict=False)
                ratios = [one / first for one, first in pairs]
                found[f"{kind} {count}"] = {
                    "gb_per_s": statistics.median(own),
                    "ratio": statistics.median(ratios) if ratios else None,
                } | first.get(count, {})
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of text/")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each kind in a round")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    data = make_corpus("english", arguments.data, arguments.megabytes << 20).data
    rows = cut_rows("english", data, -(-len(data) // ROW_BYTES), ROW_BYTES)
    found = run(arguments.gpus, rows, arguments.rounds, arguments.seconds)
    about = machine(["uvicorn"])
    if any(arguments.gpus):
        from gpu.runtime.cuda_device import CudaDevice

        about |= device_facts(CudaDevice().info)
    result = {"machine": about, "text_bytes": len(data), "rounds": found}
    result["summary"] = summary(found, arguments.gpus)
    print(json.dumps(result["summary"], indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
