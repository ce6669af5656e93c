"""Package maps, decision records and paths in docstrings match the files of the repository."""

from __future__ import annotations

import fnmatch
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RECORDS = sorted((DOCS / "decisions").glob("*/[0-9]*.md"))
PACKAGES = ("vocabularies", "gpu", "service", "warptok", "benchmarks", "tests")
CODE_PACKAGES = ("vocabularies", "gpu", "service", "warptok")
MAX_MAP_LINES = 150
CODE = ("*.py", "*.cu", "*.cuh", "*.cpp", "*.hpp")
OURS = re.compile(
    r"\b(?:docs/(?:internals|decisions/[\w-]+)|gpu|service|vocabularies|benchmarks)/[\w-]+\.md\b"
)
DEVICE_FILE = re.compile(r"(?<![\w./*<-])[\w./*-]*[\w*]\.(?:cuh|cu)\b|(?<![\w./])cuda/[\w./*]*\w")
"""A path of device code, from any folder on."""
HOST_FILE = re.compile(r"(?<![\w./*-])([\w-]+)/[\w./-]+\.(?:py|pyi|cpp|hpp)\b")
"""A path of a module with a folder before it; of other projects where we have no such folder."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def folders(package: str) -> list[str]:
    """List the folders directly below a package that have code."""
    return sorted(
        path.name
        for path in (ROOT / package).iterdir()
        if path.is_dir() and any(path.rglob("*.py")) and path.name != "__pycache__"
    )


def is_in(package: str, name: str) -> bool:
    """Return whether a name is a path of the project, or the end of one of the package."""
    wanted = name.rstrip("/")
    if (ROOT / wanted).exists():
        return True
    paths = (relative(path) for path in (ROOT / package).rglob(wanted.rpartition("/")[2]))
    return any(path.endswith(f"/{wanted}") for path in paths)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_map_is_short_and_names_every_folder(package: str) -> None:
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_MAP_LINES
    assert [name for name in folders(package) if f"`{name}/" not in text] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_path_in_a_map_exists(package: str) -> None:
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+(?:/|\.(?:py|cuh|cu|cpp|hpp)))`", text))
    named |= set(re.findall(r"(?<![\w./])([\w-]+/[\w./-]+\.(?:py|cuh|cu|cpp|hpp))", text))
    assert named
    assert {name for name in named if not is_in(package, name)} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_the_links_of_a_map_lead_somewhere(package: str) -> None:
    check_links(ROOT / package / "README.md")


@pytest.mark.parametrize("package", CODE_PACKAGES)
def test_what_a_map_imports_can_be_imported(package: str) -> None:
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    for module, names in re.findall(r"^ {4}from ([\w.]+) import ([\w, ]+)$", text, re.MULTILINE):
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_records_have_numbers_of_their_own_and_are_in_the_index() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert len({path.name[:4] for path in RECORDS}) == len(RECORDS)
    listed = re.findall(r"^\| \[\d{4}\]\(([\w/-]+\.md)\)", index, re.MULTILINE)
    decisions = DOCS / "decisions"
    assert sorted(listed) == [path.relative_to(decisions).as_posix() for path in RECORDS]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_the_form(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    title = re.match(r"# (\d{4}) (.+)\n", text)
    assert title is not None and title[1] == path.name[:4]
    assert f"| {title[2]} |" in index
    assert re.findall(r"^\*\*([\w ]+)\.\*\*", text, re.MULTILINE)[:4] == [
        "Context",
        "Decision",
        "Figure",
        "Consequence",
    ]


def test_results_that_records_name_exist() -> None:
    for path in RECORDS:
        for name in re.findall(r"`(benchmarks/results/[\w./-]+)`", path.read_text("utf-8")):
            assert (ROOT / name).is_file(), f"{path.name}: {name}"


def test_documents_that_code_names_exist() -> None:
    for package in (*CODE_PACKAGES, "benchmarks"):
        for pattern in CODE:
            for path in (ROOT / package).rglob(pattern):
                for name in OURS.findall(path.read_text(encoding="utf-8")):
                    assert (ROOT / name).is_file(), f"{relative(path)}: {name}"


def code_files() -> list[Path]:
    """List our source files, without built files beside them."""
    packages = (ROOT / package for package in PACKAGES)
    return sorted(
        path for package in packages for pattern in CODE for path in package.rglob(pattern)
    )


def named_paths(text: str, folders: set[str]) -> set[str]:
    """Find the paths of our code that a text names."""
    own = {match[0] for match in HOST_FILE.finditer(text) if match[1] in folders}
    return own | set(DEVICE_FILE.findall(text))


def missing_paths(text: str, known: list[str]) -> set[str]:
    """Find the named paths that are no end of any file's or folder's path; * matches any name."""
    folders = {part for path in known for part in path.split("/")[:-1]}
    ends = {end for path in known for end in path_ends(path)}
    return {
        path
        for path in named_paths(text, folders)
        if path not in ends and not ("*" in path and fnmatch.filter(ends, path))
    }


def path_ends(path: str) -> list[str]:
    """List the ends of a path and of the folders above it: of a/b/c also b/c, c, a/b, b and a."""
    parts = path.split("/")
    return ["/".join(parts[begin:end]) for end in range(1, len(parts) + 1) for begin in range(end)]


def test_code_files_that_code_names_exist() -> None:
    files = code_files()
    known = [relative(path) for path in files]
    missing = {
        relative(path): names
        for path in files
        if (names := missing_paths(path.read_text(encoding="utf-8"), known))
    }
    assert missing == {}


def test_a_path_that_does_not_exist_is_found() -> None:
    known = ["gpu/cuda/common/job.cuh", "service/http/openapi.py"]
    text = "See common/job.cuh, cuda/common and http/openapi.py; not tiktoken_ext/public.py."
    assert missing_paths(text, known) == set()
    wrong = ["cuda/" + "job.cuh", "no_" + "rows.cuh", "http/" + "nothing.py", "cuda/" + "nothing"]
    assert missing_paths(", ".join(wrong), known) == set(wrong)


@pytest.mark.parametrize(
    "path", sorted((DOCS / "internals").glob("*.md")), ids=lambda path: path.stem
)
def test_the_links_of_internals_lead_somewhere(path: Path) -> None:
    check_links(path)


def test_the_links_of_records_lead_somewhere() -> None:
    for path in (*RECORDS, DOCS / "decisions" / "README.md"):
        check_links(path)


def check_links(path: Path) -> None:
    """Check that every relative link of a document is a file, and its anchor a heading of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{relative(path)}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
            assert anchor in anchors, f"{relative(path)}: {target}"
