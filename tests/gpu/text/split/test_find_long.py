"""Finding the pieces that are cut, whatever lies between their starts, against plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu.kernels.job import constant
from tests.support.emulation.device import emulated_kernels
from tests.support.emulation.kernels import make_job

BLOCK, MAX_PIECE = constant("BLOCK"), constant("MAX_PIECE")
GAP, MAX_GAPS = (
    64 * constant("GAP_STEP"),
    constant("MAX_GAPS"),
)  # Bytes; see text/split/find_long.cuh.
NEAR = 64 * constant("NEAR_WORDS") + 64 * 64


def found(starts: list[int], num_bytes: int, num_blocks: int) -> list[tuple[int, int]]:
    """The pieces that the kernel lists, and its count of windows, which must follow each other."""
    flags = np.ones((num_bytes // 64 + 4) * 64, np.uint8)  # Behind the data lies anything.
    flags[: num_bytes + -num_bytes % 64] = 0
    flags[starts] = 1
    pieces: NDArray[np.uint32] = np.zeros((num_bytes // MAX_PIECE + 1, 4), np.uint32)
    counts = np.zeros(3, np.uint64)
    bits, special = np.packbits(flags, bitorder="little"), np.zeros(8, np.uint32)
    lists = {"window_counts": counts, "long_pieces": pieces}
    job = make_job(num_bytes=num_bytes, starts=bits, special_counts=special, **lists)
    assert emulated_kernels("split").launch(b"find_long", num_blocks, BLOCK, job.ctypes.data) == 0
    listed = pieces[: int(counts[0]) >> 40].tolist()
    window = 0
    for begin, end, first_window, _ in listed:
        assert first_window == window
        window += max(1, (end - begin - 257) // 256 + 1)
    assert window == int(counts[0]) & (1 << 40) - 1
    return sorted((begin, end) for begin, end, *_ in listed)


def check(starts: list[int], num_bytes: int, num_blocks: int) -> None:
    expected = [two for two in pairwise([*starts, num_bytes]) if two[1] - two[0] > MAX_PIECE]
    assert found(starts, num_bytes, num_blocks) == expected


@pytest.mark.parametrize("around", [64, 2048, GAP, NEAR, NEAR + 8 * GAP, NEAR + 21 * GAP])
def test_a_gap_of_any_length(around: int) -> None:
    source = np.random.default_rng(around)
    for off in (-4100, -2049, -129, -64, -1, 0, 1, 63, 65, 128, 2048, 4096):
        if around + off <= 0:
            continue
        begin, behind = int(source.integers(5000)), int(source.integers(200))
        check([0, begin + 1, begin + 1 + around + off], begin + 2 + around + off + behind, 1)
        check([begin], begin + around + off, 2)


def test_more_gaps_than_a_block_keeps() -> None:
    lengths = np.random.default_rng(1).integers(NEAR, NEAR + 3 * GAP, MAX_GAPS + 6)
    ends = np.cumsum(lengths).tolist()
    check([0, *ends[:-1]], ends[-1], 1)


@pytest.mark.parametrize("seed", range(4))
def test_random_gaps(seed: int) -> None:
    source = np.random.default_rng(seed)
    lengths = source.choice([1, 5, 128, 129, 700, 5000, 90_000, 400_000], 60)
    ends = np.cumsum(source.integers(1, lengths + 1)).tolist()
    for num_blocks in (1, 3):
        check([0, *ends[:-1]], ends[-1], num_blocks)
