"""Clients that nobody here wrote, unmodified, each in an environment of its own.

`make clients` makes the environments in .clients/; where one is missing its test is skipped, which
says so. What shares device memory needs a GPU, too.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import no_device
from tests.support.data_files import ROOT
from tests.support.server_process import Server, server_process
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary
from vocabularies.reference import tokenizer

pytestmark = pytest.mark.slow
TEMPLATE = "A chat: {% for message in messages %}{{ message['content'] }}{% endfor %}"
TEXTS = ["Hello, world", "", "北京 now", "it's"]


def run_client(name: str, *arguments: str, script: str = "") -> None:
    """Run the script of a client in tests/clients, or another one, in its environment.

    Raises:
        AssertionError: it failed; with what it printed.
    """
    python = ROOT / ".clients" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment for the client {name}: make clients")
    path = ROOT / "tests" / "clients" / f"{script or name}.py"
    command = [str(python), str(path), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith("all as expected\n")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with GPT-2, and with GPT-2 once more as `chat`, which has a template."""
    settings = {"WARPTOK_PRELOAD": "gpt2", "WARPTOK_SHARED_MEMORY": "true"}
    with server_process(tmp_path_factory.mktemp("clients"), settings) as server:
        server.wait_ready()
        (document,) = write_vocabulary(load("gpt2"), "tokenizer.json").values()
        config = json.dumps({"chat_template": TEMPLATE}).encode()
        files = {"a": ("tokenizer.json", document), "b": ("tokenizer_config.json", config)}
        answer = httpx.put(f"{server.url}/v1/vocabularies/chat", files=files, timeout=300)
        assert answer.status_code == 201, answer.text
        yield server


def grpc_address(server: Server) -> str:
    """Where gRPC listens, as the service says it when it starts."""
    found = re.search(r"gRPC on (\S+)", server.log.read_text())
    assert found is not None
    return found[1]


def test_tritons_clients(running: Server) -> None:
    expected = [tokenizer.encode(load("gpt2"), text).ids for text in TEXTS]
    http = running.url.removeprefix("http://")
    run_client("triton", http, grpc_address(running), json.dumps(expected))


def test_tritons_clients_with_memory_of_a_device(tmp_path: Path) -> None:
    if reason := no_device():
        pytest.skip(reason)
    settings = {"WARPTOK_PRELOAD": "gpt2", "WARPTOK_SHARED_MEMORY": "true"}
    twice = tokenizer.encode(load("gpt2"), 2 * "It's text on the device. ").ids
    with server_process(tmp_path, settings | {"WARPTOK_ENGINE": "gpu"}) as server:
        server.wait_ready()
        http = server.url.removeprefix("http://")
        addresses = http, grpc_address(server)
        run_client("triton", *addresses, json.dumps(twice), script="triton_cuda")


def test_kserves_clients(running: Server) -> None:
    run_client("kserve", running.url, grpc_address(running))


@pytest.mark.parametrize("name", ["openai", "anthropic", "lm_eval"])
def test_clients_of_language_models(name: str, running: Server) -> None:
    chat = TEMPLATE.split("{%")[0] + "Hello, world"
    ids = tokenizer.encode(load("gpt2"), chat).ids
    run_client(name, running.url, str(len(ids)))
