"""Clients that nobody here wrote, unmodified, each in an environment of its own.

`make clients` makes the environments in .clients/; where one is missing its test is skipped, which
says so.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.data_files import ROOT
from tests.server_process import server_process
from vocabularies import reference
from vocabularies.builtin import load

TEXTS = ["Hello, world", "", "北京 now", "it's"]


def run_client(name: str, *arguments: str) -> None:
    """Run tests/clients/NAME.py in its environment.

    Raises:
        AssertionError: it failed; with what it printed.
    """
    python = ROOT / ".clients" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment for the client {name}: make clients")
    script = ROOT / "tests" / "clients" / f"{name}.py"
    command = [str(python), str(script), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith("all as expected\n")


def test_tritons_clients(tmp_path: Path) -> None:
    expected = [reference.encode(load("gpt2"), text).ids for text in TEXTS]
    settings = {"WARPTOK_PRELOAD": "gpt2", "WARPTOK_SHARED_MEMORY": "true"}
    with server_process(tmp_path, settings) as server:
        server.wait_ready()
        found = re.search(r"gRPC on (\S+)", server.log.read_text())
        assert found is not None
        http = server.url.removeprefix("http://")
        run_client("triton", http, found[1], json.dumps(expected))
