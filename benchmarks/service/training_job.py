"""Times small requests with and without a training job beside them, in turn, on all cores.

    python -m benchmarks.service.training_job              # about two minutes, loopback only

The service, its training process and the client share the machine. One job merges, a million tokens
from random DNA; it is halted for one window of a second, goes on in the next, and so on, so that
whatever else the machine does falls on both. The ids of the first answers are compared with those
of Hugging Face tokenizers (`service.http`) before anything is timed. What the figures do not
show: many cores, where a job has one of them for itself.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvloop
from tokenizers import Tokenizer

from benchmarks.service.http import cpu_seconds, free_port, make_texts, prove_ids, server, summary
from benchmarks.support.closed_loop import measure, post
from benchmarks.support.machine import machine
from vocabularies import builtin
from vocabularies.formats.huggingface.writer import tokenizer_json

LETTERS = np.frombuffer(b"ACGT", np.uint8)
LINE = 200
PROVED = 200
WARMUP_S, WINDOW_S = 0.2, 1.0


def make_corpus(num_bases: int) -> bytes:
    """Make random DNA, a sequence on each line."""
    rows = LETTERS[np.random.default_rng(7).integers(0, 4, (num_bases // LINE, LINE + 1))]
    rows[:, LINE] = ord("\n")
    return rows.tobytes()


def start_job(client: httpx.Client, corpus: bytes) -> str:
    """Start a job; return its id when it has begun to merge."""
    data = {"vocabulary": "measured", "vocabulary_size": "1000000"}
    answer = client.post("/v1/training-jobs", files={"corpus": corpus}, data=data)
    job = str(answer.raise_for_status().json()["id"])
    while client.get(f"/v1/training-jobs/{job}").json()["progress"] == 0:
        time.sleep(0.1)
    return job


def window(port: int, pid: int, requests: list[bytes], connections: int) -> dict[str, float]:
    """Measure requests during one span of time."""
    before = cpu_seconds(pid)
    load = uvloop.run(measure(port, requests, connections, WARMUP_S, WINDOW_S))
    return summary(load, cpu_seconds(pid) - before)


def rounds_beside(
    client: httpx.Client, port: int, pid: int, requests: list[bytes], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Measure pairs of spans, the job halted in the first and running in the second."""
    job = start_job(client, make_corpus(args.bases))
    (worker,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for connections in args.connections:
        for number in range(args.rounds):
            row: dict[str, Any] = {"connections": connections, "round": number}
            os.kill(int(worker), signal.SIGSTOP)
            row["alone"] = window(port, pid, requests, connections)
            os.kill(int(worker), signal.SIGCONT)
            used = cpu_seconds(int(worker))
            row["beside"] = window(port, pid, requests, connections)
            row["job_cores"] = (cpu_seconds(int(worker)) - used) / (WARMUP_S + WINDOW_S)
            row["load_average"] = os.getloadavg()[0]
            yield row
    state = client.get(f"/v1/training-jobs/{job}").json()["state"]
    assert state == "running", f"the job was {state} while it was measured: give it more --bases"
    client.delete(f"/v1/training-jobs/{job}").raise_for_status()


def run(args: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    """Run all rounds."""
    path = directory / "tokenizer.json"
    path.write_text(tokenizer_json(builtin.load("gpt2")))
    texts, port = make_texts(), free_port()
    bodies = [json.dumps({"vocabulary": "gpt2", "text": text}).encode() for text in texts]
    requests = [post("/v1/encode", body, port) for body in bodies]
    command = [sys.executable, "-m", "service", "serve", "--port", str(port), "--engine", "cpu"]
    settings = {"WARPTOK_PRELOAD": "gpt2", "WARPTOK_GRPC": "false"}
    rounds = []
    cores = os.sched_getaffinity(0)
    with (
        server(command, port, settings, min(cores)) as pid,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)
        prove_ids(port, texts[:PROVED], Tokenizer.from_file(str(path)), None)
        for row in rounds_beside(client, port, pid, requests, args):
            rounds.append(row)
            print(line(row), flush=True)
    return rounds


def line(row: dict[str, Any]) -> str:
    """Format a round."""
    parts = [f"{row['connections']:3d} connections"]
    for name in ("alone", "beside"):
        got = row[name]
        parts.append(
            f"{name} {got['requests_per_s']:7,.0f}/s {got['cpu_us_per_request']:5.1f} us CPU "
            f"p50 {got['p50_ms']:6.3f} p99 {got['p99_ms']:7.3f} max {got['max_ms']:6.1f} ms"
        )
    return " | ".join([*parts, f"job {row['job_cores']:.2f} cores"])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--bases", type=int, default=20_000_000)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "results/service/training_job.json"
    )
    args = parser.parse_args()
    about = machine(("uvicorn", "uvloop", "numpy", "fastokens"))
    with tempfile.TemporaryDirectory() as directory:
        rounds = run(args, Path(directory))
    for connections in args.connections:
        rows = [row for row in rounds if row["connections"] == connections]
        for figure in ("p50_ms", "p99_ms", "requests_per_s", "cpu_us_per_request"):
            alone, beside = (
                statistics.median(row[name][figure] for row in rows) for name in ("alone", "beside")
            )
            ratio = statistics.median(row["beside"][figure] / row["alone"][figure] for row in rows)
            print(
                f"{connections} connections, {figure}: median {alone:.3f} alone, {beside:.3f} "
                f"beside, of the ratios {ratio:.2f}"
            )
    args.out.parent.mkdir(exist_ok=True)
    command = "python -m benchmarks.service.training_job " + " ".join(sys.argv[1:])
    document = {"command": command.strip(), "machine": about, "rounds": rounds}
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
