"""Maps of chunks and tiles, and the states that follow from them, against plain Python."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu.text.pretokenizer_automaton import (
    ANYWHERE,
    ENTRY_COMMIT,
    ENTRY_OPEN_PENDING,
    ENTRY_STATE_SHIFT,
    ROW_END,
    ROW_INNER,
    ROW_STRIDE,
)
from tests.gpu.text.pretokenize.test_pretokenize import (
    TILE,
    Batch,
    assert_alike,
    bits,
    check,
    library,
)
from tests.gpu.text.pretokenize.test_pretokenizer_automaton import representatives
from tests.support.emulation.kernels import make_job

CHUNK, CHUNKS = 64, TILE // 64
UNRESOLVED, NO_STARTS, UNTOUCHED = 0x80, 0x40, 0xEE
DROPPED, COMMITTED, PENDING = 0, 1, 2


def random_machine(source: np.random.Generator, num_states: int) -> NDArray[np.uint32]:
    """Steps between certain states, of which most decide nothing; a text's end leads to state 0."""
    shape = (ROW_INNER + 1, ROW_STRIDE)
    entries = source.integers(num_states, size=shape).astype(np.uint32) << ENTRY_STATE_SHIFT
    entries |= np.where(source.random(shape) < 0.99, ENTRY_OPEN_PENDING, 0).astype(np.uint32)
    entries |= np.where(source.random(shape) < 0.005, ENTRY_COMMIT, 0).astype(np.uint32)
    entries[ROW_END] = source.choice((0, ENTRY_COMMIT), ROW_STRIDE)
    entries[ROW_INNER, :-1] = np.arange(32) << ENTRY_STATE_SHIFT | ENTRY_OPEN_PENDING
    entries[0, -1] = 1  # The rule has pending places.
    return entries


class Tiles:
    """Random text and a random machine, as the first pass leaves them."""

    def __init__(self, seed: int, num_states: int, num_bytes: int) -> None:
        source = np.random.default_rng(seed)
        num_tiles = -(-num_bytes // TILE)
        self.num_states = num_states
        self.entries = random_machine(source, num_states)
        self.text = source.integers(128, size=num_bytes + 64).astype(np.uint8)
        # Quiet stretches, through which a place stays pending.
        self.entries[:2, :num_states] &= ~np.uint32(ENTRY_COMMIT)
        self.entries[:2, :num_states] |= np.uint32(ENTRY_OPEN_PENDING)
        for begin in source.integers(num_bytes, size=num_bytes // 2000):
            self.text[begin : begin + source.integers(9000)] &= 1
        borders = {0, *source.integers(num_bytes, size=3).tolist()}
        self.borders = borders | {int(b) * 64 % num_bytes for b in source.integers(99, size=2)}
        self.half_states = source.integers(num_states, size=(num_tiles, 2)).astype(np.uint8)
        self.half_states[source.random((num_tiles, 2)) < 0.2] |= UNRESOLVED
        self.half_states[source.random(num_tiles) < 0.1] |= NO_STARTS
        self.half_states[source.random((num_tiles, 2)) < 0.2] |= NO_STARTS
        self.tile_state = np.full(num_tiles, UNTOUCHED, np.uint8)
        self.tile_function = np.full((num_tiles, 32), UNTOUCHED, np.uint8)
        self.tile_pending = np.full((num_tiles, 32), UNTOUCHED, np.uint8)
        self.chunk_before = np.full((num_tiles, CHUNKS, 32), UNTOUCHED, np.uint8)
        self.chunk_pending = np.full((num_tiles, CHUNKS, 32), UNTOUCHED, np.uint8)

    def map(self, num_blocks: int) -> None:
        """Make the maps by the kernel."""
        arrays = {name: a for name, a in vars(self).items() if isinstance(a, np.ndarray)}
        hard, bad = bits(self.borders, len(self.text)), np.ones(1, np.uint32)
        numbers = {"num_bytes": len(self.text) - 64, "num_states": self.num_states}
        job = make_job(**arrays, **numbers, hard=hard, bad_tiles=bad, num_classes=2)
        library().map_all(ctypes.c_void_p(job.ctypes.data), num_blocks)

    def chunk_maps(self, tile: int) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32]]]:
        """For each chunk of a tile: the state behind it and the fate of a place, by the state."""
        for begin in range(tile * TILE, (tile + 1) * TILE, CHUNK):
            state = np.arange(self.num_states, dtype=np.uint32)
            fate = np.full(self.num_states, PENDING, np.uint32)
            for row in self.rows(begin, min(begin + CHUNK, len(self.text) - 64)):
                entry = self.entries[row, state]
                state = entry >> ENTRY_STATE_SHIFT & 31
                closed = np.where(entry & ENTRY_OPEN_PENDING, PENDING, DROPPED)
                decided = np.where(entry & ENTRY_COMMIT, COMMITTED, closed)
                fate = np.where(fate == PENDING, decided, fate)
            yield state, fate

    def rows(self, begin: int, end: int) -> Iterator[int]:
        """The rows of the machine for a chunk, a text's end before each border."""
        for place in range(begin, end):
            if place in self.borders:
                yield ROW_END
            yield int(self.text[place])
        if begin < end == len(self.text) - 64:
            yield ROW_END

    def is_bad(self, tile: int) -> bool:
        first, second = self.half_states[tile].tolist()
        return bool((first | second) & UNRESOLVED or first & second & NO_STARTS)

    def check(self) -> None:
        """Check the maps that the kernel wrote."""
        inside = slice(self.num_states)
        for tile in range(len(self.tile_state)):
            bad = self.is_bad(tile)
            behind = self.half_states[tile, 1] & 31
            assert bad == (self.tile_state[tile] == UNRESOLVED)
            assert bad or tile == len(self.tile_state) - 1 or self.tile_state[tile] == behind
            if not bad and not (tile and self.is_bad(tile - 1)):
                assert (self.tile_function[tile] == UNTOUCHED).all()
                continue
            maps = list(self.chunk_maps(tile))
            state = np.arange(self.num_states)
            for chunk, (function, _) in enumerate(maps):
                assert np.array_equal(self.chunk_before[tile, chunk, inside], state), (tile, chunk)
                state = function[state]
            assert np.array_equal(self.tile_function[tile, inside], state)
            fate = np.full(self.num_states, PENDING)
            for chunk, (function, own) in reversed(list(enumerate(maps))):
                fate = np.where(own == PENDING, fate[function], own)
                assert np.array_equal(self.chunk_pending[tile, chunk, inside], fate), (tile, chunk)
            assert np.array_equal(self.tile_pending[tile, inside], fate)


