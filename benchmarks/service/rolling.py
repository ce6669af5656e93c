"""Restarts two replicas behind HAProxy or nginx, one after the other, under load.

    python -m benchmarks.service.rolling --proxy haproxy --seconds 120
    python -m benchmarks.service.rolling --proxy nginx --front-ends 2

Clients send texts one after another over keep-alive connections to the proxy, and compare the ids
with the reference. Every answer but 200 with the right ids is a failed request, and so is a lost
connection. A restart is SIGTERM, the end of the process, and a start on the same port. Neither
proxy sends a request again that a replica has received: HAProxy asks /readyz, nginx notices only
that a port is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.machine import machine
from benchmarks.support.open_loop import Client, Request, json_request
from benchmarks.support.service_process import find_free_port, service_process
from vocabularies.builtin import load
from vocabularies.reference import tokenizer

VOCABULARY = "gpt2"
LAME_DUCK_S = 3.0
SETTLE_S = 2.0  # Between two restarts, so that the proxy takes the replica in again.
NUM_CLIENTS = 8
TEXTS = [f"Replica {number} answers with the ids of the reference. " * 4 for number in range(64)]

HAPROXY = """
global
    maxconn 1000
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    retries 3
    option redispatch 1
frontend front
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance roundrobin
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
    default-server inter 500ms fall 2 rise 1
    server first 127.0.0.1:{first} check
    server second 127.0.0.1:{second} check
"""
NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 1000; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream replicas {{
        server 127.0.0.1:{first} max_fails=1 fail_timeout=1s;
        server 127.0.0.1:{second} max_fails=1 fail_timeout=1s;
        keepalive 16;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
            proxy_next_upstream error timeout http_503;
        }}
    }}
}}
"""


@contextlib.contextmanager
def running_proxy(name: str, folder: Path, ports: Sequence[int]) -> Iterator[int]:
    """Run a proxy in front of two ports; yield its port."""
    port = find_free_port()
    config = folder / f"{name}.conf"
    template = HAPROXY if name == "haproxy" else NGINX
    first, second = ports
    config.write_text(template.format(port=port, first=first, second=second, folder=folder))
    options = ["-f"] if name == "haproxy" else ["-p", str(folder), "-c"]
    process = subprocess.Popen([name, *options, str(config)])
    try:
        time.sleep(SETTLE_S)
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode}")
        yield port
    finally:
        process.terminate()
        process.wait()


async def send(client: Client, requests: Sequence[Request], outcomes: Counter[str]) -> None:
    """Send requests one after another until cancelled, and count the answers."""
    expected = [tokenizer.encode(load(VOCABULARY), text).ids for text in TEXTS]
    for number in itertools.count():
        which = number % len(TEXTS)
        status, body = await client.ask(requests[which])
        if status != 200:
            outcomes[str(status)] += 1
        elif json.loads(body)["ids"] != expected[which]:
            outcomes["other ids"] += 1
        else:
            outcomes["answered"] += 1


class Replica:
    """One of the replicas, which is restarted on the same port."""

    def __init__(self, folder: Path, port: int, settings: dict[str, object]) -> None:
        self.folder = folder
        self.port = port
        self.settings = settings
        folder.mkdir()
        self.start()

    def start(self) -> None:
        """Start the replica, and wait until it is ready."""
        self._stack = contextlib.ExitStack()
        context = service_process(self.folder, self.settings, port=self.port)
        self.running = self._stack.enter_context(context)

    def restart(self) -> None:
        """End the replica by SIGTERM, and start it again.

        Raises:
            RuntimeError: it did not end with 0.
        """
        if code := self.running.terminate():
            raise RuntimeError(f"exit code {code}:\n{self.running.log.read_text()}")
        self.start()

    def stop(self) -> None:
        """End the replica."""
        self._stack.close()


async def run(port: int, replicas: Sequence[Replica], seconds: float) -> dict[str, Any]:
    """Restart replicas under load until the time is over; return the results."""
    outcomes: Counter[str] = Counter()
    client = Client(port)
    requests = [
        json_request("encode", "/v1/encode", {"vocabulary": VOCABULARY, "text": text})
        for text in TEXTS
    ]
    tasks = [asyncio.create_task(send(client, requests, outcomes)) for _ in range(NUM_CLIENTS)]
    begin = time.monotonic()
    restarts = 0
    for replica in itertools.cycle(replicas):
        await asyncio.sleep(SETTLE_S)
        if time.monotonic() - begin > seconds:
            break
        before = outcomes.copy()
        await asyncio.to_thread(replica.restart)
        restarts += 1
        print(f"restart {restarts}: {dict(outcomes - before)}", flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    failed = outcomes.total() - outcomes["answered"]
    return {
        "seconds": round(time.monotonic() - begin, 1),
        "restarts": restarts,
        "requests": outcomes.total(),
        "failed": failed,
        "outcomes": dict(outcomes),
    }


def main() -> None:
    """Run the command line; exit with 1 if a request failed, with 2 if there is no such proxy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--proxy", choices=("haproxy", "nginx"), default="haproxy")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--front-ends", type=int, default=0)
    parser.add_argument("--lame-duck-s", type=float, default=LAME_DUCK_S)
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    if shutil.which(args.proxy) is None:
        print(f"{args.proxy} is not installed", file=sys.stderr)
        raise SystemExit(2)
    settings: dict[str, object] = {
        "preload": VOCABULARY,
        "lame_duck_s": args.lame_duck_s,
        "frontends": args.front_ends,
    }
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        replicas = []
        for name in ("first", "second"):
            replica = Replica(folder / name, find_free_port(), settings)
            stack.callback(replica.stop)
            replicas.append(replica)
        ports = [replica.port for replica in replicas]
        port = stack.enter_context(running_proxy(args.proxy, folder, ports))
        results = asyncio.run(run(port, replicas, args.seconds))
    command = " ".join(["python -m benchmarks.service.rolling", *sys.argv[1:]])
    document = {"command": command, "machine": machine(("uvicorn",)), "proxy": args.proxy} | results
    if args.out is not None:
        args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(results, indent=1))
    raise SystemExit(1 if results["failed"] else 0)


if __name__ == "__main__":
    main()
