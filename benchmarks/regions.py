"""Text in shared memory to ids in shared memory, the host's and the device's, through the service.

    python -m benchmarks.regions --data FOLDER --out FILE.json --megabytes 1024

One service process beside this one. The text is English in rows of 64 KiB; a call names where it
lies, where its rows begin, which is in a region of the host, and where its ids are wanted. Beside
them, in the same run: a copy of the text to the device, the kernels by themselves, and the engine
from device to device. All kinds' ids are proved equal, and those of the first megabytes to the CPU
engine's, before they are timed. Without a GPU only the host's regions are tried.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import tempfile
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpora import make_corpus
from benchmarks.machine import device_facts, machine
from benchmarks.service_process import Running, service_process
from benchmarks.texts import Bytes, Int64s, Text, cut_rows
from benchmarks.timing import clocked, per_second, summary, take_turns
from service.cpu_engine import CpuEngine
from vocabularies.batch import Batch
from vocabularies.builtin import load

ROW_BYTES = 1 << 16
PROVED_BYTES = 16 << 20
KERNEL_BYTES = 1 << 28  # The kernels alone take what one workspace holds.
SHM = Path("/dev/shm")
OFFSETS = "offsets"
TIMEOUT_S = 600


class Client:
    """One connection: the standard library's, which costs a tenth of what httpx does."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def post(self, path: str, document: object) -> Any:
        """The answer's JSON.

        Raises:
            SystemExit: it is a refusal.
        """
        self.connection.request("POST", path, json.dumps(document))
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != HTTPStatus.OK:
            raise SystemExit(f"{path}: {answer.status}: {body[:500].decode()}")
        return json.loads(body)

    def register(self, kind: str, name: str, size: int, place: dict[str, Any]) -> None:
        """Tell the service of a region."""
        self.post(f"/v2/{kind}sharedmemory/region/{name}/register", place | {"byte_size": size})


@dataclass(frozen=True, slots=True)
class Pair:
    """Two registered regions of one kind.

    Attributes:
        kind: "system" or "cuda".
        ids: gives uint8[...], the front of the memory for ids.
        clear: fills it with ones.
    """

    kind: str
    ids: Callable[[int], Bytes]
    clear: Callable[[], object]


@contextlib.contextmanager
def host_memory(client: Client, sizes: dict[str, int]) -> Iterator[dict[str, Bytes]]:
    """Regions of the host by name, and their memory."""
    key = f"warptok-regions-{uuid.uuid4().hex}"
    paths = {name: SHM / f"{key}-{name}" for name in sizes}
    try:
        maps: dict[str, Bytes] = {
            name: np.memmap(paths[name], np.uint8, "w+", shape=sizes[name]) for name in sizes
        }
        for name, size in sizes.items():
            client.register("system", name, size, {"key": paths[name].name})
        yield maps
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def system_pair(client: Client, text: Bytes) -> Iterator[Pair]:
    """Regions of the host."""
    sizes = {"system-text": len(text), "system-ids": 4 * len(text)}
    with host_memory(client, sizes) as maps:
        maps["system-text"][:] = text
        ids = maps["system-ids"]
        yield Pair("system", lambda size: ids[:size], lambda: ids.fill(0xFF))


@contextlib.contextmanager
def cuda_pair(client: Client, text: Bytes) -> Iterator[Pair]:
    """Regions of the device."""
    import cupy

    runtime = cupy.cuda.runtime
    sizes = {"text": len(text), "ids": 4 * len(text)}
    places = {name: runtime.malloc(size) for name, size in sizes.items()}

    def ids(size: int) -> Bytes:
        out = np.empty(size, np.uint8)
        runtime.memcpy(out.ctypes.data, places["ids"], size, runtime.memcpyDeviceToHost)
        return out

    def clear() -> None:
        runtime.memset(places["ids"], 0xFF, sizes["ids"])
        runtime.deviceSynchronize()

    def handle(name: str) -> dict[str, Any]:
        raw = b64encode(runtime.ipcGetMemHandle(places[name])).decode()
        return {"raw_handle": {"b64": raw}, "device_id": 0}

    try:
        source = np.ascontiguousarray(text)
        runtime.memcpy(places["text"], source.ctypes.data, len(text), runtime.memcpyHostToDevice)
        for name, size in sizes.items():
            client.register("cuda", f"cuda-{name}", size, handle(name))
        yield Pair("cuda", ids, clear)
    finally:
        client.post("/v2/cudasharedmemory/unregister", {})
        for place in places.values():
            runtime.free(place)


