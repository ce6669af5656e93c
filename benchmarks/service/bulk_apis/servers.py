"""Starts the servers of `bulk_apis`: the service, the plain server and the echo server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from benchmarks.service.http import free_port, server
from vocabularies import builtin
from vocabularies.batch.batch import EncodeOptions
from vocabularies.reference import tokenizer as reference

VOCABULARY = "hyenadna"
PLAIN = EncodeOptions(add_special_tokens=False)
Servers = dict[str, tuple[int, int]]
"""Port and process id by name."""


def plain_tokenizer() -> Tokenizer:
    """Make the vocabulary's letters as a Hugging Face tokenizer."""
    vocabulary = builtin.load(VOCABULARY)
    ids = {one: reference.encode(vocabulary, one, PLAIN).ids[0] for one in "ACGTN"}
    unknown = reference.encode(vocabulary, "a", PLAIN).ids[0]
    tokenizer = Tokenizer(WordLevel({"[UNK]": unknown, **ids}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Split(Regex("."), "isolated")
    return tokenizer


def free_ports(count: int) -> list[int]:
    """Find several ports on which nothing listens."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return [*ports]


def start(stack: ExitStack, folder: Path, with_plain: bool, num_cores: int) -> Servers:
    """Start all servers on the first cores, and move this process to as many of the last."""
    all_cores = sorted(os.sched_getaffinity(0))
    cores = all_cores[:num_cores]
    os.sched_setaffinity(0, all_cores[-num_cores:])
    http, grpc, plain, echo, echo_grpc = free_ports(5)
    settings = {"PRELOAD": VOCABULARY, "DEFAULT_VOCABULARY": VOCABULARY, "GRPC_PORT": str(grpc)}
    environment = {f"WARPTOK_{name}": value for name, value in settings.items()}
    serve = [sys.executable, "-m", "service", "serve", "--engine", "cpu", "--port", str(http)]
    pid = stack.enter_context(server(serve, http, environment, *cores))
    command = [sys.executable, "-m", "benchmarks.service.echo_server", str(echo), str(echo_grpc)]
    echo_pid = stack.enter_context(process(command, echo, cores))
    servers = {"http": (http, pid), "grpc": (grpc, pid)}
    if with_plain:
        servers["plain"] = plain, start_plain(stack, folder, plain, cores)
    return servers | {"echo": (echo, echo_pid), "echo_grpc": (echo_grpc, echo_pid)}


def start_plain(stack: ExitStack, folder: Path, port: int, cores: list[int]) -> int:
    """Start the plain server; return its process id."""
    file = folder / "tokenizer.json"
    plain_tokenizer().save(str(file))
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "benchmarks.service.plain_server:app",
        "--no-access-log",
    ]
    command += ["--loop", "uvloop", "--http", "httptools", "--port", str(port)]
    environment = {"PLAIN_TOKENIZER_JSON": str(file), "PLAIN_VOCABULARY": VOCABULARY}
    return stack.enter_context(server(command, port, environment, *cores))


@contextmanager
def process(command: list[str], port: int, cores: list[int]) -> Iterator[int]:
    """Run a process on these cores until the block ends; yield its id when its port is open."""
    pinned = partial(os.sched_setaffinity, 0, cores)
    with subprocess.Popen(command, preexec_fn=pinned) as running:
        try:
            for _ in range(100):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield running.pid
        finally:
            running.terminate()
