"""Sequences for the DNA benchmark: the paper's shapes, and rows that are hard to get right.

Bases are those of E. coli where the data folder has them, else random; the results say which.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
ECOLI = "dna/ecoli_K12_MG1655.fa.gz"
RANDOM_BASES = 5_000_000
ACGT = np.frombuffer(b"ACGT", np.uint8)
CODES = np.frombuffer(b"NRYSWKMBDHVn-", np.uint8)
LENGTHS = (0, 1, 2, 5, 6, 7, 150, 512, 4_096, 65_536)
REAL_SHARE, LOW_SHARE = 0.4, 0.1


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of rows, and of bases in each; 0 bases: the whole genome is one row."""

    name: str
    rows: int
    bases: int


SHAPES = (
    Shape("4,096 x 512", 4096, 512),
    Shape("8,192 x 512", 8192, 512),
    Shape("2,048 x 2,048", 2048, 2048),
    Shape("batch 1 x 512", 1, 512),
    Shape("batch 64 x 512", 64, 512),
    Shape("batch 1,024 x 512", 1024, 512),
    Shape("length 1,024 x 128", 1024, 128),
    Shape("length 1,024 x 8,192", 1024, 8192),
    Shape("reads 65,536 x 150", 65536, 150),
    Shape("64 x 32 kb", 64, 32_768),
    Shape("16 x 131 kb", 16, 131_072),
    Shape("1 x 1 Mb", 1, 1_000_000),
    Shape("genome", 1, 0),
)
"""DNATok's configurations and sweeps, short reads, long sequences, a genome."""
QUICK = (Shape("64 x 512", 64, 512), Shape("2 x 32 kb", 2, 32_768))


@dataclass(frozen=True, eq=False)
class Sequences:
    """Rows of bases.

    Attributes:
        data: uint8[N], the rows joined.
        offsets: int64[B + 1].
    """

    name: str
    data: Bytes
    offsets: NDArray[np.int64]

    @cached_property
    def texts(self) -> list[str]:
        """Return the rows as strings."""
        text = self.data.tobytes().decode()
        return [text[b:e] for b, e in zip(self.offsets, self.offsets[1:], strict=False)]

    def part(self, begin: int, end: int) -> Sequences:
        """Return some of the rows."""
        offsets = self.offsets[begin : end + 1]
        data = self.data[offsets[0] : offsets[-1]]
        return Sequences(self.name, data, offsets - offsets[0])


def genome(data: Path | None) -> tuple[str, Bytes]:
    """Return the name and the bases of the genome that sequences are parts of."""
    if data is not None and (data / ECOLI).is_file():
        return ECOLI, records(data / ECOLI)[0]
    return "random", ACGT[np.random.default_rng(1).integers(0, 4, RANDOM_BASES)]


def sequences(shape: Shape, bases: Bytes) -> Sequences:
    """Take rows of one length from all over a genome, repeated where it is too short."""
    if not shape.bases:
        return Sequences(shape.name, bases, np.array([0, len(bases)]))
    size = shape.rows * shape.bases
    whole = np.resize(bases, size)
    offsets = np.arange(0, size + 1, shape.bases, dtype=np.int64)
    return Sequences(shape.name, whole, offsets)


def records(path: Path) -> list[Bytes]:
    """Read the sequences of a FASTA file."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    texts = [b"".join(record.split(b"\n")[1:]) for record in content.split(b">")[1:]]
    return [np.frombuffer(text.replace(b"\r", b""), np.uint8) for text in texts]


@functools.cache
def genomes(data: Path | None) -> list[Bytes]:
    """Read all FASTA files of the data folder."""
    if data is None:
        return []
    paths = sorted(path for path in (data / "dna").glob("*.fa*") if ".fastq" not in path.name)
    return [record for path in paths for record in records(path) if len(record)]


def proof_rows(
    data: Path | None, num_bases: int, seed: int | tuple[int, ...], most: int
) -> Iterator[Sequences]:
    """Make batches of random and real rows of all lengths, up to `num_bases` bases in all.

    Four tenths are parts of real genomes, with their N and soft masked bases; one tenth repeats one
    to six bases; the others are random, every third with other letters strewn in or in runs.

    Args:
        data: the data folder.
        num_bases: of all rows.
        seed: the same rows for the same seed, of one number or several.
        most: bases of a batch.
    """
    chance, real, made = np.random.default_rng(seed), genomes(data), 0
    while made < num_bases:
        rows: list[Bytes] = []
        size = 0
        while size < min(most, num_bases - made):
            rows.append(_row(chance, real))
            size += len(rows[-1])
        made += max(1, size)
        offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
        yield Sequences("proof", np.concatenate(rows), offsets)


def _row(chance: np.random.Generator, real: Sequence[Bytes]) -> Bytes:
    length = int(chance.choice(LENGTHS)) + int(chance.integers(0, 64))
    kind = chance.random()
    if real and kind < REAL_SHARE:
        source = real[int(chance.integers(len(real)))]
        begin = int(chance.integers(max(1, len(source) - length + 1)))
        return source[begin : begin + length]
    if kind < REAL_SHARE + LOW_SHARE:
        return np.resize(ACGT[chance.integers(0, 4, int(chance.integers(1, 7)))], length)
    row: Bytes = ACGT[chance.integers(0, 4, length, np.uint8)]
    if length and chance.random() < 1 / 3:
        places = chance.integers(0, length, max(1, length // 50))
        row[places] = CODES[chance.integers(0, len(CODES), len(places))]
        begin = int(chance.integers(length))
        row[begin : begin + int(chance.integers(1, 300))] = ord("N")
    if length and chance.random() < 1 / 8:
        row[length // 3 : length // 2] |= 0x20
    return row