def infer(client: Client, pair: Pair, vocabulary: str, rows: Text, dtype: str) -> int:
    """Bytes of ids of one call."""
    size, count, kind = len(rows.data), len(rows.offsets), pair.kind
    text = {"name": "text", "datatype": "UINT8", "shape": [size]}
    begins = {"name": "offsets", "datatype": "INT64", "shape": [count]}
    inputs = [
        text | {"parameters": place(f"{kind}-text", size)},
        begins | {"parameters": place(OFFSETS, rows.offsets.nbytes)},
    ]
    outputs = [{"name": "input_ids", "parameters": place(f"{kind}-ids", 4 * size)}]
    body = {"inputs": inputs, "outputs": outputs, "parameters": {"dtype": dtype}}
    answer = client.post(f"/v2/models/{vocabulary}/infer", body)
    return int(answer["outputs"][0]["parameters"]["shared_memory_byte_size"])


def place(region: str, size: int) -> dict[str, Any]:
    """The front of a region, as a tensor's parameters say it."""
    return {"shared_memory_region": region, "shared_memory_byte_size": size}


def proved(pair: Pair, num_bytes: int, dtype: str, rows: Text, vocabulary: str) -> Bytes:
    """The ids of a call; those of the first rows are the CPU engine's.

    Raises:
        SystemExit: they are not.
    """
    ids = pair.ids(num_bytes).view(dtype)
    check(ids, rows, vocabulary, pair.kind)
    return ids


def check(ids: NDArray[Any], rows: Text, vocabulary: str, who: str) -> None:
    """Raises SystemExit where the ids of the first rows are not the CPU engine's."""
    count = int(np.searchsorted(rows.offsets, PROVED_BYTES))
    part = rows.offsets[: count + 1]
    batch = Batch(data=rows.data[: part[-1]], offsets=part)
    wanted = CpuEngine().encode(load(vocabulary), batch).ids
    if not np.array_equal(ids[: len(wanted)], wanted):
        raise SystemExit(f"{who}: other ids than the CPU engine's")


def alone(rows: Text, vocabulary: str, rounds: int) -> dict[str, Any] | None:
    """The device before the service is there: a copy, and the engine; None without a device."""
    from gpu.device import CudaDevice, DeviceUnavailable

    try:
        device = CudaDevice()
    except DeviceUnavailable:
        return None
    from benchmarks.gpu_ways import GpuWays

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
    """Seconds and their spread, and GB/s of text by the median."""
    return summary(samples) | {"gb_per_s": per_second(num_bytes, samples)}


def _front(rows: Text, num_bytes: int) -> tuple[Bytes, Int64s]:
    """The first rows: a batch in one workspace."""
    count = int(np.searchsorted(rows.offsets, num_bytes, "right")) - 1
    part = rows.offsets[: count + 1]
    return rows.data[: part[-1]], part


def settings(rows: Text, has_device: bool) -> dict[str, object]:
    """Of the service: as many bytes in a call as there are."""
    most = 8 * len(rows.data)
    limits = ("max_body_bytes", "max_queue_bytes", "max_batch_bytes", "max_text_bytes")
    named: dict[str, object] = {"shared_memory": "true", "max_texts": len(rows.offsets)}
    return named | dict.fromkeys(limits, most) | {"engine": "auto" if has_device else "cpu"}


def measure(running: Running, rows: Text, asked: argparse.Namespace, has_device: bool) -> list[Any]:
    """Every kind of region with every width of ids, in turns."""
    found: list[dict[str, Any]] = []
    vocabulary = asked.vocabulary
    dtypes = ("int32", "uint16") if len(load(vocabulary)) <= 1 << 16 else ("int32",)
    client = Client(running.port)
    with contextlib.ExitStack() as stack:
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
            runs = {
                p.kind: clocked(partial(infer, client, p, vocabulary, rows, dtype)) for p in pairs
            }
            for kind, seconds in take_turns(runs, asked.rounds).items():
                row = {"kind": kind, "dtype": dtype, "num_ids": len(same[0])}
                found.append(row | timed(seconds, len(rows.data)))
                print(json.dumps(found[-1]))
        fallbacks = {n: c for n, c in running.counters().items() if "fallbacks_total" in n[0]}
        found.append({"fallbacks": {"/".join(n[1]): c for n, c in fallbacks.items()}})
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of text/")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--vocabulary", default="gpt2")
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    data = make_corpus("english", asked.data, asked.megabytes << 20).data
    rows = cut_rows("english", data, -(-len(data) // ROW_BYTES), ROW_BYTES)
    result: dict[str, Any] = {"machine": machine(["cupy-cuda13x", "uvicorn"])}
    result["alone"] = alone(rows, asked.vocabulary, asked.rounds)
    has_device = result["alone"] is not None
    with tempfile.TemporaryDirectory() as folder:
        named = settings(rows, has_device) | {"preload": asked.vocabulary}
        with service_process(Path(folder), named) as running:
            result["regions"] = measure(running, rows, asked, has_device)
    print(json.dumps(result["alone"]))
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
