"""Running sums over many tiles, in all states that concurrent blocks may write."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu.kernels.job import constant
from tests.support.emulation.kernels import launch, make_job

TILE_SUM, SUM_TO_END = constant("TILE_SUM"), constant("SUM_TO_END")


@pytest.mark.parametrize("num_tiles", [1, 2, 31, 32, 33, 34, 65, 200])
@pytest.mark.parametrize("known", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_looking_back_over_tiles_of_either_state(num_tiles: int, known: float) -> None:
    """The emulation runs block after block, so that a real scan meets known sums only."""
    source = random.Random(num_tiles)
    sums = [source.choice((0, 1, source.getrandbits(50))) for _ in range(num_tiles)]
    ends = np.cumsum([0, *sums]).tolist()
    states = [
        SUM_TO_END | ends[tile + 1]
        if not tile or source.random() < known
        else TILE_SUM | sums[tile]
        for tile in range(num_tiles)
    ]
    arrays = {
        "post_process_states": np.array(states, np.uint64),
        "post_processed_offsets": np.full(num_tiles, -1, np.int64),
    }
    launch("probe_look_back", 1, 32, make_job(**arrays, num_rows=num_tiles))
    assert arrays["post_processed_offsets"].tolist() == ends[:-1]
