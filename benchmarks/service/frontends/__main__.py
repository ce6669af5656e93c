"""Several front ends beside one: small requests and Arrow streams, each process on its own core.

    python -m benchmarks.service.frontends --data FOLDER    # 1 and 8, on 16 cores; 80 s
    python -m benchmarks.service.frontends --data FOLDER --kinds arrow    # bulk only
    python -m benchmarks.service.frontends --counts 1 2 --rounds 1 --seconds 1 --megabytes 4
    WARPTOK_GPUS=2 python -m benchmarks.service.frontends --data FOLDER --counts 12 --kinds arrow

A service with N front ends gets N cores and one for each process of the engine: the engine process
and, with several GPUs, a worker for each of them. The clients, one process a core, get the cores
that the largest service leaves. So 8 front ends need 16 cores. With too few cores, services and
clients share them, and the figures mean little. The services take turns (A B A B).

*small*: the requests of `service.http`, keys and limits on, 64 connections a front end. *Arrow*:
English of the folder's `text`, in rows of 64 KiB and record batches of 4 MiB, ids of gpt2 as
uint16, `--streams` at once for each front end; GB are 10**9 bytes of text; without a folder the
text is made of a few words. The first `--warmup` rounds do not count, as memory is allocated and
page-locked in them; the summary has the very first as `first`. After each round, as many processes
as front ends answer the same streams from memory (`replay.py`): what sockets and clients can do.
All ids are compared with Hugging Face tokenizers before anything is timed.
`engine`, `fronts` and `clients` are the cores that these processes kept busy, which shows the
bottleneck; `gpu_share` is the part of the text that the GPU encoded, by the service's own metrics.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import urllib.request
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer

from benchmarks.service.bulk_apis.clients import exchange
from benchmarks.service.frontends.clients import (
    START_S,
    Clients,
    ids_digest,
    small_requests,
    streams,
)
from benchmarks.service.frontends.streams import Stream, make_stream
from benchmarks.service.http import call, cpu_seconds, free_port, make_texts, prove_ids, server
from benchmarks.support.machine import machine
from service.core.settings import Settings
from service.engines.hybrid.opening import choose_gpus, list_visible_gpus
from service.security.api_keys import add_key
from vocabularies import builtin
from vocabularies.formats.huggingface.writer import tokenizer_json

PACKAGES = ("uvicorn", "uvloop", "httptools", "pyarrow", "numpy", "fastokens")
KINDS = {"small": "requests_per_s", "arrow": "gb_per_s"}
CONNECTIONS = 64  # For each front end.
WARMUP_S = 1.0
SPARE_BYTES = 1 << 20  # Answers differ in how they are cut into chunks.


@dataclass(frozen=True, slots=True)
class Served:
    """A running service, the number of its front ends, and the file of a stream that is sent."""

    count: int
    port: int
    pid: int
    key: str
    sent: Path


def process_seconds(pid: int) -> dict[str, float]:
    """Read the processor time of a supervisor's engine process and of all its front ends."""
    seconds: dict[str, float] = defaultdict(float)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        arguments = Path(f"/proc/{child}/cmdline").read_bytes().rstrip(b"\0").rpartition(b"\0")[2]
        is_engine = json.loads(arguments)["name"] == "engine"
        seconds["engine" if is_engine else "fronts"] += cpu_seconds(int(child))
    return seconds


def count_engine_processes(engine: str) -> int:
    """Count the processes of a service that encode: one, and a worker for each of several GPUs."""
    visible = 0 if engine == "cpu" else len(list_visible_gpus())
    num_gpus = len(choose_gpus(Settings().gpus, visible))
    return 1 if num_gpus < 2 else 1 + num_gpus


