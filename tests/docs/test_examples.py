"""Every command and program in the documents gives the output that the documents show.

A console block holds commands behind `$ ` and what they print; `...` stands for anything. A python
block is a program; the comment behind a `print` is what it prints. Blocks that begin with
`# On a GPU` are not run. All blocks of a document run in one folder, one after another.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.data_files import DATA, ROOT
from tests.support.server_process import Server, service_environment
from tests.support.torch_or_skip import torch_or_skip

BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
LEFT_OUT = "# On a GPU"
TORCH = "import torch"
RECIPES = ROOT / "docs" / "recipes.md"  # Run by test_recipes.py, where their packages are.
SLOW = ("training.md", "vocabularies.md", "dna.md")
FILES = {
    "mature.fa": "dna/mirgenedb_2.1_ALL-mat.fa",
    "genome.fa.gz": "dna/human_GRCh37_chr22_20-21M.fa.gz",
    "mitochondrion.fa": "dna/mtdna_rCRS_NC_012920.1.fa",
}
TIMEOUT_S = 120


def documents() -> Iterator[Any]:
    """List the documents with examples as parameters; mark those that need torch or long."""
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if document != RECIPES and list(blocks(document)):
            marks = [pytest.mark.torch] if needs(document, TORCH) else []
            marks += [pytest.mark.slow] if document.name in SLOW else []
            yield pytest.param(document, id=str(document.relative_to(ROOT)), marks=marks)


def blocks(document: Path) -> Iterator[tuple[str, str]]:
    for language, content in BLOCK.findall(document.read_text(encoding="utf-8")):
        if not content.startswith(LEFT_OUT):
            yield language, content


def needs(document: Path, word: str) -> bool:
    return any(word in content for _, content in blocks(document))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make the folder in which a document's blocks run, with the installed commands."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, arguments in (("python", ""), ("warptok", "-m service")):
        script = commands / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    (work / "service").symlink_to(ROOT / "service")
    for name, source in FILES.items():
        if (DATA / source).is_file():
            (work / name).symlink_to(DATA / source)
    return work


def run(command: list[str], folder: Path) -> str:
    environment = service_environment({}) | {
        "PYTHONPATH": str(ROOT),
        "PATH": f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
    return done.stdout


def check(code: str, expected: str, got: str) -> None:
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    matches = re.fullmatch(pattern, got.strip(), re.DOTALL)
    assert matches, f"{code}\nexpected:\n{expected}\ngot:\n{got}"


@pytest.mark.parametrize("document", list(documents()))
def test_the_examples_of_a_document_do_what_it_says(
    document: Path, server: Server, folder: Path
) -> None:
    for name in FILES:
        if needs(document, name) and not (folder / name).exists():
            pytest.skip(f"no {FILES[name]} in the data folder (set WARPTOK_DATA)")
    if needs(document, "curl") and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    port = re.search(r"gRPC on 127\.0\.0\.1:(\d+)", server.log.read_text())
    assert port is not None
    for language, content in blocks(document):
        content = content.replace("http://127.0.0.1:8000", server.url)
        content = content.replace("127.0.0.1:8001", f"127.0.0.1:{port[1]}")
        if TORCH in content and importlib.util.find_spec("torch") is None:
            continue
        if language == "console":
            for command, expected in COMMAND.findall(content):
                check(command, expected, run(["bash", "-c", command], folder))
        else:
            expected = "\n".join(PRINTED.findall(content))
            check(content, expected, run([sys.executable, "-c", content], folder))
    if needs(document, TORCH):
        torch_or_skip()  # Says that one was left out.
