"""Chats over HTTP, ours beside the plain server, on one core each, in one run.

    python -m benchmarks.service.render --data FOLDER --model QWEN3 --plain-python PYTHON

QWEN3 is a model's folder with tokenizer.json and tokenizer_config.json; PYTHON is an interpreter
with transformers, tokenizers, fastapi, uvicorn, uvloop and httptools, which need not be ours. The
texts of FOLDER/text make the chats. Before anything is timed, the ids of every chat from both
servers are compared with those of transformers' template and Hugging Face tokenizers. The servers
take turns (A B A B), so that a drift of the machine falls on both. It takes about ten minutes.

Both servers, all their processes included, run on one core and the client on another. A request's
CPU time is that of all processes of its server; it depends least on other work on the machine. Our
profile for routers refuses a request that waits for a second; here the limit is 60 seconds, so that
every request of 64 connections is answered. The same chats are sent repeatedly, so our cache of
sections is off; see `conversations`. Our answer has each id twice, under vLLM's name and SGLang's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import uvloop

from benchmarks.service.http import cpu_seconds, free_port, server, summary
from benchmarks.service.render.chats import make_chats
from benchmarks.service.render.reference import digest
from benchmarks.support.closed_loop import measure, post
from benchmarks.support.machine import machine
from service.runtime.malloc import keep_large_blocks

PATH = "/v1/chat/completions/render"
PACKAGES = ("fastapi", "uvicorn", "uvloop", "orjson", "jinja2", "fastokens", "tokenizers")
UVICORN = "-m uvicorn benchmarks.service.render.plain_server:app --loop uvloop --http httptools"
NUM_CHATS = 128


def prove_ids(port: int, bodies: list[bytes], expected: list[list[Any]]) -> None:
    """Exit if a chat's ids over HTTP are not the expected ones."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for number, (body, proved) in enumerate(zip(bodies, expected, strict=True)):
            answer = client.post(PATH, content=body, headers={"content-type": "application/json"})
            ids = answer.raise_for_status().json()["token_ids"]
            if digest(ids) != proved:
                raise SystemExit(f"differing ids of chat {number}: {len(ids)}, not {proved[0]}")


def reference_ids(args: argparse.Namespace, bodies: list[bytes]) -> tuple[str, list[list[Any]]]:
    """Return the version of transformers, and the digest of each chat's ids by it."""
    command = [args.plain_python, "-m", "benchmarks.service.render.reference", str(args.model)]
    done = subprocess.run(command, input=b"\n".join(bodies), capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"transformers failed: {done.stderr.decode()[-2000:]}")
    about, *digests = map(json.loads, done.stdout.splitlines())
    return about["transformers"], digests


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Start both servers, prove their ids, and measure them in turns."""
    cores = sorted(os.sched_getaffinity(0))
    plain_port, our_port = free_port(), free_port()
    plain_command = [args.plain_python, *UVICORN.split(), "--port", str(plain_port)]
    plain_settings = {"PLAIN_MODEL": str(args.model), "TOKENIZERS_PARALLELISM": "false"}
    our_command = [sys.executable, "-m", "service", "render", str(args.model)]
    our_command += ["--port", str(our_port)]
    our_settings = {"WARPTOK_REQUEST_TIMEOUT_MS": "60000", "WARPTOK_LOG_LEVEL": "warning"}
    our_settings["WARPTOK_CHAT_CACHE_BYTES"] = "0"
    chats = {size: make_chats(args.data / "text", size, args.chats) for size in args.ids}
    bodies = {size: [json.dumps(chat).encode() for chat in some] for size, some in chats.items()}
    version, proved = reference_ids(args, [body for some in bodies.values() for body in some])
    digests = iter(proved)
    expected = {size: list(itertools.islice(digests, args.chats)) for size in args.ids}
    results: dict[str, Any] = {"transformers": version, "lengths": [], "rounds": []}
    quiet = [*plain_command, "--no-access-log", "--log-level", "warning"]
    with (
        server(quiet, plain_port, plain_settings, cores[0]) as plain_pid,
        server(our_command, our_port, our_settings, cores[0]) as our_pid,
    ):
        os.sched_setaffinity(0, {cores[-1]})
        servers = {"plain": (plain_port, plain_pid), "warptok": (our_port, our_pid)}
        for size in args.ids:
            for port, _ in servers.values():
                prove_ids(port, bodies[size], expected[size])
            results["lengths"].append(
                {
                    "ids": size,
                    "proved_chats": args.chats,
                    "median_ids": statistics.median(num for num, _ in expected[size]),
                    "median_bytes": statistics.median(map(len, bodies[size])),
                }
            )
            print(json.dumps(results["lengths"][-1]), flush=True)
            for connections, number in itertools.product(args.connections, range(args.rounds)):
                row: dict[str, Any] = {"ids": size, "connections": connections, "round": number}
                for name, (port, pid) in servers.items():
                    requests = [post(PATH, body, port) for body in bodies[size]]
                    before = cpu_seconds(pid)
                    load = uvloop.run(
                        measure(port, requests, connections, args.warmup, args.seconds)
                    )
                    row[name] = summary(load, cpu_seconds(pid) - before)
                results["rounds"].append(row)
                print(json.dumps(row), flush=True)
    return results


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="holds the folder text")
    parser.add_argument("--model", type=Path, required=True, help="a model's folder")
    parser.add_argument("--plain-python", default=sys.executable, help="has transformers")
    parser.add_argument("--ids", type=int, nargs="+", default=[1_000, 8_000, 49_000, 72_000])
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--chats", type=int, default=NUM_CHATS)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[2] / "results/service/render.json"
    )
    args = parser.parse_args()
    about = machine(PACKAGES)
    keep_large_blocks()  # Or new pages for each answer would take this client half a millisecond.
    results = run(args)
    command = " ".join(["python -m benchmarks.service.render", *sys.argv[1:]])
    document = {"command": command, "machine": about} | results
    args.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
