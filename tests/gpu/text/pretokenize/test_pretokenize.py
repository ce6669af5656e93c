"""The pretokenizer's kernels, compiled as C++, against the published patterns."""

from __future__ import annotations

import ctypes
import functools
import itertools
import random
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.kernels.job import CUDA, JOB, constant
from gpu.text.pretokenizer_automaton import COVERED, automaton
from tests.gpu.text.pretokenize.test_pretokenizer_automaton import representatives
from tests.support.compiled import EMULATION_FLAGS, compiled
from tests.support.data_files import DATA, ROOT, data_bytes
from tests.support.inputs.nasty_texts import RUNS, TEXTS
from vocabularies.preprocessing.pretokenizers import pretokenize

SUPPORT = ROOT / "tests/support/emulation/cuda"
FILES = sorted(path.name for path in (DATA / "text").glob("*.*")) or ["(no data)"]
TILE = constant("TILE")


@functools.cache
def library() -> ctypes.CDLL:
    """tests/support/emulation/cuda/pretokenize.cpp, built."""
    flags = (*EMULATION_FLAGS, "-Wall", "-Werror", f"-I{CUDA}", f"-I{SUPPORT}")
    included = (*sorted(SUPPORT.glob("*.*")), *sorted(CUDA.rglob("*.cu*")))
    path = SUPPORT / "pretokenize.cpp"
    return ctypes.CDLL(str(compiled(path.stem, path.read_text(), flags, included)))


