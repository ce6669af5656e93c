"""Times the service from text to ids in shared memory, of the host and of the device.

    python -m benchmarks.service.shared_regions --data FOLDER --out FILE.json --megabytes 1024

One service process runs beside this one. The text is English in rows of 64 KiB; a call names the
regions of the text, of the places where its rows begin (always in host memory), and of its ids. The
same run also times a copy of the text to the device, the kernels by themselves, and the engine from
device to device. Calls are timed alone, and with two clients at once, so that the service's other
work on one call overlaps with the kernels of the other call. The ids of all kinds of regions must
be equal, and those of the first megabytes equal to the CPU engine's; this is checked before the
timing and again after the simultaneous calls. Without a GPU only host regions are timed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.service.region_client import (
    OFFSETS,
    Client,
    Pair,
    cuda_pair,
    host_memory,
    infer,
    system_pair,
)
from benchmarks.support.corpora import make_corpus
from benchmarks.support.machine import device_facts, machine
from benchmarks.support.service_process import Running, service_process
from benchmarks.support.texts import Bytes, Int64s, Text, cut_rows
from benchmarks.support.timing import clocked, per_second, summary, take_turns
from service.engines.cpu.engine import CpuEngine
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

ROW_BYTES = 1 << 16
PROVED_BYTES = 16 << 20
KERNEL_BYTES = 1 << 28  # The kernels alone take what one workspace holds.
CALLERS, VOLLEY = 2, 4  # That call at once, and how many calls each makes then.


def proved(pair: Pair, num_bytes: int, dtype: str, rows: Text, vocabulary: str) -> Bytes:
    """Return the ids of a call, after comparing those of the first rows with the CPU engine's.

    Raises:
        SystemExit: they are not.
    """
    ids = pair.ids(num_bytes).view(dtype)
    check(ids, rows, vocabulary, pair.kind)
    return ids


def check(ids: NDArray[Any], rows: Text, vocabulary: str, who: str) -> None:
    """Exit if the ids of the first rows are not the CPU engine's."""
    count = int(np.searchsorted(rows.offsets, PROVED_BYTES))
    part = rows.offsets[: count + 1]
    batch = Batch(data=rows.data[: part[-1]], offsets=part)
    expected = CpuEngine().encode(load(vocabulary), batch).ids
    if not np.array_equal(ids[: len(expected)], expected):
        raise SystemExit(f"{who}: other ids than the CPU engine's")


def alone(rows: Text, vocabulary: str, rounds: int) -> dict[str, Any] | None:
    """Measure a copy and the engine on the device alone; None without a device."""
    from gpu.errors import DeviceUnavailable
    from gpu.runtime.cuda_device import CudaDevice

    try:
        device = CudaDevice()
    except DeviceUnavailable:
        return None
    from benchmarks.engine.gpu_calls import GpuWays

    ways, loaded = GpuWays(device, device.info.free_bytes // 2), load(vocabulary)
    pinned, part = ways.pinned(rows.data), _front(rows, KERNEL_BYTES)
    with (
        ways.copies(pinned) as copies,
        ways.kernels(loaded, *part) as kernels,
        ways.from_device(loaded, rows.data, rows.offsets) as engine,
    ):
        engine.run()
        check(engine.ids(), rows, vocabulary, "the engine alone")
        runs = {"host_to_device": copies["host_to_device"], "kernels": kernels.run}
        seconds = take_turns(runs | {"device_to_device": clocked(engine.run)}, rounds)
    ways.engine.close()
    sizes = {"kernels": len(part[0])}
    found = {name: timed(own, sizes.get(name, len(pinned))) for name, own in seconds.items()}
    return {**found, "kernels_bytes": sizes["kernels"], **device_facts(device.info)}


def timed(samples: list[float], num_bytes: int) -> dict[str, float]:
    """Summarize samples: seconds and their spread, and GB/s of text by the median."""
    return summary(samples) | {"gb_per_s": per_second(num_bytes, samples)}


def _front(rows: Text, num_bytes: int) -> tuple[Bytes, Int64s]:
    """Return the first rows, as many as fit a workspace."""
    count = int(np.searchsorted(rows.offsets, num_bytes, "right")) - 1
    part = rows.offsets[: count + 1]
    return rows.data[: part[-1]], part


def settings(rows: Text, has_device: bool) -> dict[str, object]:
    """Return the settings of the service: a call may have all bytes."""
    most = 8 * len(rows.data)
    limits = ("max_body_bytes", "max_queue_bytes", "max_batch_bytes", "max_text_bytes")
    named: dict[str, object] = {"shared_memory": "true", "max_texts": len(rows.offsets)}
    return named | dict.fromkeys(limits, most) | {"engine": "auto" if has_device else "cpu"}


def seconds_a_call(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], object]]) -> float:
    """Measure the seconds per call of several simultaneous calls; all write the same ids."""

    def volley(call: Callable[[], object]) -> None:
        for _ in range(VOLLEY):
            call()

    return clocked(lambda: list(pool.map(volley, calls)))() / (VOLLEY * len(calls))