@pytest.mark.parametrize("num_states", [1, 2, 15, 16, 17, 31])
def test_maps_of_chunks_and_tiles(num_states: int) -> None:
    for num_bytes, num_blocks in ((7 * TILE + 1, 2), (2 * TILE, 1), (TILE + 63, 1), (64, 2)):
        tiles = Tiles(num_bytes + num_states, num_states, num_bytes)
        tiles.map(num_blocks)
        tiles.check()


def test_places_pending_before_a_chunk_have_every_fate() -> None:
    tiles = Tiles(5, 17, 7 * TILE)
    tiles.map(3)
    for pending in (tiles.tile_pending, tiles.chunk_pending):
        inside = pending[..., :17]
        found, counts = np.unique(inside[inside != UNTOUCHED], return_counts=True)
        assert found.tolist() == [DROPPED, COMMITTED, PENDING]
        assert counts.min() > 10


@pytest.mark.parametrize("threads", [32, 64, 1024])
def test_states_before_bad_tiles(threads: int) -> None:
    source = np.random.default_rng(threads)
    for num_tiles, share, num_blocks in (
        *((3 * threads + 7, share, 2) for share in (0.02, 0.5, 0.97, 1.0)),
        *((2 * threads, share, 1) for share in (0.2, 1.0)),
        *((1, 0, 1), (1, 1, 1), (threads, 1, 2), (threads + 1, 1, 1)),
    ):
        function = source.integers(31, size=(num_tiles, 32)).astype(np.uint8)
        function[:, ANYWHERE] = UNTOUCHED
        state = source.integers(31, size=num_tiles).astype(np.uint8)
        state[source.random(num_tiles) < share] = UNRESOLVED
        entry, bad = np.full(num_tiles, UNTOUCHED, np.uint8), np.ones(1, np.uint32)
        arrays = {"tile_state": state, "tile_function": function, "tile_entry": entry}
        job = make_job(num_bytes=num_tiles * TILE - 5, num_states=31, bad_tiles=bad, **arrays)
        library().enter_all(ctypes.c_void_p(job.ctypes.data), num_blocks, threads)
        before = 0
        for tile in range(num_tiles):
            assert entry[tile] == (before if state[tile] == UNRESOLVED else UNTOUCHED), tile
            before = function[tile, before] if state[tile] == UNRESOLVED else state[tile]