def bits(places: Iterable[int], num_bytes: int) -> np.ndarray:
    flags = np.zeros((num_bytes // 64 + 2) * 64, np.uint8)
    flags[list(places)] = 1
    return np.packbits(flags, bitorder="little").view(np.uint64)


class Batch:
    """Texts joined as the kernels get them, in memory of this process."""

    def __init__(self, name: str, texts: Sequence[bytes]) -> None:
        tables, data = automaton(name), b"".join(texts)
        offsets = list(itertools.accumulate(map(len, texts), initial=0))
        num_tiles = len(data) // TILE + 1
        # Bytes behind the text that would give themselves away.
        self.text = np.frombuffer(data + b" 'a\n" * 16, np.uint8).copy()
        self.hard = bits(offsets, len(data))
        self.starts = np.full(len(data) // 64 + 2, 0xABABABABABABABAB, np.uint64)
        self.bad_tiles = np.zeros(1, np.uint32)
        self.num_bytes = len(data)
        self.job = np.zeros((), JOB)
        self.kept = {
            "text": self.text,
            "hard": self.hard,
            "starts": self.starts,
            "bad_tiles": self.bad_tiles,
            "entries": tables.entries,
            "class_pages": tables.pages,
            "class_table": tables.page_rows,
            "half_states": np.full((num_tiles, 2), 0xEE, np.uint8),
            "tile_state": np.full(num_tiles, 0xEE, np.uint8),
            "tile_entry": np.full(num_tiles, 0xEE, np.uint8),
            "tile_function": np.full((num_tiles, 32), 0xEE, np.uint8),
            "tile_pending": np.full((num_tiles, 32), 0xEE, np.uint8),
            "chunk_before": np.full((num_tiles, TILE // 64, 32), 0xEE, np.uint8),
            "chunk_pending": np.full((num_tiles, TILE // 64, 32), 0xEE, np.uint8),
        }
        for field, array in self.kept.items():
            self.job[field] = array.ctypes.data
        self.job["num_bytes"] = len(data)
        self.job["num_states"], self.job["num_classes"] = tables.num_certain, tables.num_classes

    def run(self, slow: bool = False, num_blocks: int = 1, large: bool = False) -> np.ndarray:
        """Where pretokens begin; `slow` makes all tiles bad, `large` reads whole chunks."""
        place = ctypes.c_void_p(self.job.ctypes.data)
        library().pretokenize_batch(place, num_blocks, int(slow), int(large))
        words = self.starts[: (self.num_bytes + 63) // 64]
        assert (self.starts[len(words) :] == 0xABABABABABABABAB).all()
        return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))


def expected_starts(name: str, texts: Sequence[bytes]) -> np.ndarray:
    found, offset = [np.zeros(0, np.int64)], 0
    for data in texts:
        array = np.frombuffer(data, np.uint8)
        characters = np.flatnonzero(array >> 6 != 2)
        begins = [begin for begin, _ in pretokenize(name, data.decode())]
        found.append(characters[begins] + offset if begins else found[0])
        offset += len(data)
    return np.concatenate(found)


def assert_alike(
    name: str, texts: Sequence[bytes], found: np.ndarray, expected: np.ndarray | None = None
) -> None:
    expected = expected_starts(name, texts) if expected is None else expected
    data = b"".join(texts)
    if not np.array_equal(found, expected):
        first = int(np.setxor1d(found, expected)[0])
        near = data[max(first - 80, 0) : first + 80]
        wanted = bool(np.isin(first, expected))
        raise AssertionError(f"{name}: byte {first} of {len(data)}, expected {wanted}: ...{near!r}")


def check(name: str, texts: Iterable[bytes], slow: bool = True) -> None:
    """The texts joined to one batch, the ways of small and large ones, and the slow way."""
    rows = list(texts)
    expected = expected_starts(name, rows)
    assert_alike(name, rows, Batch(name, rows).run(), expected)
    assert_alike(name, rows, Batch(name, rows).run(large=True), expected)
    if slow:
        assert_alike(name, rows, Batch(name, rows).run(slow=True), expected)


def random_text(name: str, source: random.Random, num_runs: int) -> bytes:
    text = ""
    for _ in range(num_runs):
        letters = source.choice(representatives(name))
        text += "".join(source.choices(letters, k=source.choice((1, 1, 1, 1, 2, 3, 5, 20))))
    return text.encode()


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.slow
def test_random_strings_of_classes(name: str) -> None:
    source = random.Random(name)
    for num_runs in (1, 3, 10, 30, 100, 300, 1000, 5000):
        for _ in range(10_000 // (num_runs + 300)):
            check(name, [random_text(name, source, num_runs)])


@pytest.mark.parametrize("name", COVERED)
def test_a_run_of_bytes_inside_of_no_character_is_read_past_what_is_in_shared_memory(name: str):
    """Such a row is refused; it is read all the same, and the one behind it is not touched."""
    for size in (TILE - 100, TILE, 3 * TILE):
        rows = [b"x  ", b"a  " + b"\x80" * size + b" b", b"c  d"]
        small, large = Batch(name, rows).run(), Batch(name, rows).run(large=True)
        assert small.tolist() == large.tolist()
        begin = len(rows[0]) + len(rows[1])
        assert (small[small >= begin] - begin).tolist() == expected_starts(name, rows[2:]).tolist()


@pytest.mark.parametrize("name", COVERED)
def test_joined_texts(name: str) -> None:
    source = random.Random(name)
    for num_runs in (1, 3, 10, 30, 100):
        lengths = [source.randint(0, 2 * num_runs) for _ in range(2000 // num_runs)]
        check(name, [random_text(name, source, length) for length in lengths])
    check(name, [text.encode() for text in (*TEXTS, *RUNS)])
    check(name, [])
    check(name, [b"", b""])


@pytest.mark.parametrize("name", COVERED)
def test_runs_of_every_length(name: str) -> None:
    letters = [two[0] for two in representatives(name)]
    lengths = [*range(71), *range(126, 131), 200, 300]
    for before, after in ((b"", b""), (b"x\n", b"a"), (b"'", b"\n "), ("中".encode(), b"A!")):
        check(name, (before + letter.encode() * n + after for letter in letters for n in lengths))
        for offset in (1, 62, 63):
            texts = [b" " * offset, *(before + letter.encode() * 64 + after for letter in letters)]
            check(name, [b"".join(texts)])


@pytest.mark.parametrize("name", COVERED)
def test_long_runs_around_a_tile(name: str) -> None:
    letters = [two[0].encode() for two in representatives(name)]
    for letter in letters:
        for length in (TILE - 1, TILE, TILE + 1, 5 * TILE + 7):
            for before, after in ((b"", b""), (b"x\n", b"a"), ("中".encode(), b"A\n")):
                text = before + letter * (length // len(letter)) + after
                check(name, [text], slow=False)
                check(
                    name, [b"ab c\n", text, b"'s", text[1:] if text[0] < 128 else text], slow=False
                )


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.slow
def test_what_is_pending_over_many_tiles(name: str) -> None:
    source = random.Random(name)
    for after in ("", "x", "\n", "\nx", "  x", "1", "!", "中", "A", "a", "'", "'s", "'l", "'lx"):
        for before in ("\n", "x\n", "中A", "!\n", "a'", ""):
            for inside in (" ", "A", "\t ", "\u3000"):
                count = source.choice((300, 4000, 4096, 9000, 17000))
                text = before + inside * (count // len(inside.encode())) + after
                check(name, [text.encode(), b"yes \n", text.encode() * 2], slow=False)


@pytest.mark.parametrize("name", COVERED)
@settings(max_examples=100)
@given(
    texts=st.lists(
        st.text(st.sampled_from(" \n\ta1'sSlLrReEvV!/中Aé\u0301"), max_size=200)
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
    )
)
def test_random_batches(name: str, texts: list[str]) -> None:
    check(name, [text.encode() for text in texts])


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.slow
def test_real_files(file: str, name: str) -> None:
    data = data_bytes(f"text/{file}")
    text = data[:100_000].decode("utf-8", "ignore").encode()
    batch = Batch(name, [text])
    assert_alike(name, [text], batch.run())
    lines = text.splitlines(keepends=True)[:1000]
    check(name, lines)


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.slow
def test_every_code_point(name: str) -> None:
    """All of the planes with characters; test_gpu_automata has the classes of all the others."""
    with_characters = (*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xF0000))
    points = [chr(c) for c in (*with_characters, *range(0x40000, 0x110000, 61))]
    for context in ("a{}b ", "{}{}'", " {}1"):
        text = "".join(context.replace("{}", character) for character in points)
        check(name, [text.encode()], slow=False)


@pytest.mark.parametrize("name", COVERED)
def test_bytes_that_are_no_text_do_not_change_the_texts_beside_them(name: str) -> None:
    source = random.Random(name)
    for length in (*range(1, 70), 200, 5000):
        for alphabet in (range(256), (0x80, 0xBF, 0xF4, 0xFF, 0xE3, 0x20, 0x0A)):
            valid = [random_text(name, source, 1 + length // 20) for _ in range(3)]
            wrong = [bytes(source.choices(alphabet, k=length)) for _ in range(2)]
            rows = [valid[0], wrong[0], valid[1], wrong[1], valid[2]]
            batch = Batch(name, rows)
            for slow in (False, True):
                found, begin = batch.run(slow=slow), 0
                for row in rows:
                    here = found[(found >= begin) & (found < begin + len(row))] - begin
                    assert not len(row) or here[0] == 0
                    if row in valid:
                        assert_alike(name, [row], here)
                    begin += len(row)


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.slow
def test_kernels_with_emulated_blocks(name: str) -> None:
    source = random.Random(name)
    runs = [letters[0] * 9000 for letters in representatives(name)]
    long_runs = ["\n" + " " * 150_000 + "x", "x" + "1" * 150_000, "中" + "A" * 90_000, *runs]
    texts = [*(text.encode() for text in long_runs), random_text(name, source, 3000)]
    for num_blocks in (1, 3):
        for rows in (texts[::-1], source.sample(texts, len(texts)), [b"a\n "], []):
            assert_alike(name, rows, Batch(name, rows).run(num_blocks=num_blocks))
