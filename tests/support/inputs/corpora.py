"""Makes documents, their files, and Megatron's bytes of rows, for tests of `warptok corpus`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson

WORDS = "the quick brown fox jumps over a lazy dog, and 42 more — naïve 中文 🙂 \n \t".split(" ")


def make_texts(count: int, seed: int = 0, most_words: int = 60) -> list[str]:
    """Make documents, some of them empty."""
    source = np.random.default_rng(seed)
    return [
        " ".join(source.choice(WORDS, source.integers(0, most_words))) if i % 17 else ""
        for i in range(count)
    ]


def write_jsonl(path: Path, texts: Sequence[str]) -> Path:
    """Write documents as lines of JSON."""
    lines = [orjson.dumps({"id": i, "text": text}) + b"\n" for i, text in enumerate(texts)]
    path.write_bytes(b"".join(lines))
    return path


def megatron_bytes(rows: Sequence[Sequence[int]], is_narrow: bool) -> tuple[bytes, bytes]:
    """Return the .bin and .idx of documents, as Megatron's IndexedDatasetBuilder writes them.

    This is Megatron's code without its lists of tensors; benchmarks/corpus runs Megatron itself.
    """
    kind = "H" if is_narrow else "i"
    data = b"".join(struct.pack(f"<{len(row)}{kind}", *row) for row in rows)
    lengths = [len(row) for row in rows if row]
    pointers = [0]
    for length in lengths:
        pointers.append(pointers[-1] + length * struct.calcsize(kind))
    documents = [0]
    for row in rows:
        documents.append(documents[-1] + bool(row))
    index = b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, 8 if is_narrow else 4)
    index += struct.pack("<QQ", len(lengths), len(documents))
    index += np.array(lengths, np.int32).tobytes()
    index += np.array(pointers[:-1], np.int64).tobytes()
    index += np.array(documents, np.int64).tobytes()
    return data, index


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Return the content of each file of a folder, except the lock and the times of the inputs."""
    hidden = (".lock", ".inputs")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in hidden}
