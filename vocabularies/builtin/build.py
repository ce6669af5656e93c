"""Rebuilds the stored vocabularies: python -m vocabularies.builtin.build UPSTREAM_DIR.

Files are identified by their SHA-256, not by their names; SOURCES.md lists their origins.
"""

from __future__ import annotations

import hashlib
import lzma
import sys
from collections.abc import Mapping
from pathlib import Path

from vocabularies.builtin.upstream_files import SUFFIX, UPSTREAM
from vocabularies.formats import read_vocabulary
from vocabularies.model.canonical import to_bytes
from vocabularies.model.vocabulary import Vocabulary


def find_upstream(folder: Path) -> dict[str, Path]:
    """Find the upstream files in a folder: built-in name -> path."""
    names = {file.sha256: name for name, file in UPSTREAM.items()}
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest in names:
                found[names[digest]] = path
    return found


def rebuild(name: str, content: bytes) -> Vocabulary:
    """Read the built-in vocabulary of this name from the content of its upstream file."""
    return read_vocabulary({name: content}, format=UPSTREAM[name].format, decoder="inverse")


def compress(vocabulary: Vocabulary) -> bytes:
    """Compress the canonical form with xz; the same vocabulary always gives the same bytes."""
    return lzma.compress(to_bytes(vocabulary), preset=9 | lzma.PRESET_EXTREME)


def main(arguments: list[str]) -> int:
    """Write every stored vocabulary into this package; return 1 if a file is missing, else 0."""
    if len(arguments) != 1:
        print("usage: python -m vocabularies.builtin.build UPSTREAM_DIR", file=sys.stderr)
        return 2
    found: Mapping[str, Path] = find_upstream(Path(arguments[0]))
    for name in UPSTREAM:
        if name not in found:
            print(f"{name}: no file with sha256 {UPSTREAM[name].sha256}", file=sys.stderr)
            continue
        vocabulary = rebuild(name, found[name].read_bytes())
        stored = compress(vocabulary)
        (Path(__file__).parent / f"{name}{SUFFIX}").write_bytes(stored)
        print(f"{name}: {len(stored)} bytes, {vocabulary.digest}")
    return 0 if found.keys() == UPSTREAM.keys() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
