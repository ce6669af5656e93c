"""Processes of a checkout that is in `sys.path` alone import what their parent imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.runtime.child_environment import PATHS, ROOT, child_environment

STARTER = """
import sys
sys.path.insert(0, sys.argv[1])
from service.engines.cpu.patterns import worker_process
if len(sys.argv) > 2:
    import os
    worker_process.child_environment = lambda: dict(os.environ)
worker_process.WorkerProcess(is_quiet=True).kill()
"""


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start a worker from another folder, with a `service` in its way that cannot start it."""
    (folder / "service").mkdir(exist_ok=True)
    environment = {**os.environ, PATHS: str(folder)}
    (folder / "service" / "__init__.py").write_text("raise ImportError('another service')")
    return subprocess.run(
        [sys.executable, "-c", STARTER, str(ROOT), *arguments],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_worker_starts_where_the_path_is_that_of_the_parent_alone(tmp_path: Path) -> None:
    started = start(tmp_path)
    assert started.returncode == 0, started.stderr


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_named(tmp_path: Path) -> None:
    failed = start(tmp_path, "without its path")
    assert "the process of the library tokenizers cannot start: python -m service" in failed.stderr


def test_paths_of_the_parent_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [f"{ROOT}/"])
    monkeypatch.setenv(PATHS, "/a:/b")
    assert child_environment()[PATHS] == f"{ROOT}:/a:/b"
    monkeypatch.delenv(PATHS)
    assert child_environment()[PATHS] == str(ROOT)
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    assert PATHS not in child_environment()
