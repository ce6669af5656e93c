"""Rules that import-linter cannot check: libraries, unsafe functions, data files, docstrings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.data_files import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("vocabularies", "gpu", "service", "warptok")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
# The libraries that a package may import; import-linter's contracts hold the packages' order.
LIBRARIES = {
    "vocabularies": {"numpy", "ahocorasick_rs"},
    "gpu": {"numpy", "cupy", "torch"},
}
# Programs for developers: what they import inside functions is no dependency of the package.
DEVELOPERS_ONLY = {
    "service/protos/generate.py",
    "vocabularies/preprocessing/probe_unicode.py",
    "vocabularies/builtin/build.py",
}
DOCUMENTS = ("README.md",)  # For readers of the sources only.


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Each imported top-level name of a module, and whether it is imported inside a function."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0], id(node) in inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno} imports relatively"
            assert node.module is not None
            yield node.module.split(".")[0], id(node) in inside


def allowed(path: Path, name: str, inside: bool) -> bool:
    if name in ("tests", "benchmarks"):
        return False
    libraries = LIBRARIES.get(relative(path).split("/")[0])
    if libraries is None or name in PACKAGES or name in sys.stdlib_module_names:
        return True
    return name in libraries or (inside and relative(path) in DEVELOPERS_ONLY)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_packages_import_only_their_libraries(path: Path) -> None:
    wrong = {name for name, inside in imports(path) if not allowed(path, name, inside)}
    assert wrong == set()


def test_folders_import_in_one_direction() -> None:
    """Hold the contracts of `[tool.importlinter]` in pyproject.toml."""
    pytest.importorskip("importlinter")
    # In a process of its own: it configures logging.
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def packages_that_import(*libraries: str) -> set[str]:
    return {
        relative(path).split("/")[0]
        for path in MODULES
        for name, _ in imports(path)
        if name in libraries
    }


def test_only_the_embedding_layer_imports_torch() -> None:
    """Everything else runs where torch is not installed."""
    importing = {relative(path) for path in MODULES for name, _ in imports(path) if name == "torch"}
    assert importing
    assert all(path.startswith("gpu/embedding/") for path in importing)


def test_tests_are_collected_where_neither_torch_nor_cupy_is_installed() -> None:
    """`make test` installs neither: a module that imports one at its top would be an error."""
    for path in (ROOT / "tests").rglob("*.py"):
        inside = {name: within for name, within in imports(path) if name in ("torch", "cupy")}
        assert all(inside.values()), f"{relative(path)} imports {', '.join(inside)}"


def test_every_library_is_one_that_the_package_asks_for() -> None:
    project = PYPROJECT["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["gpu"]]
    asked += project["optional-dependencies"]["embedding"]
    asked += project["optional-dependencies"]["client"]
    asked += project["optional-dependencies"]["urls"]
    asked += project["optional-dependencies"]["ray"]
    names = {re.split(r"[^a-z0-9-]", line)[0].replace("-", "_") for line in asked}
    # Another import name, part of a library that is asked for, or a standard one from 3.14 on.
    names |= {"starlette", "cupy", "cupyx", "isal", "compression"}
    names |= {"grpc", "grpc_health", "grpc_reflection", "grpc_status", "google", "opentelemetry"}
    used = {
        name
        for path in MODULES
        for name, inside in imports(path)
        if not (inside and relative(path) in DEVELOPERS_ONLY)
        # A stage for a project's pipelines is named after the project.
        if relative(path) != f"warptok/integrations/{name}.py"
    }
    assert used - names - set(PACKAGES) - sys.stdlib_module_names == set()


def test_nothing_is_unpickled_or_evaluated() -> None:
    modules = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}
    assert packages_that_import(*modules) == set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{relative(path)}:{node.lineno}"
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert ast.unparse(node.value) == "False", f"{relative(path)}:{node.value.lineno}"


def test_gpu_can_be_imported_where_cupy_is_not_installed() -> None:
    # A None in sys.modules makes Python refuse the import, installed or not.
    program = "import sys; sys.modules['cupy'] = None; sys.modules['torch'] = None; import gpu"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command_line_starts_without_the_web_framework() -> None:
    program = "import sys, service.cli.encode; sys.exit('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("parser", "numpy pydantic"),
        ("corpus", "pydantic jinja2 pyarrow fsspec dnaio gpu.kernels service.corpus.reading.chats"),
    ],
)
def test_a_command_starts_without_what_only_others_need(module: str, unneeded: str) -> None:
    program = (
        f"import sys, service.cli.{module}; print(*set('{unneeded}'.split()) & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_the_service_starts_without_the_tables_of_kernels() -> None:
    program = "import sys, service.server.uvicorn_server; sys.exit('gpu.kernels' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_package_says_that_it_is_typed() -> None:
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()


def test_every_data_file_of_a_package_is_packaged() -> None:
    package_data = PYPROJECT["tool"]["setuptools"]["package-data"]
    packaged = {
        path
        for package, patterns in package_data.items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if (
                not path.is_file()
                or path.suffix in (".py", ".pyc", ".so")
                or path.name in DOCUMENTS
            ):
                continue
            assert path in packaged, f"{relative(path)} is not in the wheel"


def test_every_module_says_what_it_is_for() -> None:
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), relative(path)
