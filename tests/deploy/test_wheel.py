"""`make wheel` builds for each architecture and accepts complete wheels for an old glibc."""

from __future__ import annotations

import runpy
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.data_files import ROOT

BUILD: dict[str, Any] = runpy.run_path(str(ROOT / "deploy" / "wheel" / "build.py"))


def modules() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [module["name"] for module in project["tool"]["setuptools"]["ext-modules"]]


def write_wheel(folder: Path, extensions: list[str]) -> Path:
    path = folder / "warptok-0-cp313-cp313-manylinux_2_17_aarch64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in extensions:
            archive.writestr(f"{name.replace('.', '/')}.cpython-313-aarch64-linux-gnu.so", b"")
    return path


def test_a_wheel_without_an_extension_is_refused(tmp_path: Path) -> None:
    complete = modules()
    assert BUILD["find_missing"](write_wheel(tmp_path, complete)) == ""
    assert BUILD["find_missing"](write_wheel(tmp_path, complete[1:])) == f"lacks {complete[0]}"


@pytest.mark.parametrize(
    ("tag", "fits"),
    [("manylinux2014_x86_64.manylinux_2_17_x86_64", True), ("manylinux_2_35_x86_64", False)],
)
def test_a_wheel_for_a_newer_glibc_is_refused(tag: str, fits: bool) -> None:
    assert BUILD["is_for_glibc"](f"warptok-0.1.0-cp311-cp311-{tag}.whl") == fits


@pytest.mark.parametrize("architecture", BUILD["ARCHITECTURES"])
def test_the_compiler_and_the_names_are_for_the_architecture(architecture: str) -> None:
    variables = BUILD["compiler_variables"]("zig", architecture)
    assert variables["CXX"].endswith(f"c++ -target {architecture}-linux-gnu.2.17")
    assert variables["SETUPTOOLS_EXT_SUFFIX"].endswith(f"-{architecture}-linux-gnu.so")
    assert variables["_PYTHON_HOST_PLATFORM"] == f"linux-{architecture}"
    assert (
        BUILD["compiler_variables"]("g++", architecture)["CXX"] == f"{architecture}-linux-gnu-g++"
    )
