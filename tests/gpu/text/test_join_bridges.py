"""Which bridges are of the chain, and what they cut: those that others lead past cut nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.kernels.job import constant
from tests.gpu.text.test_chain import NO_PLACE, STRIDE, WINDOW, WINDOW_BYTES
from tests.support.emulated_device import emulated_kernels
from tests.support.gpu_emulation import make_job

MAX_PASSED, ONE_PAST = constant("MAX_PASSED"), 1 << constant("COUNT_SHIFT")
BORDER_WORDS = constant("WINDOW_1") // 32 + 2
PART = np.dtype(
    [
        *((name, "<u4") for name in ("owner", "place", "length", "first", "period")),
        ("borders", "<u4", BORDER_WORDS),
    ]
)


def place_in(begin: int, owner: int) -> int:
    """Where the bridge of a window enters the one that begins at `begin`."""
    return begin + 10 + owner % 90


@dataclass
class Chain:
    """Windows of pieces one behind the other, and the bridges that were built.

    Attributes:
        sizes: of the pieces, in windows.
        bridges: {window: (target, windows with bridges that it leads past)}; a target of NO_PLACE
            leads nowhere.
        parts: (owner, place, length, first, period) of what bridges cut: a border every 3 bytes.
        noted: how many parts were noted, more than there are where there was no room.
    """

    sizes: list[int]
    bridges: dict[int, tuple[int, int]]
    parts: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    noted: int | None = None

    def run(self, *kernels: bytes) -> tuple[np.ndarray, np.ndarray, list[int], list[int]]:
        """Whether each window is live, the windows, failed pieces, places of starts."""
        total = sum(self.sizes)
        windows, seams = np.zeros(total, WINDOW), np.zeros((total // 32 + 1, 4), np.uint32)
        seams[:, 3] = 0xFFFFFFFF
        pieces, first = [], 0
        for size in self.sizes:
            begin = first * STRIDE * 2  # Pieces do not touch.
            pieces.append([begin, begin + STRIDE * (size + 1), first, 0])
            places = begin + STRIDE * np.arange(size)
            own = windows[first : first + size]
            own["begin"] = own["joint"] = places
            own["piece"] = len(pieces) - 1
            own["exit"] = own["target"] = NO_PLACE
            first += size
        windows["length"] = WINDOW_BYTES
        for window, (target, passed) in self.bridges.items():
            seams[window // 32, 0] |= np.uint32(1 << window % 32)
            own = windows[window : window + 1]
            own["exit"], own["target"], own["passed"] = own["begin"] + 400, target, passed
            own["place"] = place_in(int(windows["begin"][target]), window) if target < total else 0
        past = sum(passed > 0 for _, passed in self.bridges.values())
        noted = len(self.parts) if self.noted is None else self.noted
        counts = np.array(
            [len(pieces) << 40 | total, past * ONE_PAST + len(self.bridges), 0, noted], np.uint64
        )
        parts = np.zeros(len(self.parts), PART)
        for number, part in enumerate(self.parts):
            for name, value in zip(PART.names or (), part, strict=False):
                parts[number][name] = value
        borders = np.arange(32 * BORDER_WORDS) % 3 == 0
        parts["borders"] = np.packbits(borders, bitorder="little").view(np.uint32)
        size = int(pieces[-1][1]) if pieces else 0
        starts = np.zeros(size // 64 + 3, np.uint64)
        memory = np.concatenate([windows.view(np.uint8), parts.view(np.uint8)])
        listed, sent = np.array(pieces, np.uint32), np.zeros((len(pieces), 3), np.uint32)
        job = make_job(
            num_bytes=size,
            starts=starts,
            window_counts=counts,
            long_pieces=listed,
            whole_pieces=sent,
            seam_bits=seams,
            merged_ids=memory,
        )
        for kernel in kernels:
            assert (
                emulated_kernels("cut").launch(kernel, 2, constant("BLOCK"), job.ctypes.data) == 0
            )
        live = np.unpackbits(seams[:, 3].copy().view(np.uint8), bitorder="little")[:total]
        entered = memory[: windows.nbytes].view(WINDOW)
        places = np.flatnonzero(np.unpackbits(starts.view(np.uint8), bitorder="little"))
        return live, entered, np.flatnonzero(listed[:, 3]).tolist(), places.tolist()


def expected(chain: Chain) -> tuple[list[int], dict[int, int], list[int]]:
    """Live windows, whose bridge enters which, and failed pieces, one bridge at a time."""
    live, entries, failed, first = [True] * sum(chain.sizes), {}, [], 0
    for number, size in enumerate(chain.sizes):
        window, end = first, first + size
        while window < end:
            if window not in chain.bridges:
                window += 1
                continue
            target, _ = chain.bridges[window]
            if target == NO_PLACE:
                failed.append(number)
                break
            live[window + 1 : target] = [False] * (target - window - 1)
            if target < end:
                entries[target] = window
            window = target
        first = end
    return [int(is_live) for is_live in live], entries, failed


def random_chain(chance: random.Random) -> Chain:
    """Pieces of up to 150 windows; some bridges lead past up to MAX_PASSED others."""
    sizes = [chance.choice([1, 2, 40, 150]) for _ in range(chance.randint(1, 4))]
    bridges, first, often = {}, 0, chance.choice([0.0, 0.1, 0.5, 1.0])
    for size in sizes:
        end, share = first + size, chance.choice([0.1, 0.5, 1.0])
        own = [window for window in range(first, end - 1) if chance.random() < share]
        for i, window in enumerate(own):
            most = min(MAX_PASSED, len(own) - 1 - i)
            passed = chance.randint(0, most) if chance.random() < often else 0
            last = own[i + passed]
            up_to = own[i + passed + 1] if i + passed + 1 < len(own) else end
            target = chance.randint(last + 1, up_to)
            bridges[window] = NO_PLACE if chance.random() < 0.01 else target, passed
        first = end
    return Chain(sizes, bridges)


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_the_chain_is_what_following_one_bridge_after_the_other_gives(seed):
    chain = random_chain(random.Random(seed))
    live, windows, failed, _ = chain.run(b"join_bridges")
    wanted, entered, wanted_failed = expected(chain)
    assert failed == wanted_failed
    first = 0
    for number, size in enumerate(chain.sizes):
        if number not in failed:
            assert live[first : first + size].tolist() == wanted[first : first + size]
            for window in range(first, first + size):
                begin, place = int(windows["begin"][window]), int(windows["entry"][window])
                assert place == (place_in(begin, entered[window]) if window in entered else 0)
        first += size


PARTS = [(0, 10, 90, 0, 90), (2, 600, 300, 0, 300), (4, 1300, 5000, 30, 66)]


def cut_by(*numbers: int) -> set[int]:
    """Start bits of parts; their borders have one every 3 bytes, and repeat a multiple of that."""
    return {
        place + i
        for _, place, length, first, _ in (PARTS[number] for number in numbers)
        for i in range(length)
        if (first + i) % 3 == 0
    }


@pytest.mark.parametrize("passed", [0, 1])
def test_what_a_bridge_cuts_that_is_led_past_is_not_cut(passed):
    target = 3 if passed else 1
    chain = Chain([40], {0: (target, passed), 2: (3, 0), 4: (40, 0)}, PARTS)
    live, _, failed, places = chain.run(b"join_bridges", b"write_borders")
    assert (live[2], failed) == (1 - passed, [])
    assert set(places) == cut_by(0, 2) if passed else cut_by(0, 1, 2)


def test_a_piece_whose_parts_found_no_room_is_sent_on():
    chain = Chain([40], {0: (1, 0)}, PARTS[:1], noted=1 << 33)
    _, _, failed, places = chain.run(b"join_bridges")
    assert (failed, places) == ([0], [])