def start(
    stack: ExitStack, count: int, cores: set[int], engine: str, stream: Stream, folder: Path
) -> Served:
    """Start a service on these cores, and write the request of a stream for it."""
    keys, port = folder / f"keys{count}.json", free_port()
    key = add_key(keys, "benchmark", ("encode",))
    settings = {"PRELOAD": "gpt2", "GRPC": "false", "API_KEYS_FILE": str(keys), "ENGINE": engine}
    settings |= {"FRONTENDS": str(count), "LOG_LEVEL": "warning"}
    environment = {f"WARPTOK_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "service", "serve", "--port", str(port)]
    pid = stack.enter_context(server(command, port, environment, *cores))
    sent = folder / f"stream{count}"
    sent.write_bytes(stream.request(key))
    return Served(count, port, pid, key, sent)


def prove(
    served: Served, stream: Stream, tokenizer: Tokenizer, answer_bytes: int
) -> NDArray[np.uint8]:
    """Check that all ids of both loads are tokenizers'; return the answer to a stream.

    Raises:
        SystemExit: they are not.
    """
    prove_ids(served.port, make_texts(), tokenizer, served.key, every=10)
    answer = exchange(served.port, (stream.request(served.key),), np.zeros(answer_bytes, np.uint8))
    if ids_digest(answer) != stream.digest:
        raise SystemExit(f"{served.count} front ends: differing ids of the Arrow stream")
    print(f"{served.count} front ends: ids equal", flush=True)
    return answer


def start_replay(
    stack: ExitStack, served: Served, cores: set[int], answer: NDArray[np.uint8]
) -> int:
    """Start a process for each front end that answers streams from memory; return their port."""
    port, kept = free_port(), served.sent.with_suffix(".answer")
    kept.write_bytes(answer.tobytes())
    module = "benchmarks.service.frontends.replay"
    command = [sys.executable, "-m", module, str(port), str(served.sent), str(kept)]
    for _ in range(served.count):
        stack.enter_context(server(command, port, {}, *cores, path="/"))
    return port


def get(served: Served, path: str) -> str:
    """Return the body of a GET."""
    headers = {"Authorization": f"Bearer {served.key}"}
    request = urllib.request.Request(f"http://127.0.0.1:{served.port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def encoded_bytes(served: Served) -> Counter[str]:
    """Read the bytes of text that each engine has encoded."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(get(served, "/metrics")):
        for sample in family.samples:
            if sample.name == "warptok_bytes_total" and sample.labels["operation"] == "encode":
                found[sample.labels["engine"]] += int(sample.value)
    return found


def timed(
    served: Served, clients: Clients, work: Any, total: int
) -> tuple[list[Any], dict[str, float]]:
    """Run the clients; return their results, and how many cores each kind of process kept busy."""
    before, begin = process_seconds(served.pid), perf_counter()
    before["clients"] = sum(map(cpu_seconds, clients.pids))
    answers = clients.run(work, total)
    after, seconds = process_seconds(served.pid), perf_counter() - begin - START_S
    after["clients"] = sum(map(cpu_seconds, clients.pids))
    return answers, {name: round((after[name] - before[name]) / seconds, 2) for name in after}


def small_row(served: Served, clients: Clients, seconds: float) -> dict[str, Any]:
    """Measure requests per second and latencies."""
    requests = [call([text], served.port, served.key) for text in make_texts()]
    work = partial(small_requests, served.port, requests, WARMUP_S, seconds)
    loads, busy = timed(served, clients, work, CONNECTIONS * served.count)
    if failures := sum(load.failures for load in loads):
        raise SystemExit(f"{failures} requests failed")
    ordered = sorted(latency for load in loads for latency in load.latencies)
    rate = sum(len(load.latencies) / load.seconds for load in loads)
    quantiles = {"p50_ms": 0.5, "p99_ms": 0.99}
    row = {name: 1000 * ordered[int(len(ordered) * part)] for name, part in quantiles.items()}
    return {"requests_per_s": rate} | row | busy


def arrow_row(
    served: Served,
    clients: Clients,
    replay: int,
    stream: Stream,
    answer_bytes: int,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Measure GB/s of text of simultaneous streams, and of their replay by the port `replay`."""

    def work(port: int) -> Any:
        return partial(streams, port, served.sent, answer_bytes, stream.digest, args.seconds)

    total, giga = args.streams * served.count, stream.num_bytes / args.seconds / 1e9
    before = encoded_bytes(served)
    answers, busy = timed(served, clients, work(served.port), total)
    encoded = encoded_bytes(served) - before
    limit = giga * sum(clients.run(work(replay), total))
    row = {"gb_per_s": giga * sum(answers), "limit_gb_per_s": limit}
    return row | {"gpu_share": round(encoded["gpu"] / encoded.total(), 3)} | busy


def run(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start the services, compare their ids with tokenizers' and time them in turn."""
    path = folder / "tokenizer.json"
    path.write_text(tokenizer_json(builtin.load("gpt2")))
    tokenizer = Tokenizer.from_file(str(path))
    stream = make_stream(args.data, args.megabytes, tokenizer)
    answer_bytes = 2 * stream.num_bytes + (1 << 20)  # An id of two bytes for each of text at most.
    cores, num_engines = sorted(os.sched_getaffinity(0)), count_engine_processes(args.engine)
    client_cores = cores[max(args.counts) + num_engines :] or cores
    rows: list[dict[str, Any]] = []
    crossovers: dict[int, int | None] = {}
    sizes: list[int] = []
    with ExitStack() as stack:
        services = []
        replays = []
        for count in args.counts:
            own = {*cores[: count + num_engines]}
            served = start(stack, count, own, args.engine, stream, folder)
            answer = prove(served, stream, tokenizer, answer_bytes)
            services.append(served)
            replays.append(start_replay(stack, served, own, answer) if "arrow" in args.kinds else 0)
            sizes.append(len(answer))
            info = json.loads(get(served, "/v1/info"))
            crossovers[count] = info["crossover_bytes"]
            print(f"  engines {info['engines']}, crossover {info['crossover_bytes']}", flush=True)
        most_bytes = max(sizes) + SPARE_BYTES
        clients = stack.enter_context(Clients(client_cores))
        for number in range(args.rounds):
            for served, replay in zip(services, replays, strict=True):
                row: dict[str, Any] = {"frontends": served.count, "round": number}
                if "small" in args.kinds:
                    row["small"] = small_row(served, clients, args.seconds)
                if "arrow" in args.kinds:
                    row["arrow"] = arrow_row(served, clients, replay, stream, most_bytes, args)
                rows.append(row)
                print(line(row), flush=True)
    about = {"engine_processes": num_engines, "client_processes": len(client_cores)}
    about |= {"stream_bytes": stream.num_bytes, "streams_at_once": args.streams}
    return about | {"crossover_bytes": crossovers, "rows": rows}


def line(row: dict[str, Any]) -> str:
    """Format a round of one service."""
    parts = [f"{row['frontends']} front ends"]
    if small := row.get("small"):
        latencies = f"p50 {small['p50_ms']:5.1f} p99 {small['p99_ms']:5.1f} ms"
        parts.append(f"{small['requests_per_s']:9,.0f}/s, {latencies}, {_cores(small)}")
    if arrow := row.get("arrow"):
        share = f"{arrow['gpu_share']:.0%} by the GPU"
        limit = f"from memory {arrow['limit_gb_per_s']:6.3f}"
        parts.append(f"Arrow {arrow['gb_per_s']:6.3f} GB/s, {limit}, {share}, {_cores(arrow)}")
    return " | ".join(parts)


def _cores(row: dict[str, Any]) -> str:
    busy = (f"{name} {row[name]:.2f}" for name in ("fronts", "engine", "clients"))
    return "cores: " + " ".join(busy)


def summary(rows: list[dict[str, Any]], counts: list[int], num_warmup: int = 1) -> dict[str, Any]:
    """Return the median, over the rounds, of each count's rate divided by the first count's.

    The first rounds of Arrow are left out, because memory is allocated and page-locked in them; the
    first one is reported apart. At least one round counts.
    """
    found: dict[str, Any] = {}
    for kind, field in KINDS.items():
        if kind not in rows[0]:
            continue
        values = {n: [row[kind][field] for row in rows if row["frontends"] == n] for n in counts}
        num_cold = min(num_warmup, len(values[counts[0]]) - 1) if kind == "arrow" else 0
        first = {n: {"first": each[0]} for n, each in values.items() if num_cold}
        values = {n: each[num_cold:] for n, each in values.items()}
        for count in counts:
            pairs = zip(values[count], values[counts[0]], strict=True)
            ratios = [one / first for one, first in pairs]
            found[f"{kind} {count}"] = {
                field: statistics.median(values[count]),
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
            } | first.get(count, {})
            if kind == "arrow":
                limits = [row[kind]["limit_gb_per_s"] for row in rows if row["frontends"] == count]
                found[f"{kind} {count}"]["limit_gb_per_s"] = statistics.median(limits)
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder with text/, as benchmarks.engine's")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 8], help="of front ends")
    parser.add_argument("--engine", default="auto", choices=("auto", "cpu", "gpu"))
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=KINDS, help="of load")
    parser.add_argument("--streams", type=int, default=4, help="at once for each front end")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1, help="rounds of Arrow that do not count")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--megabytes", type=int, default=32, help="MiB of text in a stream")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[2] / "results/service/frontends.json"
    )
    args = parser.parse_args()
    about = machine(PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        results = run(args, Path(folder))
    results["summary"] = summary(results["rows"], args.counts, args.warmup)
    for name, row in results["summary"].items():
        spread = f"({row['least']:.2f} to {row['most']:.2f})"
        print(f"{name}: {next(iter(row.values())):,.3f}, x {row['ratio']:.2f} {spread}")
    places = {str(args.data): "FOLDER", str(args.out): "FILE.json"}
    given = [places.get(word, word) for word in sys.argv[1:]]
    command = " ".join(["python -m benchmarks.service.frontends", *given])
    args.out.write_text(
        json.dumps({"command": command, "machine": about} | results, indent=1) + "\n"
    )
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