def measure(
    running: Running, rows: Text, arguments: argparse.Namespace, has_device: bool
) -> list[Any]:
    """Time every kind of region with every width of ids, in turns."""
    found: list[dict[str, Any]] = []
    vocabulary = arguments.vocabulary
    dtypes = ("int32", "uint16") if len(load(vocabulary)) <= 1 << 16 else ("int32",)
    clients = [Client(running.port) for _ in range(CALLERS)]
    client = clients[0]
    with ThreadPoolExecutor(CALLERS) as pool, contextlib.ExitStack() as stack:
        maps = stack.enter_context(host_memory(client, {OFFSETS: rows.offsets.nbytes}))
        maps[OFFSETS][:] = rows.offsets.view(np.uint8)
        pairs = [stack.enter_context(system_pair(client, rows.data))]
        if has_device:
            pairs.append(stack.enter_context(cuda_pair(client, rows.data)))
        for dtype in dtypes:
            same: list[Bytes] = []
            for pair in pairs:
                pair.clear()
                num_bytes = infer(client, pair, vocabulary, rows, dtype)
                same.append(proved(pair, num_bytes, dtype, rows, vocabulary))
            if any(not np.array_equal(same[0], other) for other in same):
                raise SystemExit("regions of two kinds have other ids")
            alone, at_once = {}, {}
            for p in pairs:
                calls = [partial(infer, each, p, vocabulary, rows, dtype) for each in clients]
                alone[p.kind] = clocked(calls[0])
                at_once[p.kind] = partial(seconds_a_call, pool, calls)
            for callers, runs in ((1, alone), (CALLERS, at_once)):
                for kind, seconds in take_turns(runs, arguments.rounds).items():
                    row: dict[str, Any] = {"kind": kind, "dtype": dtype, "callers": callers}
                    row |= {"num_ids": len(same[0]), **timed(seconds, len(rows.data))}
                    found.append(row)
                    print(json.dumps(row))
            for pair in pairs:
                if not np.array_equal(pair.ids(same[0].nbytes).view(dtype), same[0]):
                    raise SystemExit(f"{pair.kind}: other ids where two clients call at once")
        fallbacks = {n: c for n, c in running.counters().items() if "fallbacks_total" in n[0]}
        found.append({"fallbacks": {"/".join(n[1]): c for n, c in fallbacks.items()}})
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of text/")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--vocabulary", default="gpt2")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    data = make_corpus("english", arguments.data, arguments.megabytes << 20).data
    rows = cut_rows("english", data, -(-len(data) // ROW_BYTES), ROW_BYTES)
    result: dict[str, Any] = {"machine": machine(["uvicorn"])}
    result["alone"] = alone(rows, arguments.vocabulary, arguments.rounds)
    has_device = result["alone"] is not None
    with tempfile.TemporaryDirectory() as folder:
        named = settings(rows, has_device) | {"preload": arguments.vocabulary}
        with service_process(Path(folder), named) as running:
            result["regions"] = measure(running, rows, arguments, has_device)
    print(json.dumps(result["alone"]))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
