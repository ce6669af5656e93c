"""Measures the limits of the machine: reading, unpacking and writing alone, warm."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow.parquet as pq

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdFile
else:
    from backports.zstd import ZstdFile

PIECE = 8 << 20
ROUNDS = 3
MEGA = 1e6


def measure_limits(paths: dict[str, Path], text_bytes: int, folder: Path) -> dict[str, float]:
    """Return the MB of text per second of each step alone, on one thread; it writes uint16 ids."""
    return {
        "read jsonl": _rate(text_bytes, lambda: read_file(paths["jsonl"])),
        "unpack jsonl.zst": _rate(text_bytes, lambda: _unpack(paths["jsonl.zst"])),
        "read the column of parquet": _rate(text_bytes, lambda: read_column(paths["parquet"])),
        "write ids": _rate(text_bytes, lambda: write_file(folder / "limit", text_bytes // 2)),
    }


def _rate(num_bytes: int, work: Callable[[], None]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        begun = perf_counter()
        work()
        seconds.append(perf_counter() - begun)
    return num_bytes / MEGA / sorted(seconds)[ROUNDS // 2]


def read_file(path: Path) -> None:
    """Read all bytes of a file."""
    memory = memoryview(bytearray(PIECE))
    with open(path, "rb", buffering=0) as file:
        while file.readinto(memory):
            pass


def _unpack(path: Path) -> None:
    memory = memoryview(bytearray(PIECE))
    with ZstdFile(path, "rb") as file:
        while file.readinto(memory):
            pass


def read_column(path: Path) -> None:
    """Read and decompress the texts of a Parquet file."""
    parquet = pq.ParquetFile(path, pre_buffer=False)
    for number in range(parquet.num_row_groups):
        parquet.read_row_group(number, columns=["text"], use_threads=False)


def write_file(path: Path, num_bytes: int) -> None:
    """Write a file of zeros, wait until its disk has it, and remove it."""
    piece = np.zeros(PIECE, np.uint8)
    with open(path, "wb", buffering=0) as file:
        for begin in range(0, num_bytes, PIECE):
            file.write(piece.data[: num_bytes - begin])
        os.fsync(file.fileno())
    path.unlink()
