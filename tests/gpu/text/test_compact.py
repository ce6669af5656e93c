"""Ids of all tiles one behind the other: hits and merged pieces, of few tiles and of many."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.kernels.job import STATUS, constant
from tests.support.emulation.device import EmulatedDevice
from tests.support.emulation.kernels import make_job

TILE, SMALL_BATCH_TILES = constant("TILE"), constant("SMALL_BATCH_TILES")
MISS, BIN_SHIFT = 1 << 31, 27
LONGEST = (4, 8, 12, 16, 24, 32, 64, 128)
"""Most ids of a piece in each bin of text/merge/merge_bins.cuh."""
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


@pytest.mark.parametrize("num_tiles", [1, 5, SMALL_BATCH_TILES, SMALL_BATCH_TILES + 3])
@pytest.mark.parametrize(
    ("kernel", "field", "kind"),
    [("compact", "ids", np.int32), ("compact16", "narrow_ids", np.uint16)],
)
def test_ids_of_all_tiles_stand_one_behind_the_other(num_tiles, kernel, field, kind):
    kernels = ["count_tiles", "sum_tiles", kernel]
    fields, wanted = made_up(num_tiles, num_tiles)
    merged_counts = [fields.pop(f"counts{i}") for i in range(len(LONGEST))]
    units = 8 * num_tiles + 8
    status, out = np.zeros(8, np.uint64), np.full(len(wanted) + 9, NUM_IDS, kind)
    fields |= {"tile_counts": np.zeros(units, np.uint32), field: out, "status": status}
    fields["group_offsets"] = np.zeros(units, np.uint64)
    fields |= {"row_begins": np.array([num_tiles * TILE - 7]), "id_offsets": np.zeros(1, np.int64)}
    fields["starts"] = np.zeros(num_tiles * TILE // 64, np.uint64)
    job = make_job(num_bytes=num_tiles * TILE - 7, **fields)
    job["merged_counts"] = [own.ctypes.data for own in merged_counts]
    stream = EmulatedDevice().stream()
    for name in kernels:
        stream.launch(name, 1 if name == "sum_tiles" else 3, job.ctypes.data)
    assert status[STATUS["NUM_IDS"]] == len(wanted)
    assert out[: len(wanted)].tolist() == wanted.tolist()
    assert (out[len(wanted) :] == NUM_IDS).all()


def piece_counts(fields: dict[str, np.ndarray], tile: int) -> list[int]:
    """How many ids each piece of a tile has."""
    counts = []
    for record in fields["records"][tile, : fields["tile_pieces"][tile]].tolist():
        bin_, number = record >> BIN_SHIFT & 7, record & (1 << BIN_SHIFT) - 1
        counts.append(int(fields[f"counts{bin_}"][number]) if record & MISS else 1)
    return counts


def rows_of(fields: dict[str, np.ndarray], each: int) -> tuple[np.ndarray, np.ndarray]:
    """Adds rows, `each` a tile and one behind, to made-up fields: where they begin, also in ids.

    The pieces of a tile are its first bytes, and rows begin at some of them, or behind.
    """
    pieces = fields["tile_pieces"].astype(np.int64)
    num_tiles = len(pieces)
    before = np.concatenate([[0], *(piece_counts(fields, tile) for tile in range(num_tiles))])
    tiles = np.repeat(np.arange(num_tiles), each)
    inside = np.arange(len(tiles)) % each * pieces[tiles] // each
    begins = np.append(tiles * TILE + inside, num_tiles * TILE - 7).astype(np.int64)
    sums, first_pieces = np.cumsum(before.astype(np.int64)), np.cumsum(pieces) - pieces
    starts = (np.arange(TILE) < pieces[:, None]).ravel()
    fields |= {"starts": np.packbits(starts, bitorder="little"), "row_begins": begins}
    return begins, np.append(sums[first_pieces[tiles] + inside], sums[-1])


@pytest.mark.parametrize("each", [2, 40])
@pytest.mark.parametrize("num_tiles", [1, 5, SMALL_BATCH_TILES])
def test_rows_of_few_tiles_begin_where_the_ids_before_them_end(num_tiles, each):
    fields, _ = made_up(num_tiles, num_tiles)
    begins, wanted = rows_of(fields, each)
    merged_counts = [fields.pop(f"counts{i}") for i in range(len(LONGEST))]
    found = np.zeros(len(begins), np.int64)
    fields |= {"ids": np.zeros(wanted[-1] + 9, np.int32), "id_offsets": found}
    fields |= {
        "tile_counts": np.zeros(8 * num_tiles + 8, np.uint32),
        "group_offsets": np.zeros(8 * num_tiles + 8, np.uint64),
        "status": np.zeros(8, np.uint64),
    }
    job = make_job(num_bytes=num_tiles * TILE - 7, num_rows=len(begins) - 1, **fields)
    job["merged_counts"] = [own.ctypes.data for own in merged_counts]
    stream = EmulatedDevice().stream()
    for name in ("count_tiles", "sum_tiles", "row_offsets"):
        stream.launch(name, 1 if name == "sum_tiles" else 3, job.ctypes.data)
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("num_tiles", [1, 5, SMALL_BATCH_TILES])
@pytest.mark.parametrize("kind", [np.int32, np.uint16])
def test_an_answer_is_put_out_with_where_rows_begin_and_what_is_wrong(num_tiles, kind):
    fields, wanted = made_up(num_tiles, num_tiles)
    begins, offsets = rows_of(fields, 2)
    merged_counts = [fields.pop(f"counts{i}") for i in range(len(LONGEST))]
    rows = len(begins) - 1
    refused = np.full(rows, 0xFFFFFFFF, np.uint32)
    refused[-1] = 7
    out = {
        "host_ids": np.full(len(wanted) + 9, NUM_IDS, kind),
        "host_status": np.zeros(8, np.uint64),
    }
    out |= {"host_offsets": np.zeros(rows + 1, np.int64), "host_errors": np.zeros(rows, np.uint32)}
    status = np.zeros(8, np.uint64)
    status[STATUS["TRUNCATED"]] = 5
    fields |= {"tile_counts": np.zeros(8 * num_tiles + 8, np.uint32), "status": status, **out}
    fields |= {"row_errors": np.full(rows, 0xFFFFFFFF, np.uint32), "row_refused": refused}
    size = num_tiles * TILE - 7
    job = make_job(num_bytes=size, num_rows=rows, id_bits=8 * np.dtype(kind).itemsize, **fields)
    job["merged_counts"] = [own.ctypes.data for own in merged_counts]
    stream = EmulatedDevice().stream()
    for name in ("count_tiles", "compact_to_host"):
        stream.launch(name, 3, job.ctypes.data)
    assert out["host_ids"][: len(wanted)].tolist() == wanted.tolist()
    assert (out["host_ids"][len(wanted) :] == NUM_IDS).all()
    assert out["host_offsets"].tolist() == offsets.tolist()
    assert out["host_errors"].tolist() == refused.tolist()
    assert out["host_status"][[STATUS["TRUNCATED"], STATUS["NOT_UTF8"]]].tolist() == [5, 1]
