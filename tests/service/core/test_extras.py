"""A service without the packages of its extras: what needs them says so, and the rest works."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import pytest

from service.core import extras
from service.core.errors import NotInstalled
from service.core.extras import EXTRAS, check_installed
from tests.support.data_files import ROOT
from tests.support.server_process import service_environment

PROGRAM = """
import asyncio, json, sys

for name in %s:
    sys.modules[name] = None  # An import of it fails as if it were not installed.

from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
REQUESTS = [
    ("/v1/encode", {"json": {"vocabulary": "gpt2", "text": "Hello"}}),
    ("/v1/encode/batch?vocabulary=gpt2", {"content": b"", "headers": ARROW}),
    ("/v1/encode/fasta?vocabulary=evo2", {"content": b">a\\nACGT\\n"}),
    ("/v1/training-jobs", {"content": b""}),
]

async def main():
    async with serving(CpuEngine()) as (client, _):
        return [(await client.post(path, **request)) for path, request in REQUESTS]

answers = [(answer.status_code, answer.json()) for answer in asyncio.run(main())]
print(json.dumps(answers))
"""
BLOCKED = tuple(name for names in EXTRAS.values() for name in names)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=service_environment({}),
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_service_without_extras_answers_and_names_the_extra() -> None:
    done = run("-c", PROGRAM % (BLOCKED,))
    assert done.returncode == 0, done.stderr
    (status, ids), *refused = json.loads(done.stdout)
    assert (status, ids["ids"]) == (200, [15496])
    for (status, problem), extra in zip(refused, ("arrow", "arrow,dna", "dna"), strict=True):
        assert (status, problem["code"]) == (501, "not_installed")
        assert f"pip install 'warptok[{extra}]'" in problem["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["serve", "--port", "0"], "grpc"),
        (["train", "--out", "x.json", "--size", "10", "a.fa"], "dna"),
    ],
)
def test_a_command_without_its_extra_names_it(command: list[str], extra: str) -> None:
    program = f"""
import sys
for name in {BLOCKED}:
    sys.modules[name] = None
from service.cli.parser import main
sys.exit(main({command}))
"""
    done = run("-c", program)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'warptok[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_missing_where_everything_is_installed() -> None:
    check_installed("everything", *EXTRAS)


def test_an_extra_of_which_a_package_is_missing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "arrow", ("json", "no_such_package"))
    extras._is_installed.cache_clear()
    with pytest.raises(NotInstalled, match=r"pip install 'warptok\[arrow\]'"):
        check_installed("Arrow streams", "arrow")
    extras._is_installed.cache_clear()


def test_every_extra_repeats_requirements_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in EXTRAS:
        assert set(project["optional-dependencies"][extra]) <= set(project["dependencies"])
