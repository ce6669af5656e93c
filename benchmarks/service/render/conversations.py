"""Next turns of conversations, and long chats at a steady rate, beside vLLM's Rust renderer.

    python -m benchmarks.service.render.conversations --data FOLDER --model QWEN3 --vllm-rs PROGRAM

PROGRAM is the file `vllm/vllm-rs` in vLLM's wheel, which needs no GPU and no torch; without it only
the service is measured, with its cache of sections and without. QWEN3 is a model's folder, for
vllm-rs with config.json. Every server has one core, all its processes included, and the client
another. The servers take turns.

Turns: a chat is sent without its last four messages, and then with them, on one connection; the
second request is measured. The ids of all servers are compared. Differences of vllm-rs are only
counted, as its templates run in another language. No chat is used twice.
Rate: chats that no server has seen arrive as a Poisson process; a latency counts from the moment at
which its request was due. Meanwhile the client builds no JSON, and reads only an answer's length.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import uvloop

from benchmarks.service.http import free_port, server
from benchmarks.service.render.chats import SPREAD, make_chats
from benchmarks.support.machine import machine
from benchmarks.support.open_loop import Client, Request, arrivals, quantiles
from service.runtime.malloc import keep_large_blocks

PATH = "/v1/chat/completions/render"
PACKAGES = ("uvicorn", "uvloop", "orjson", "jinja2", "fastokens", "tokenizers")
JSON = {"content-type": "application/json"}
NUM_MESSAGES = 4  # Of a turn: a question's answer, the next call, its result, and the question.
RATE_S = 8.0
WARMUP = 20


class Server(NamedTuple):
    """A server that is measured: its name and its port."""

    name: str
    port: int


def start_servers(args: argparse.Namespace, stack: contextlib.ExitStack) -> Iterator[Server]:
    """Start the servers, all on the first core."""
    core = min(os.sched_getaffinity(0))
    ours = [sys.executable, "-m", "service", "render", str(args.model), "--port"]
    patient = {"WARPTOK_REQUEST_TIMEOUT_MS": "60000", "WARPTOK_LOG_LEVEL": "warning"}
    commands = {
        "warptok": (ours, patient),
        "without cache": (ours, patient | {"WARPTOK_CHAT_CACHE_BYTES": "0"}),
    }
    if args.vllm_rs is not None:
        command = [str(args.vllm_rs), "render", str(args.model), "--port"]
        commands["vllm-rs"] = command, {"HF_HUB_OFFLINE": "1", "RUST_LOG": "error"}
    for name, (command, settings) in commands.items():
        port = free_port()
        stack.enter_context(server([*command, str(port)], port, settings, core, path="/health"))
        yield Server(name, port)


def measure_turns(
    servers: list[Server], args: argparse.Namespace, num_ids: int
) -> Iterator[dict[str, Any]]:
    """Measure the second turns of new conversations; yield a row for each round."""
    every = len(SPREAD)
    for number in range(args.rounds):
        row: dict[str, Any] = {"ids": num_ids, "round": number}
        # No message occurs in two rounds, or the new messages of later rounds would be known, too.
        chats = make_chats(args.data / "text", num_ids, every * args.chats, seed=3 + number)
        chats = chats[SPREAD.index(1.0) :: every]
        requests = [_make_turns(chat, f" {number} {place}") for place, chat in enumerate(chats)]
        proved: list[list[int]] = []
        for each in servers:
            load = uvloop.run(_ask_turns(each.port, requests))
            seconds, answers = zip(*load, strict=True)
            ids = [json.loads(answer)["token_ids"] for answer in answers]
            proved = proved or ids
            differing = sum(own != other for own, other in zip(ids, proved, strict=True))
            if differing and each.name != "vllm-rs":
                raise SystemExit(f"{differing} chats have other ids: {each.name}")
            row[each.name] = quantiles(list(seconds)) | {"differing": differing}
        row["median_ids"] = statistics.median(map(len, proved))
        print(json.dumps(row), flush=True)
        yield row


def _make_turns(chat: dict[str, Any], mark: str) -> tuple[Request, Request]:
    """Make the requests of a conversation and of its next turn, different from all others."""
    first, *others = chat["messages"]
    messages = [{**first, "content": first["content"] + mark}, *others]
    bodies = [{**chat, "messages": part} for part in (messages[:-NUM_MESSAGES], messages)]
    early, late = [Request.post("turn", PATH, json.dumps(body).encode(), JSON) for body in bodies]
    return early, late


async def _ask_turns(
    port: int, requests: list[tuple[Request, Request]]
) -> list[tuple[float, bytes]]:
    """Send both turns of each conversation; return the time and the answer of the second."""
    client, results = Client(port), []
    for first, second in requests:
        await client.ask(first)
        begin = perf_counter()
        status, body = await client.ask(second)
        results.append((perf_counter() - begin, body))
        if status != 200:
            raise SystemExit(f"status {status}: {body[:200]!r}")
    client.close()
    return results


def measure_rate(
    servers: list[Server], args: argparse.Namespace, num_ids: int
) -> Iterator[dict[str, Any]]:
    """Measure a Poisson stream of new chats; yield a row for each round."""
    num_chats = WARMUP + int(1.5 * args.rate * RATE_S)
    chats = make_chats(args.data / "text", num_ids, num_chats, seed=2)
    bodies = [json.dumps(chat).encode() for chat in chats]
    for number in range(args.rounds):
        row: dict[str, Any] = {"ids": num_ids, "rate": args.rate, "round": number}
        for each in servers:
            if each.name == "warptok":
                continue  # Later rounds would repeat the chats of earlier ones.
            row[each.name] = uvloop.run(_ask_at_rate(each.port, bodies, args.rate, number))
        print(json.dumps(row), flush=True)
        yield row


async def _ask_at_rate(port: int, bodies: list[bytes], rate: float, seed: int) -> dict[str, float]:
    client = Client(port)
    requests = [Request.post("chat", PATH, body, JSON) for body in bodies]
    for request in requests[:WARMUP]:
        await client.ask(request)
    left = iter(requests[WARMUP:])
    answers = await arrivals(client, rate, RATE_S, lambda _: next(left), random.Random(seed))
    client.close()
    if failures := [answer.status for answer in answers if answer.status != 200]:
        raise SystemExit(f"refused: {failures}")
    return quantiles([answer.seconds for answer in answers]) | {"requests": len(answers)}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="holds the folder text")
    parser.add_argument("--model", type=Path, required=True, help="a model's folder")
    parser.add_argument("--vllm-rs", type=Path, help="the program vllm-rs of vLLM's wheel")
    parser.add_argument("--ids", type=int, nargs="*", default=[8_000, 72_000])
    parser.add_argument("--rate-ids", type=int, nargs="*", default=[49_000])
    parser.add_argument("--rate", type=float, default=50.0, help="requests in a second")
    parser.add_argument("--chats", type=int, default=16, help="conversations of a round")
    parser.add_argument("--rounds", type=int, default=3)
    default = Path(__file__).parents[2] / "results/service/render_turns.json"
    parser.add_argument("--out", type=Path, default=default)
    args = parser.parse_args()
    about = machine(PACKAGES)
    keep_large_blocks()  # Or new pages for each answer would take this client half a millisecond.
    with contextlib.ExitStack() as stack:
        servers = list(start_servers(args, stack))
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        turns = [row for size in args.ids for row in measure_turns(servers, args, size)]
        rates = [row for size in args.rate_ids for row in measure_rate(servers, args, size)]
    command = " ".join(["python -m benchmarks.service.render.conversations", *sys.argv[1:]])
    document = {"command": command, "machine": about, "turns": turns, "rates": rates}
    args.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
