"""The messages at the start where C++ extensions are missing."""

from __future__ import annotations

import logging
import sys
import tomllib
from types import SimpleNamespace

import pytest

from gpu.host import extensions as gpu_extensions
from service.cli import serve
from service.cli.parser import main
from service.runtime.extensions import EXTENSIONS, describe_missing
from tests.support.data_files import ROOT

Patch = pytest.MonkeyPatch


@pytest.fixture
def without_extensions(monkeypatch: Patch) -> None:
    """Hide the extensions, as in an installation without a compiler."""
    for extension in EXTENSIONS:
        monkeypatch.setitem(sys.modules, extension.module, None)
    monkeypatch.setattr(gpu_extensions, "are_built", False)


def test_nothing_is_said_where_all_are_built() -> None:
    assert describe_missing(uses_gpu=True) == ""


def test_one_line_has_what_is_slower_and_what_to_install(without_extensions: None) -> None:
    line = describe_missing(uses_gpu=False)
    assert line.count("\n") == 0
    for extension in EXTENSIONS:
        assert extension.without in line
    assert "install g++ and Python's headers" in line
    assert ".venv/bin/pip install -e ." in line
    assert "GPU" not in line
    assert "the GPU engine cannot be used" in describe_missing(uses_gpu=True)


def test_what_is_built_is_not_named(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "service.engines.cpu.dna._dna_bpe", None)
    assert describe_missing(uses_gpu=True).startswith(
        "C++ extensions are not built: the CPU engine encodes DNABERT-2 and GENA-LM by tokenizers, "
        "fifty times slower. To build them: install g++"
    )


@pytest.mark.parametrize("frontends", ["0", "2"])
def test_the_start_says_it_once(
    frontends: str,
    without_extensions: None,
    monkeypatch: Patch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(serve, "configure", lambda settings: None)
    for module, function in (
        ("multiprocess.supervisor", "supervise"),
        ("server.uvicorn_server", "serve"),
    ):
        fake = SimpleNamespace(**{function: lambda *_: 0})
        monkeypatch.setitem(sys.modules, f"service.{module}", fake)
    with caplog.at_level(logging.INFO):
        assert main(["serve", "--engine", "cpu", "--frontends", frontends]) == 0
    assert caplog.messages == [describe_missing(uses_gpu=False)]
    assert caplog.records[0].levelname == "WARNING"


def test_every_extension_is_described() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    built = {module["name"] for module in project["tool"]["setuptools"]["ext-modules"]}
    described = {extension.module for extension in EXTENSIONS}
    assert described == {name for name in built if not name.startswith("gpu.")}
