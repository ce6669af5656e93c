"""Reads the real vocabularies, texts and genomes of the data folder.

They are not part of the repository: WARPTOK_DATA names their folder; without it `shared/data`
beside the checkout is tried. Tests that need a file which is not there are skipped with the reason.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("WARPTOK_DATA") or ROOT.parent / "shared" / "data")


def data_bytes(name: str) -> bytes:
    """Read a data file, decompressed; skip the test if the file is absent."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"no {name} in the data folder (set WARPTOK_DATA)")
    data = path.read_bytes()
    if name.endswith(".gz"):
        return gzip.decompress(data)
    return lzma.decompress(data) if name.endswith(".xz") else data


def data_json(name: str) -> Any:
    """Read a JSON data file."""
    return json.loads(data_bytes(name))


@functools.cache
def expected() -> dict[str, dict[str, dict[str, Any]]]:
    """Return {vocabulary: {file: {n_tokens, sha256}}} of the reference's ids; {} without data."""
    path = DATA / "expected.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def records(name: str) -> list[str]:
    """Read the sequences of a FASTA or FASTQ file, or a text file as one text, unchanged."""
    text = data_bytes(name).decode()
    if ".fa" not in name:
        return [text]
    if ".fastq" in name:
        return text.splitlines()[1::4]
    return ["".join(record.splitlines()[1:]) for record in text.split(">")[1:]]


def ids_digest(ids: Any) -> str:
    """Hash ids as little-endian int32, as in expected.json."""
    return hashlib.sha256(np.asarray(ids, "<i4").tobytes()).hexdigest()
