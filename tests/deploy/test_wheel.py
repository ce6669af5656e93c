"""`make wheel` builds for each architecture and accepts complete wheels for an old glibc."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.data_files import ROOT

WHEEL = ROOT / "deploy" / "wheel"
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(WHEEL)
    BUILD: dict[str, Any] = runpy.run_path(str(WHEEL / "build.py"))
    NEST: dict[str, Any] = runpy.run_path(str(WHEEL / "nest.py"))
ROOMS = NEST["INNER"]


def modules() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [module["name"] for module in project["tool"]["setuptools"]["ext-modules"]]


def write_wheel(folder: Path, extensions: list[str]) -> Path:
    path = folder / "warptok-0-cp313-cp313-manylinux_2_17_aarch64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in extensions:
            archive.writestr(
                f"warptok/{name.replace('.', '/')}.cpython-313-aarch64-linux-gnu.so", b""
            )
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


def sources() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = project["tool"]["setuptools"]["ext-modules"]
    return [source for module in modules for source in module["sources"]]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", BUILD["ARCHITECTURES"])
@pytest.mark.parametrize("source", sources())
def test_the_wheels_compiler_compiles_each_extension(
    source: str, architecture: str, tmp_path: Path
) -> None:
    pytest.importorskip("ziglang", reason="make integrations")
    compiler = BUILD["compiler_variables"]("zig", architecture)["CXX"].split()
    options = ["-std=c++17", "-fPIC", "-O0", f"-I{sysconfig.get_path('include')}"]
    done = subprocess.run(
        [*compiler, *options, "-c", source, "-o", tmp_path / "object"],
        cwd=ROOT,
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("wheel") / "sources"
    NEST["nest"](folder)
    return folder


def run(nested: Path, program: str) -> str:
    """Run a program on the nested sources, where the packages have no other name."""
    absent = f"import sys; sys.modules.update(dict.fromkeys({ROOMS}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{absent}; sys.path.insert(0, {str(nested)!r}); {program}"],
        cwd=nested.parent,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_has_one_top_level_name(nested: Path) -> None:
    assert sorted(path.name for path in nested.iterdir() if path.is_dir()) == ["warptok"]
    for path in (nested / "warptok").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.partition(".")[0] for name in names} & {*ROOMS}, path
    project = tomllib.loads((nested / "pyproject.toml").read_text())
    setuptools = project["tool"]["setuptools"]
    assert all(name.startswith("warptok") for name in setuptools["package-data"])
    for module in setuptools["ext-modules"]:
        assert module["name"].startswith("warptok.")
        assert all((nested / path).is_file() for path in module["sources"])
    assert project["project"]["scripts"]["warptok"].startswith("warptok.service.")
    assert project["project"]["optional-dependencies"].keys() >= {"gpu", "client"}


def test_modules_in_strings_are_renamed_and_other_strings_are_not() -> None:
    code = 'run("-m", "service.training.worker"); Resource("service.name"); engine = "gpu"\n'
    renamed = code.replace("service.training", "warptok.service.training")
    assert NEST["nest_code"](code) == renamed
    assert NEST["nest_code"]('Import("gpu.errors")') == 'Import("warptok.gpu.errors")'
    assert (
        NEST["nest_code"]("    import gpu.engine as e\n") == "    import warptok.gpu.engine as e\n"
    )


@pytest.mark.slow
def test_a_nested_package_encodes(nested: Path) -> None:
    program = "import warptok; print(warptok.load('hyenadna', device='cpu').encode('ACGT'))"
    assert run(nested, program) == "[7, 8, 9, 10, 1]\n"
    program = (
        "from warptok.__main__ import main; main(['encode', '-v', 'hyenadna', '--text', 'AC'])"
    )
    assert run(nested, program) == "7 8 1\n"
