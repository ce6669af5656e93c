"""Ids of all tiles one behind the other: hits and merged pieces, of few tiles and of many."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.job import constant
from gpu.launches import STATUS
from tests.emulated_device import EmulatedDevice
from tests.gpu_emulation import make_job

TILE, FEW_TILES = constant("TILE"), constant("FEW_TILES")
MISS, BIN_SHIFT = 1 << 31, 27
LONGEST = (4, 8, 12, 16, 24, 32, 64, 128)
"""Most ids of a piece in each bin of merge_stage.cuh."""
NUM_IDS = 50_257


def made_up(num_tiles: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Fields that `look_up` and `merge` could have left, and the ids that they stand for."""
    chance = np.random.default_rng(seed)
    tile_pieces = chance.integers(70, size=num_tiles).astype(np.uint32)
    records = np.zeros((num_tiles, TILE), np.uint32)
    counts: list[list[int]] = [[] for _ in LONGEST]
    pieces: list[tuple[int, int, np.ndarray]] = []
    for tile, size in enumerate(tile_pieces.tolist()):
        for place in range(size):
            if chance.random() < 0.9 or tile % 3 == 0:
                ids = chance.integers(NUM_IDS, size=1)
                records[tile, place] = ids[0]
                pieces.append((-1, 0, ids))
                continue
            bin_ = int(chance.integers(len(LONGEST)))
            ids = chance.integers(NUM_IDS, size=chance.integers(1, LONGEST[bin_] + 1))
            records[tile, place] = MISS | bin_ << BIN_SHIFT | len(counts[bin_])
            pieces.append((bin_, len(counts[bin_]), ids))
            counts[bin_].append(len(ids))
    room = np.array([len(own) * longest for own, longest in zip(counts, LONGEST, strict=True)])
    begins, merged = np.cumsum(room) - room, np.zeros(room.sum(), np.uint32)
    for bin_, number, ids in pieces:
        if bin_ >= 0:
            first = begins[bin_] + number * LONGEST[bin_]
            merged[first : first + len(ids)] = ids
    fields = {"records": records, "tile_pieces": tile_pieces, "merged_ids": merged}
    fields["miss_counts"] = np.array([len(own) for own in counts], np.uint32)
    fields |= {f"counts{i}": np.array(own, np.uint8) for i, own in enumerate(counts)}
    return fields, np.concatenate([ids for *_, ids in pieces])


@pytest.mark.parametrize("num_tiles", [1, 5, FEW_TILES, FEW_TILES + 3])
@pytest.mark.parametrize(
    ("kernel", "field", "kind"),
    [("compact", "ids", np.int32), ("compact16", "packed", np.uint16)],
)
def test_ids_of_all_tiles_stand_one_behind_the_other(num_tiles, kernel, field, kind):
    fields, wanted = made_up(num_tiles, num_tiles)
    merged_counts = [fields.pop(f"counts{i}") for i in range(len(LONGEST))]
    units = 8 * num_tiles + 8
    status, out = np.zeros(8, np.uint64), np.full(len(wanted) + 9, NUM_IDS, kind)
    fields |= {"tile_counts": np.zeros(units, np.uint32), field: out, "status": status}
    fields["group_offsets"] = np.zeros(units, np.uint64)
    job = make_job(num_bytes=num_tiles * TILE - 7, **fields)
    job["merged_counts"] = [own.ctypes.data for own in merged_counts]
    stream = EmulatedDevice().stream()
    for name, blocks in (("count_tiles", 3), ("sum_tiles", 1), (kernel, 3)):
        stream.launch(name, blocks, job.ctypes.data)
    assert status[STATUS["NUM_IDS"]] == len(wanted)
    assert out[: len(wanted)].tolist() == wanted.tolist()
    assert (out[len(wanted) :] == NUM_IDS).all()
