"""Makes texts that are slow to split: the hardest patterns for each stage of splitting.

The bytes are the same on every machine. This module depends on no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from benchmarks.support.corpora import numbers
from benchmarks.support.texts import Bytes, Text, character_begins

MARKS, WHITE = b"-=_*#.~+/\\<>(){}[]|;:'\"`&^%$@!?,", b" \n\t"
LOWER, DIGITS = b"abcdefghijklmnopqrstuvwxyz", b"0123456789"
ALPHABETS = {"marks": MARKS, "white": WHITE, "letters": LOWER, "digits": DIGITS}
LENGTHS = (2, 3, 5, 8, 13, 21, 34, 55, 89, 100, 144, 233, 500, 1000, 3000)
SPREADS = ((1, 4), (1, 64), (30, 70), (60, 140), (100, 400), (1, 3000))
TIMES = (1, 10, 30, 3000)
Named = Iterator[tuple[str, Bytes]]


def _drawn(seed: int, count: int, low: int, high: int) -> np.ndarray:
    """Draw random int64[count] from `low` to `high`, both included."""
    return low + (numbers(seed, count) % np.uint64(high - low + 1)).astype(np.int64)


def _bytes(content: bytes) -> Bytes:
    return np.frombuffer(content, np.uint8)


def _runs(alphabet: bytes, lengths: np.ndarray, seed: int) -> Bytes:
    """Make a run of each length, of letters that differ from their neighbours if there are two."""
    steps = _drawn(seed, len(lengths), 1, max(1, len(alphabet) - 1))
    return np.repeat(_bytes(alphabet)[np.cumsum(steps) % len(alphabet)], lengths)


def _single(size: int) -> Named:
    for unit in ("-", "=", ".", " ", "\n", "\t", "a", "0", "─", "é", "的", "😀", "\n ", " \n\t"):
        yield f"run of {unit!r}", _bytes(unit.encode())
    yield "random letters", _bytes(LOWER)[_drawn(1, size, 0, 25)]
    yield "random marks", _bytes(MARKS)[_drawn(2, size, 0, len(MARKS) - 1)]
    yield "random digits", _bytes(DIGITS)[_drawn(3, size, 0, 9)]


def _odd(size: int) -> Named:
    """Make runs of one letter that another letter interrupts at regular distances."""
    for run, other in ("-=", "=-", " \n", "\t ", "aB", "*/"):
        for every in (2, 3, 7, 17, 33, 65, 129, 144, 300, 1000, 3000):
            yield (
                f"{run!r}, every {every}th {other!r}",
                _bytes((run * (every - 1) + other).encode()),
            )


def _behind(size: int) -> Named:
    """Make runs that follow each other, of equal, random and growing lengths."""
    for seed, (name, alphabet) in enumerate(ALPHABETS.items(), 10):
        for length in LENGTHS:
            counts = np.full(size // length + 1, length)
            yield f"runs of {length} {name}", _runs(alphabet, counts, seed)
        for low, high in SPREADS:
            counts = _drawn(seed, 2 * size // (low + high) + 64, low, high)
            yield f"runs of {low} to {high} {name}", _runs(alphabet, counts, seed)
    for low, high in SPREADS:
        counts = _drawn(5, 2 * size // (low + high) + 64, low, high)
        yield f"runs of {low} to {high} of any", _runs(b"".join(ALPHABETS.values()), counts, 20)
    counts = np.stack([np.arange(1, 1500), 7 * np.arange(1, 1500)], 1).ravel()
    for pair in (b"-=", b" \n", b"ab"):
        yield f"1, 2, 3 ... of {pair!r}", np.repeat(np.resize(_bytes(pair), len(counts)), counts)


def _periods(_: int) -> Named:
    """Repeat a few random letters."""
    for seed, (name, alphabet) in enumerate(ALPHABETS.items(), 30):
        for period in (2, 3, 4, 5, 7, 11, 16, 31, 33, 40, 63, 64, 65, 97, 128, 150, 200):
            unit = _bytes(alphabet)[_drawn(seed + period, period, 0, len(alphabet) - 1)]
            yield f"period of {period} {name}", unit


def _tokens(size: int, tokens: Sequence[bytes]) -> Named:
    """Join random tokens of one alphabet, each repeated several times."""
    for seed, (name, alphabet) in enumerate(ALPHABETS.items(), 90):
        letters = frozenset(alphabet)
        own = [token for token in tokens if len(token) > 1 and letters.issuperset(token)]
        longest = sorted(own, key=len)[-30:]
        for kind, chosen in (("", own), ("longest ", longest)):
            for times in TIMES if chosen else ():
                order = _drawn(seed + times, min(20_000, size // times + 1), 0, len(chosen) - 1)
                parts, total = [], 0
                for number in order.tolist():
                    parts.append(chosen[number] * times)
                    total += len(parts[-1])
                    if total > size:
                        break
                yield f"{kind}tokens of {name}, {times} times each", _bytes(b"".join(parts))


def _others(_: int) -> Named:
    yield "contractions", _bytes(b"'s't're've'm'll'd")
    yield "special tokens", _bytes(b"<|endoftext|>")
    yield "words joined", _bytes(b"internationalization" + b"photosynthesis" + b"xyzzy" * 3)
    for text in ("lant", "пр", ".:.:.:..:"):  # Of ranks above those of longer tokens of Llama 3.
        yield f"{text!r} again and again", _bytes(text.encode())
    yield "marks and a letter", _bytes(b"-" * 200 + b"a")
    yield "digits and a blank", _bytes(b"7" * 300 + b" ")


def slow_texts(size: int, tokens: Sequence[bytes], names: Collection[str] = ()) -> Iterator[Text]:
    """Make slow texts of about `size` bytes, most of one row: all, or those with these names.

    `tokens` are those of a vocabulary.
    """
    families: tuple[Callable[[int], Named], ...] = (_single, _odd, _behind, _periods, _others)
    for named in (*(family(size) for family in families), _tokens(size, tokens)):
        for name, unit in named:
            if names and name not in names:
                continue
            data = np.resize(unit, size)
            # The first byte that is cut off may be inside a character.
            end = character_begins(np.append(data, unit[size % len(unit)]), np.array([size]))
            data = data[: int(end[0])]
            offsets = np.array([0, len(data)], np.int64)
            yield Text(name, data, offsets, offsets)
    for length in (1, 2, 3, 16):
        if names and f"rows of {length}" not in names:
            continue
        offsets = np.append(np.arange(0, size, length), size).astype(np.int64)
        yield Text(f"rows of {length}", np.resize(_bytes(LOWER), size), offsets, offsets)
