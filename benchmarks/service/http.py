"""Small requests over HTTP, ours beside the plain server, on one core each, in one run.

    python -m benchmarks.service.http                  # about two minutes, loopback only
    python -m benchmarks.service.http --seconds 2 --rounds 1 --connections 64
    python -m benchmarks.service.http --texts 1 32 --frontends 2

What the figures do not show: a network, a proxy, TLS, long texts. The client is one process on
another core; above about 60,000 requests/s it is the limit. Both servers answer 200-character
English texts with the vocabulary gpt2, ours with keys and limits on; before anything is timed,
every text's ids from both servers are compared with Hugging Face tokenizers. The servers take turns
(A B A B), so that a drift of the machine falls on both; ratios are taken within each round. With
`--frontends` all processes of ours share the one core; their CPU time is added up.
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
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import uvloop
from tokenizers import Tokenizer

from benchmarks.support.closed_loop import Load, measure, post
from benchmarks.support.machine import machine
from service.security.api_keys import add_key
from vocabularies import builtin
from vocabularies.formats.huggingface.writer import tokenizer_json

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
    """Make different English-like texts of 200 characters, the same on every machine."""
    texts, state = [], 1
    for _ in range(NUM_TEXTS):
        text = ""
        while len(text) < TEXT_CHARACTERS:
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            text += WORDS[(state >> 33) % len(WORDS)] + (". " if state >> 60 == 0 else " ")
        texts.append(text[:TEXT_CHARACTERS])
    return texts


def free_port() -> int:
    """Find a loopback port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(
    command: list[str],
    port: int,
    environment: dict[str, str],
    *cores: int,
    path: str = "/readyz",
) -> Iterator[int]:
    """Run a server on these cores until the block ends; yield its process id when it is ready.

    It is ready when it answers a GET of `path` with 200.
    """
    process = subprocess.Popen(
        command,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    try:
        for _ in range(600):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}{path}").status_code == 200:
                    break
            if process.poll() is not None:
                raise SystemExit(f"{command} ended with {process.returncode}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def prove_ids(
    port: int, texts: list[str], tokenizer: Tokenizer, key: str | None, every: int = 1
) -> None:
    """Exit if any text's ids over HTTP are not those of Hugging Face tokenizers.

    All texts are sent together, and every text whose number `every` divides is also sent alone.
    """
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
        for text, ids in zip(texts[::every], expected[::every], strict=True):
            answer = client.post("/v1/encode", json={"vocabulary": "gpt2", "text": text})
            if answer.json()["ids"] != ids:
                raise SystemExit(f"differing ids for {text!r}: {answer.text}")
        answer = client.post("/v1/encode/batch", json={"vocabulary": "gpt2", "texts": texts})
        if answer.json()["ids"] != expected:
            raise SystemExit("differing ids of a batch")


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and its living children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_seconds(int(child)) for child in children)


def call(texts: list[str], port: int, key: str | None) -> bytes:
    """Make a request for these texts."""
    if len(texts) == 1:
        body = json.dumps({"vocabulary": "gpt2", "text": texts[0]})
        return post("/v1/encode", body.encode(), port, key)
    body = json.dumps({"vocabulary": "gpt2", "texts": texts})
    return post("/v1/encode/batch", body.encode(), port, key)


def summary(load: Load, cpu_s: float) -> dict[str, float]:
    """Summarize a run: requests per second, CPU time and latencies."""
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
    uvicorn = [
        sys.executable,
        "-m",
        "uvicorn",
        "benchmarks.service.plain_server:app",
        "--no-access-log",
    ]
    uvicorn += ["--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]
    plain = server(
        [*uvicorn, "--port", str(plain_port)],
        plain_port,
        {"PLAIN_TOKENIZER_JSON": str(tokenizer_path), "TOKENIZERS_PARALLELISM": "false"},
        cores[0],
    )
    keys = directory / "keys.json"
    our_key = add_key(keys, "benchmark", ("encode",))
    environment = {
        "WARPTOK_PRELOAD": "gpt2",
        "WARPTOK_GRPC": "false",
        "WARPTOK_API_KEYS_FILE": str(keys),
        "WARPTOK_FRONTENDS": str(args.frontends),
        "WARPTOK_LOG_LEVEL": "warning",
    }
    command = [sys.executable, "-m", "service", "serve", "--port", str(our_port)]
    ours = server(command, our_port, environment, cores[0])
    rounds: list[dict[str, Any]] = []
    with plain as plain_pid, ours as our_pid:
        servers = {"plain": (plain_port, plain_pid, None), "warptok": (our_port, our_pid, our_key)}
        for port, _, key in servers.values():
            prove_ids(port, texts, tokenizer, key)
        for num_texts, connections in product(args.texts, args.connections):
            calls = [texts[i : i + num_texts] for i in range(0, len(texts), num_texts)]
            for number in range(args.rounds):
                row: dict[str, Any] = {
                    "texts": num_texts,
                    "connections": connections,
                    "round": number,
                }
                for name, (port, pid, key) in servers.items():
                    requests = [call(some, port, key) for some in calls if len(some) == num_texts]
                    before = cpu_seconds(pid)
                    load = uvloop.run(
                        measure(port, requests, connections, args.warmup, args.seconds)
                    )
                    row[name] = summary(load, cpu_seconds(pid) - before)
                for ratio, field, over, under in (
                    ("ratio", "requests_per_s", "warptok", "plain"),
                    ("cpu_ratio", "cpu_us_per_request", "plain", "warptok"),
                ):
                    row[ratio] = row[over][field] / row[under][field]
                rounds.append(row)
                print(line(row), flush=True)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return {"rounds": rounds, "corpus_sha256": digest, "num_texts": len(texts)}


def line(row: dict[str, Any]) -> str:
    """Format a round."""
    ours, plain = row["warptok"], row["plain"]
    return (
        f"{row['texts']:3d} texts, {row['connections']:4d} connections: "
        f"warptok {ours['requests_per_s']:8,.0f}/s {ours['cpu_us_per_request']:6.1f} us CPU, "
        f"p99 {ours['p99_ms']:6.2f} ms | "
        f"plain {plain['requests_per_s']:7,.0f}/s {plain['cpu_us_per_request']:6.1f} us CPU, "
        f"p99 {plain['p99_ms']:7.2f} ms | x {row['ratio']:.1f}, CPU x {row['cpu_ratio']:.1f}"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 32], help="of a request")
    parser.add_argument("--frontends", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warmup", type=float, default=2.0)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "results/service/http.json"
    )
    args = parser.parse_args()
    about = machine(PACKAGES)
    with tempfile.TemporaryDirectory() as directory:
        results = run(args, Path(directory))
    for num_texts, connections in product(args.texts, args.connections):
        chosen = (num_texts, connections)
        rows = [r for r in results["rounds"] if (r["texts"], r["connections"]) == chosen]
        print(f"{num_texts} texts, {connections} connections, median ratios:", end="")
        for name in ("ratio", "cpu_ratio"):
            ratios = [row[name] for row in rows]
            print(f" {name} {statistics.median(ratios):.1f}", end="")
            print(f" ({min(ratios):.1f} to {max(ratios):.1f})", end="")
        print()
    args.out.parent.mkdir(exist_ok=True)
    command = "python -m benchmarks.service.http " + " ".join(sys.argv[1:])
    document = {"command": command.strip(), "machine": about} | results
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
