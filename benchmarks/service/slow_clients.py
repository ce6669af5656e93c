"""Attacks the service by slowhttptest in three modes, and times probes and other clients meanwhile.

    python -m benchmarks.service.slow_clients --seconds 600 --out slow_clients.json

The attack comes from 127.0.0.1: request heads that never end, bodies that arrive slowly, and
answers that are read slowly. Every half second /readyz is read from the same address, on a new
connection. Normal clients use 127.0.0.2, as limits are per address. They send small texts before
and during each attack, half of them on new connections.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from benchmarks.support.machine import machine
from benchmarks.support.open_loop import quantiles
from benchmarks.support.service_process import Running, service_process

MODES = {
    "slow heads": ["-H", "-t", "POST"],
    "slow bodies": ["-B", "-t", "POST", "-s", "8192", "-f", "application/json"],
    "slow reading": ["-X", "-w", "1", "-y", "2", "-z", "1", "-n", "5", "-k", "3"],
}
PATHS = {"slow reading": "/openapi.json"}
BODY = {"vocabulary": "gpn", "text": "ACGT" * 50}
PROBE_PERIOD_S, HONEST_PERIOD_S = 0.5, 0.05
TIMEOUT_S = 30.0
HONEST_ADDRESS = "127.0.0.2"


async def probe(url: str, until: float, seconds: list[float], failures: Counter[str]) -> None:
    """Read /readyz again and again, on a new connection each time."""
    while perf_counter() < until:
        begin = perf_counter()
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_S, verify=False) as client:
                answer = await client.get(url + "/readyz")
            if answer.status_code != 200:
                failures[f"/readyz {answer.status_code}"] += 1
        except httpx.HTTPError as error:
            failures[f"/readyz {type(error).__name__}"] += 1
        seconds.append(perf_counter() - begin)
        await asyncio.sleep(PROBE_PERIOD_S)


async def send(
    url: str, until: float, seconds: list[float], failures: Counter[str], *, keeps: bool
) -> None:
    """Send small texts from another address, over one connection or a new one for each."""
    transport = httpx.AsyncHTTPTransport(
        local_address=HONEST_ADDRESS,
        verify=False,
        limits=httpx.Limits(max_keepalive_connections=1 if keeps else 0),
    )
    async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT_S) as client:
        while perf_counter() < until:
            begin = perf_counter()
            try:
                answer = await client.post(url + "/v1/encode", json=BODY)
                if answer.status_code != 200:
                    failures[str(answer.status_code)] += 1
            except httpx.HTTPError as error:
                failures[type(error).__name__] += 1
            seconds.append(perf_counter() - begin)
            await asyncio.sleep(HONEST_PERIOD_S)


async def measure(url: str, length_s: float) -> dict[str, Any]:
    """Time probes and honest clients for some seconds."""
    until = perf_counter() + length_s
    probes: list[float] = []
    honest: list[float] = []
    failures: Counter[str] = Counter()
    await asyncio.gather(
        probe(url, until, probes, failures),
        send(url, until, honest, failures, keeps=True),
        send(url, until, honest, failures, keeps=False),
    )
    return {
        "readyz": {"num": len(probes)} | quantiles(probes),
        "honest": {"num": len(honest)} | quantiles(honest),
        "failures": dict(failures),
    }


def attack(running: Running, mode: str, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start slowhttptest in a mode."""
    url = f"http://127.0.0.1:{running.port}{PATHS.get(mode, '/v1/encode')}"
    command = ["slowhttptest", *MODES[mode], "-c", str(args.connections), "-r", "1000", "-i", "10"]
    command += ["-l", str(round(args.seconds) + 5), "-u", url]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    """Run the command line; exit with 2 if slowhttptest is not installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of each mode")
    parser.add_argument("--modes", nargs="+", choices=[*MODES], default=[*MODES])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--front-ends", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    if shutil.which("slowhttptest") is None:
        print("slowhttptest is not installed", file=sys.stderr)
        raise SystemExit(2)
    settings = {"preload": "gpn", "default_vocabulary": "gpn", "frontends": args.front_ends}
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        with service_process(Path(folder), settings) as running:
            for mode in args.modes:
                url = f"http://127.0.0.1:{running.port}"
                row = asyncio.run(measure(url, min(args.seconds, 60.0)))
                rows[f"before {mode}"] = row
                print(f"before {mode}: {json.dumps(row)}", flush=True)
                process = attack(running, mode, args)
                rows[mode] = asyncio.run(measure(url, args.seconds))
                process.terminate()
                process.wait()
                counters = running.counters()
                rows[mode]["closed"] = {
                    labels[0]: int(number)
                    for (name, labels), number in counters.items()
                    if name == "warptok_connections_closed_total" and number
                }
                rows[mode]["open_connections"] = int(counters["warptok_connections", ()])
                print(f"{mode}: {json.dumps(rows[mode])}", flush=True)
            running.terminate()
    command = " ".join(["python -m benchmarks.service.slow_clients", *sys.argv[1:]])
    document = {"command": command, "machine": machine(("uvicorn",)), "modes": rows}
    if args.out is not None:
        args.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