@pytest.mark.parametrize("num_tiles", [1, 127, 128, 129, 700])
def test_places_are_followed_to_where_they_are_decided(num_tiles: int) -> None:
    for seed, share in itertools.product(range(3), (0, 0.0003, 0.003, 0.3)):
        source = np.random.default_rng(seed)
        function = np.tile(np.arange(32, dtype=np.uint8), (num_tiles, 1))
        pending = np.full((num_tiles, 32), PENDING, np.uint8)
        augmented, decided = (source.random((num_tiles, 32)) < share for _ in range(2))
        function[augmented] = source.integers(31, size=augmented.sum())
        pending[decided] = source.integers(2, size=decided.sum())
        found = np.full(num_tiles, -1, np.int32)
        maps = {"tile_function": function, "tile_pending": pending}
        job = make_job(num_bytes=num_tiles * TILE - 5, ids=found, **maps)
        library().follow_all(ctypes.c_void_p(job.ctypes.data))
        for tile in range(num_tiles):
            at, state = tile, tile % 31
            while at < num_tiles - 1 and pending[at, state] == PENDING:
                at, state = at + 1, function[at, state]
            assert found[tile] == (pending[at, state] == COMMITTED), tile


PENDING_RUNS = (("cl100k", "\n", " "), ("o200k", "中", "A"), ("deepseek_v3", "\r", "\u3000"))


@pytest.mark.parametrize(("name", "before", "inside"), PENDING_RUNS)
def test_a_place_that_is_pending_over_hundreds_of_tiles(
    name: str, before: str, inside: str
) -> None:
    for tiles, after in ((128, "x\n"), (129, "\n"), (131, "!"), (270, "")):
        run = inside.encode() * ((tiles * TILE + 99) // len(inside.encode()))
        for place in (TILE - 70, TILE - 1):
            texts = [b"a" * place, before.encode() + run + after.encode(), b"b"]
            assert_alike(name, texts, Batch(name, texts).run(num_blocks=3))


@pytest.mark.parametrize("name", ["cl100k", "llama3", "o200k", "deepseek_v3"])
def test_places_that_are_pending_at_the_end_of_the_data(name: str) -> None:
    for length in (64, 128, 640, TILE, 2 * TILE, 2 * TILE + 1):
        for blanks in (1, 30, 63, 64, 100, TILE + 3):
            if blanks < length:
                check(name, [b"a" * (length - blanks - 1) + b"\n" + b" " * blanks])


def test_one_place_of_a_half_tile_is_dropped_and_another_is_committed() -> None:
    dropped = b"ab\n" + b" " * 100 + b"\n"
    for before, after in itertools.product((TILE - 500, TILE - 300), (b"x", b"\nx")):
        filler = (b"cd " * TILE)[: before - len(dropped) - 90]
        check("llama3", [filler + dropped + b"ef" * 45 + b"\n" + b" " * 700 + after])


def test_what_an_earlier_batch_left_is_not_followed() -> None:
    for after in ("x", "\n"):
        texts = [b"\n" + b" " * 3 * TILE + after.encode() + b" ab" * 50 * TILE]
        batch = Batch("cl100k", texts)
        batch.kept["tile_function"][:] = np.arange(32)
        batch.kept["tile_pending"][:] = PENDING
        assert_alike("cl100k", texts, batch.run())


@pytest.mark.parametrize("name", ["cl100k", "o200k", "deepseek_v3"])
def test_only_unresolved_chunks_ask_for_the_slow_way(name: str) -> None:
    for run in (" ", "a", "\n", "\n "):
        texts = [b"ab c", run.encode() * (3 * TILE), b"!"]
        batch = Batch(name, texts)
        assert_alike(name, texts, batch.run())
        assert not batch.kept["bad_tiles"][0]
    batch = Batch(name, [b"1" * (3 * TILE)])
    batch.run()
    assert batch.kept["bad_tiles"][0]


def test_a_longer_way_back_tells_the_state_behind_a_tile() -> None:
    for lines, is_known in ((20, True), (100, True), (150, False)):
        middle = (b"ab " * TILE)[: TILE - lines] + b"\n" * lines
        batch = Batch("cl100k", [b"1" * TILE + middle + b"\n" * 20 + b"1" * TILE])
        batch.run()
        states = batch.kept["tile_state"][:3]
        assert (states == UNRESOLVED).tolist() == [True, not is_known, True]


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "qwen2", "o200k", "tekken", "deepseek_v3"])
def test_runs_that_end_beside_the_borders_of_chunks_and_tiles(name: str) -> None:
    source = random.Random(name)
    lengths = (1, 2, 31, 63, 64, 65, 128, 300, 2047, TILE - 1, TILE, TILE + 1, 9000)
    letters = [two[0] for two in representatives(name)]
    for _ in range(12):
        text = "".join(
            source.choice(letters) * source.choice(lengths) for _ in range(source.randint(1, 20))
        )
        rows, begin = [], 0
        while begin < len(text):
            end = begin + source.choice(lengths) + source.choice((0, 0, 5000))
            rows.append(text[begin:end].encode())
            begin = end
        check(name, rows)
