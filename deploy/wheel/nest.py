"""Puts the packages service, gpu and vocabularies below warptok, in a copy of the sources.

    python deploy/wheel/nest.py FOLDER

A wheel of that copy has warptok as its only top-level name, so that it takes no other package's
place. Names change wherever code has them: imports, modules in strings (`-m`, C++) and
pyproject.toml. docs/decisions/project/0085 says why.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTER = "warptok"
INNER = ("service", "gpu", "vocabularies")
FILES = ("pyproject.toml", "README.md", "LICENSE")
CODE = (".py", ".pyi", ".cpp", ".hpp")
NAMES = "|".join(INNER)
IMPORT = re.compile(rf"^([ \t]*(?:from|import) )({NAMES})(?=[. ])", re.MULTILINE)
STRING = re.compile(rf'"(({NAMES})\.(\w+))')
PLACE = re.compile(rf'"({NAMES})(?=[./*])')
PACKAGE_DATA = "[tool.setuptools.package-data]\n"
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.so", "build")


def nest(folder: Path) -> None:
    """Copy the sources to a folder that does not exist yet, with the packages nested."""
    shutil.copytree(ROOT / OUTER, folder / OUTER, ignore=NOT_COPIED)
    for name in INNER:
        shutil.copytree(ROOT / name, folder / OUTER / name, ignore=NOT_COPIED)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    for path in folder.rglob("*"):
        if path.suffix in CODE:
            path.write_text(nest_code(path.read_text(encoding="utf-8")), encoding="utf-8")
    project = folder / "pyproject.toml"
    project.write_text(nest_project(project.read_text(encoding="utf-8")), encoding="utf-8")


def nest_code(code: str) -> str:
    """Change the names of modules in code.

    Example: `from gpu.engine import x` becomes `from warptok.gpu.engine import x`.
    """
    return STRING.sub(_nest_string, IMPORT.sub(rf"\1{OUTER}.\2", code))


def _nest_string(found: re.Match[str]) -> str:
    """Change the name of a module in a string; others, such as "service.name", stay."""
    is_module = any((ROOT / found[2]).glob(f"{found[3]}*"))
    return f'"{OUTER}.{found[1]}' if is_module else found[0]


def nest_project(text: str) -> str:
    """Change the names and paths of packages in what pyproject.toml says of the build."""
    build, ruff, rest = text.partition("[tool.ruff]\n")
    before, header, data = build.partition(PACKAGE_DATA)
    data = re.sub(rf"^({NAMES}) = ", rf'"{OUTER}.\1" = ', data, flags=re.MULTILINE)
    return PLACE.sub(_nest_place, before + header + data) + ruff + rest


def _nest_place(found: re.Match[str]) -> str:
    following = found.string[found.end()]
    return f'"{OUTER}{"/" if following == "/" else "."}{found[1]}'


if __name__ == "__main__":
    nest(Path(sys.argv[1]))
