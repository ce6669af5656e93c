"""Makes any amount of mixed real and random text, in rows of every length, for comparisons.

This module depends on no engine, and uses only the bytes of some tokens of a vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.support.corpora import hostile, numbers, paragraphs, runs, tiled
from benchmarks.support.texts import Bytes, Int64s, Text, character_begins

CHUNK_BYTES = 32 << 20
SLACK_BYTES = 256  # A chunk may be shorter than asked for, by its parts' last characters.
BLOCK_BYTES = 1 << 14
SEEDS = 64  # Of a chunk.
SURROGATES, NUM_SURROGATES = 0xD800, 0x800
# First code point and how many: ASCII, Latin, Greek to Arabic, Indic, Thai to Tibetan, Ethiopic,
# kana, ideographs, Hangul, marks, punctuation, numbers, emoji, joiners, any.
CODE_POINTS = (
    (0x20, 0x5F),
    (0x09, 0x05),
    (0xA0, 0x1B0),
    (0x370, 0x390),
    (0x900, 0x300),
    (0xE00, 0x200),
    (0x1200, 0x180),
    (0x3000, 0x100),
    (0x4E00, 0x5200),
    (0xAC00, 0x2BA0),
    (0x300, 0x70),
    (0x2000, 0x70),
    (0x2150, 0x40),
    (0x1F300, 0x700),
    (0x200B, 3),
    (0x0, 0x110000),
)


def mixed_texts(folder: Path, pieces: Sequence[bytes], total: int) -> Iterator[Text]:
    """Make at least `total` bytes in chunks; each differs, and is the same on every machine.

    Args:
        folder: the data folder, of which every text is used.
        pieces: tokens and special tokens, of which random rows are put together.
        total: bytes of all chunks.
    """
    files = sorted((folder / "text").iterdir())
    real = [part for path in files for part in paragraphs(path.read_bytes())]
    number = 0
    while total > 0:
        size = min(total + SLACK_BYTES, CHUNK_BYTES)
        seed = 1000 + SEEDS * number
        kinds = (
            tiled(real, size * 2 // 5, seed),
            code_points(size // 5, seed + 10),
            of_pieces(pieces, size // 5, seed + 20),
            hostile(size // 10, 16, seed + 30),
            runs(size // 10, seed + 40),
        )
        data = shuffled([block for kind in kinds for block in blocks(kind)], seed + 50)
        offsets = random_rows(data, seed + 51)
        yield Text(f"mixed {number}", data, offsets, offsets)
        total -= len(data)
        number += 1


def code_points(size: int, seed: int) -> Bytes:
    """Make runs of 1 to 16 random code points, each run of one Unicode block."""
    count = size // 2
    drawn = numbers(seed, count // 8 + 1)
    lengths = 1 + ((drawn >> np.uint64(32)) % np.uint64(16)).astype(np.int64)
    which = np.repeat(drawn % np.uint64(len(CODE_POINTS)), lengths)
    kinds = np.resize(which, count).astype(np.intp)
    firsts, spans = np.array(CODE_POINTS, np.uint64).T
    codes = (firsts[kinds] + numbers(seed + 1, count) % spans[kinds]).astype("<u4")
    codes[(codes >= SURROGATES) & (codes < SURROGATES + NUM_SURROGATES)] += NUM_SURROGATES
    encoded = codes.tobytes().decode("utf-32-le").encode()
    return whole(np.frombuffer(encoded, np.uint8), size)


def of_pieces(pieces: Sequence[bytes], size: int, seed: int) -> Bytes:
    """Join random pieces, without bytes that are not UTF-8."""
    mean = max(1, sum(map(len, pieces)) // len(pieces))
    chosen = (numbers(seed, 2 * size // mean + 2) % np.uint64(len(pieces))).tolist()
    joined = b"".join([pieces[i] for i in chosen]).decode(errors="ignore").encode()
    return whole(np.frombuffer(joined, np.uint8), size)


def whole(data: Bytes, size: int) -> Bytes:
    """Return the first `size` bytes, or fewer, so that no character is cut."""
    if len(data) <= size:
        return data
    return data[: int(character_begins(data, np.array([size]))[0])]


def blocks(data: Bytes) -> list[Bytes]:
    """Cut data into parts of about BLOCK_BYTES, each of whole characters."""
    places = character_begins(data, np.arange(0, len(data), BLOCK_BYTES))
    return np.split(data, places[1:].tolist())


def shuffled(parts: Sequence[Bytes], seed: int) -> Bytes:
    """Shuffle the parts."""
    order = np.argsort(numbers(seed, len(parts)), kind="stable").tolist()
    return np.concatenate([parts[i] for i in order])


def random_rows(data: Bytes, seed: int) -> Int64s:
    """Choose where rows begin: from empty ones to some of 64 KiB."""
    drawn = numbers(seed, len(data) // 100 + 8)
    limits = np.array([3, 40, 200, 1000, 1000, 2000, 4000, 1 << 14], np.uint64)
    limit = limits[(drawn % np.uint64(8)).astype(np.intp)]
    limit[(drawn >> np.uint64(3)) % np.uint64(64) == 0] = 1 << 16
    places = np.cumsum((drawn >> np.uint64(16)) % limit).astype(np.int64)
    inner = character_begins(data, places[places < len(data)])
    return np.concatenate(([0], inner, [len(data)])).astype(np.int64)
