"""Start bits of the pieces of two windows that meet, and of two that do not."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.kernels.job import constant
from tests.support.emulation.kernels import launch, make_job

SMALL, LARGE = constant("SMALL_CHUNK"), constant("LARGE_CHUNK")
NO_MEETING = constant("NO_MEETING")


@pytest.mark.parametrize("chunk", [SMALL, LARGE])
def test_a_window_counts_from_where_it_meets_the_one_before_or_from_its_begin(chunk):
    """Without a meeting, which is a fault, nothing is shifted by more than a word either."""
    chance = np.random.default_rng(chunk)
    meetings = np.array([0, 0, 1, 17, 63, NO_MEETING, 40, NO_MEETING], np.uint8)
    windows, words = len(meetings), chunk // 64
    bits = chance.integers(0, 1 << 32, (2 * words + 4, windows), np.uint64)
    borders = bits[::2] | bits[1::2] << np.uint64(32)  # uint64[words + 2][windows].
    wanted = borders[:words].copy()
    for window, meeting in enumerate(meetings.tolist()):
        if 0 < meeting < 64:
            before = np.uint64((1 << meeting) - 1)
            wanted[0, window] = (borders[0, window] & ~before) | (
                borders[words, window - 1] & before
            )
    found = np.zeros(windows * words, np.uint64)
    job = make_job(
        num_bytes=chunk * windows,
        dna_small_bytes=1 << 40 if chunk == SMALL else 0,
        window_bits=bits.astype(np.uint32),
        meetings=meetings,
        starts=np.zeros(windows * words, np.uint64),
        hard=found,
    )
    launch("probe_starts", 1, 32, job)
    assert found.tolist() == wanted.T.ravel().tolist()
