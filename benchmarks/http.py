"""Small requests over HTTP, ours beside the plain server, on one core each, in one run.

    python -m benchmarks.http                  # about two minutes, loopback only
    python -m benchmarks.http --seconds 2 --rounds 1 --connections 64

What the figures do not show: a network, a proxy, TLS, many front ends, long texts. The client is
one process on another core; above about 60,000 requests/s it is the limit. Both servers answer
200-character English texts with the vocabulary gpt2; before anything is timed, every text's ids
from both servers are compared with Hugging Face tokenizers. The servers take turns (A B A B), so
that a drift of the machine falls on both; the ratio is taken within each round.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import uvloop
from tokenizers import Tokenizer

from benchmarks.load_client import Load, measure, post
from benchmarks.machine import machine
from vocabularies import builtin
from vocabularies.formats import tokenizer_json

TEXT_CHARACTERS = 200
NUM_TEXTS = 2_000
PACKAGES = ("fastapi", "uvicorn", "uvloop", "httptools", "pydantic", "tokenizers", "fastokens")
WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from "
    "or had an they which one you were all her she there would their we him been has when who will "
    "no more if out so up said what its about than into them can only other time new some could "
    "these tokenization throughput Müller café 3.14 2024 e.g. don't it's we'll HTTP/1.1 naïve"
).split()


def make_texts() -> list[str]:
    """Different English-like texts of 200 characters, the same on every machine."""
    texts, state = [], 1
    for _ in range(NUM_TEXTS):
        text = ""
        while len(text) < TEXT_CHARACTERS:
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            text += WORDS[(state >> 33) % len(WORDS)] + (". " if state >> 60 == 0 else " ")
        texts.append(text[:TEXT_CHARACTERS])
    return texts


def free_port() -> int:
    """A loopback port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(command: list[str], port: int, environment: dict[str, str], core: int) -> Iterator[int]:
    """A server process on one core, ready when the block begins; gives its process id."""
    process = subprocess.Popen(
        command,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    try:
        for _ in range(600):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            if process.poll() is not None:
                raise SystemExit(f"{command} ended with {process.returncode}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def prove_ids(port: int, texts: list[str], tokenizer: Tokenizer) -> None:
    """Every text's ids over HTTP are those of Hugging Face tokenizers, or nothing is timed."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for text in texts:
            answer = client.post("/v1/encode", json={"vocabulary": "gpt2", "text": text})
            if answer.json()["ids"] != tokenizer.encode(text).ids:
                raise SystemExit(f"differing ids for {text!r}: {answer.text}")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far; unlike a rate, it hardly feels a busy machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summary(load: Load, cpu_s: float) -> dict[str, float]:
    """Requests per second, CPU time and latencies of one run."""
    if load.failures:
        raise SystemExit(f"{load.failures} requests failed")
    ordered = sorted(load.latencies)
    return {
        "requests_per_s": len(ordered) / load.seconds,
        "cpu_us_per_request": 1e6 * cpu_s / load.num_answers,
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[int(len(ordered) * 0.99)],
        "max_ms": 1000 * ordered[-1],
    }


def run(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Start both servers, prove their ids, and measure them in turn."""
    tokenizer_path = directory / "tokenizer.json"
    tokenizer_path.write_text(tokenizer_json(builtin.load("gpt2")))
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    texts = make_texts()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    plain_port, our_port = free_port(), free_port()
    uvicorn = [sys.executable, "-m", "uvicorn", "benchmarks.plain_server:app", "--no-access-log"]
    uvicorn += ["--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]
    plain = server(
        [*uvicorn, "--port", str(plain_port)],
        plain_port,
        {"PLAIN_TOKENIZER_JSON": str(tokenizer_path), "TOKENIZERS_PARALLELISM": "false"},
        cores[0],
    )
    ours = server(
        [sys.executable, "-m", "service", "serve", "--port", str(our_port)],
        our_port,
        {"WARPTOK_PRELOAD": "gpt2"},
        cores[0],
    )
    rounds: list[dict[str, Any]] = []
    with plain as plain_pid, ours as our_pid:
        servers = {"plain": (plain_port, plain_pid), "warptok": (our_port, our_pid)}
        for port, _ in servers.values():
            prove_ids(port, texts, tokenizer)
        bodies = [json.dumps({"vocabulary": "gpt2", "text": text}).encode() for text in texts]
        for connections in args.connections:
            for number in range(args.rounds):
                row: dict[str, Any] = {"connections": connections, "round": number}
                for name, (port, pid) in servers.items():
                    requests = [post("/v1/encode", body, port) for body in bodies]
                    before = cpu_seconds(pid)
                    load = uvloop.run(
                        measure(port, requests, connections, args.warmup, args.seconds)
                    )
                    row[name] = summary(load, cpu_seconds(pid) - before)
                row["ratio"] = row["warptok"]["requests_per_s"] / row["plain"]["requests_per_s"]
                rounds.append(row)
                print(line(row), flush=True)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return {"rounds": rounds, "corpus_sha256": digest, "num_texts": len(texts)}


def line(row: dict[str, Any]) -> str:
    """One round as a person reads it."""
    ours, plain = row["warptok"], row["plain"]
    return (
        f"{row['connections']:4d} connections: "
        f"warptok {ours['requests_per_s']:8,.0f}/s {ours['cpu_us_per_request']:6.1f} us CPU, "
        f"p99 {ours['p99_ms']:6.2f} ms | "
        f"plain {plain['requests_per_s']:7,.0f}/s {plain['cpu_us_per_request']:6.1f} us CPU, "
        f"p99 {plain['p99_ms']:7.2f} ms | x {row['ratio']:.1f}"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warmup", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/http.json")
    args = parser.parse_args()
    about = machine(PACKAGES)
    with tempfile.TemporaryDirectory() as directory:
        results = run(args, Path(directory))
    for connections in args.connections:
        ratios = [r["ratio"] for r in results["rounds"] if r["connections"] == connections]
        print(
            f"{connections} connections: median ratio {statistics.median(ratios):.1f} "
            f"({min(ratios):.1f} to {max(ratios):.1f})"
        )
    args.out.parent.mkdir(exist_ok=True)
    command = "python -m benchmarks.http " + " ".join(sys.argv[1:])
    document = {"command": command.strip(), "machine": about} | results
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
