"""Where the fields of a batch lie in a workspace's device memory: sizes in, places out.

Plain arithmetic; knows no device. Sizes follow bytes of text and rows, never rows x longest row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu.kernels.job import JOB, constant

ALIGNMENT = 256
TEXT_PADDING = 64
SMALL_BYTES = 1 << 22
"""Text of a batch whose answer a kernel writes straight into pinned memory."""
BYTES_A_ROW = 16
"""Room for a row in a workspace; rows beyond the usual number count as bytes."""
FITTED_BYTES, FITTED_BYTES_A_ROW = 1 << 17, 64
"""Workspaces of fitted layouts for more text are made for a batch, with rows of so many bytes."""
MAX_TEMPLATE = 6
"""Begin and end tokens at most that ids of letters have room for, a row."""
TILE, SCAN_TILE = constant("TILE"), constant("SCAN_ITEMS") * constant("BLOCK")
DECODE_TILE, LETTER_TILE = constant("DECODE_TILE"), constant("LETTER_TILE")
LEAST_LETTERS, PARTS = constant("LEAST_LETTERS"), constant("SMALL_PARTS")
CHUNKS = tuple(constant(f"{size}_CHUNK") for size in ("SMALL", "LARGE"))
REPAIR_ROUNDS, FINISH_ROUNDS = constant("REPAIR_ROUNDS"), constant("FINISH_ROUNDS")
SMALL_CHUNK_TEXT = 3 << 24
"""Text of DNA up to which chunks are small, at most: as long as that is faster."""
BIN_LENGTHS = (4, 5, 9, 13, 17, 25, 33, 65)
"""The shortest piece in each of the bins that text/lookup/lookup.cuh fills."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The largest batch that a workspace holds, and the layout of its fields."""

    num_bytes: int
    num_rows: int
    layout: str = "text"


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields that a family adds to those that all families have, with their bytes.

    Attributes:
        cleared: fields that are zero before a batch begins, for n bytes (whole tiles) and rows.
        scratch: the other fields.
        shared: fields that lie where others do which nobody reads any more, or yet.
        is_fitted: a large workspace is made for a batch instead of for the largest of its size.
    """

    cleared: Callable[[int, int], dict[str, int]]
    scratch: Callable[[int, int], dict[str, int]]
    shared: Mapping[str, str]
    is_fitted: bool = False


def _cleared(n: int, rows: int) -> dict[str, int]:
    """Fields of every family that are zero before a batch begins."""
    return {
        "status": 64,
        "hard": n // 8 + 16,
        "special": n // 8 + 16,
        "special_counts": 32,
        "decode_faults": 4,
        "decode_states": 16 * (n // DECODE_TILE + 2),
        "frame_states": 8 * (rows // SCAN_TILE + 2),
    }


def _scratch(n: int, rows: int) -> dict[str, int]:
    """The other fields of every family."""
    tiles = n // TILE
    return {
        "text": n + TEXT_PADDING,
        "row_begins": 8 * (rows + 1),
        "row_flags": rows,
        "starts": n // 8 + 16,
        "tile_counts": 4 * PARTS * tiles + 32,
        "group_offsets": PARTS * tiles + 8,
        "ids": 4 * n,
        "id_offsets": 8 * (rows + 1),
        "row_errors": 4 * rows,
        "row_refused": 4 * rows,
        "row_stretch": 4 * rows,
        "row_max_length": 4 * rows,
        "grid_arrivals": 4,
        "special_list": 8 * tiles,
        "special_exits": 2 * tiles,
        "special_function": 256 * tiles,
        "framed_offsets": 8 * (rows + 1),
        "num_tokens": 8 * rows,
        "kept": 16 * rows,
    }


def _text_cleared(n: int, rows: int) -> dict[str, int]:
    return {
        "miss_counts": 4 * constant("NUM_BINS"),
        "merge_tickets": 4,
        "window_counts": 32,
        "bad_tiles": 4,
        "cuts": n // 8 + 16,
        "span_states": 8 * (n // SCAN_TILE + 2),
    }


def _text_scratch(n: int, rows: int) -> dict[str, int]:
    tiles = n // TILE
    bins = {f"misses{i}": 8 * (n // length + 1) for i, length in enumerate(BIN_LENGTHS)}
    bins |= {f"merged_counts{i}": n // length + 1 for i, length in enumerate(BIN_LENGTHS)}
    return {
        "half_states": 2 * tiles,
        "tile_state": tiles,
        "tile_entry": tiles,
        "tile_function": 32 * tiles,
        "tile_pending": 32 * tiles,
        "records": 4 * n + TEXT_PADDING,
        "tile_pieces": 4 * tiles,
        "merged_ids": 8 * n + 512,
        "long_pieces": 16 * (n // 129 + 1),
        "whole_pieces": 12 * (n // 129 + 1),
        **bins,
    }


def _kmers_cleared(n: int, rows: int) -> dict[str, int]:
    return {
        "breaks": n // 8 + 16,
        "place_states": 8 * (rows // SCAN_TILE + 3),
        "letter_states": 8 * (n // SCAN_TILE + 3),
    }


def _kmers_scratch(n: int, rows: int) -> dict[str, int]:
    tiles = n // LETTER_TILE
    return {
        "turned": n + TEXT_PADDING,
        "letters": 2 * n + 64,  # With the places behind them room for one and a half ids a byte.
        "letter_places": 4 * n + 64,
        "letter_rows": 8 * (rows + 1),
        "row_has_words": 4 * rows,
        "row_not_ascii": 4 * rows,
        "sent_begins": 8 * (rows + 1),
        "letter_tiles": 4 * (tiles + 8),  # Written four at a time.
        "letter_tile_ids": 4 * (tiles + 8),
        "row_marks": 4 * (n // LEAST_LETTERS + 1),
    }


def _dna_cleared(n: int, rows: int) -> dict[str, int]:
    windows = n // CHUNKS[0]
    return {
        "unmet_counts": 4 * (REPAIR_ROUNDS + FINISH_ROUNDS + 1),
        "repair_counts": 16 * (4 * REPAIR_ROUNDS + 2 * FINISH_ROUNDS + 2),
        "window_tickets": 4,
        "num_deferred": 4,
        "window_states": 8 * REPAIR_ROUNDS * (windows // SCAN_TILE + 3),
        "dna_states": 8 * (n // TILE + 3),
    }


def _dna_scratch(n: int, rows: int) -> dict[str, int]:
    most = (SMALL_CHUNK_TEXT, n)
    counts = [min(n, text) // chunk + 2 for chunk, text in zip(CHUNKS, most, strict=True)]
    windows = max(counts)
    words = max(count * _window_words(chunk) for chunk, count in zip(CHUNKS, counts, strict=True))
    paths = {
        "base_words": n // 2 + 256,
        "certain": n // 8 + 64,
        "mixed_words": n // 64 + 1,
        "window_bits": 4 * words,
        "meetings": windows,
        "window_ranks": 16 * windows,
        "turned": n + TEXT_PADDING,
    }
    framed = 4 * (n + MAX_TEMPLATE * rows) + 64  # These ids lie where the paths were.
    return paths | {"behind_paths": framed - sum(paths.values()), "row_not_ascii": 4 * rows}


def _window_words(chunk: int) -> int:
    """Words of 32 borders of a window."""
    return (chunk + constant("OVERLAP") + constant("MAX_LETTERS")) // 32


LAYOUTS = {
    "text": Layout(
        _text_cleared,
        _text_scratch,
        {
            "special_matches": "records",
            "chunk_before": "merged_ids",
            "chunk_pending": "ids",
            "framed_ids": "merged_ids",
            "narrow_ids": "misses0",  # And those behind it, 6 bytes a byte in all.
            "span_begins": "records",
            "decode_ids": "merged_ids",
            "decode_offsets": "row_begins",
            "decoded": "ids",
        },
    ),
    "kmers": Layout(
        _kmers_cleared,
        _kmers_scratch,
        {
            "special_matches": "letter_places",
            "framed_ids": "letters",
            "narrow_ids": "letters",
            "decode_ids": "letters",
            "decode_offsets": "row_begins",
            "decoded": "ids",
        },
    ),
    "dna": Layout(
        _dna_cleared,
        _dna_scratch,
        {
            "special_matches": "ids",
            "sent_begins": "framed_offsets",
            "deferred_windows": "window_ranks",
            "part_states": "window_ranks",
            "framed_ids": "base_words",  # And those behind it.
            "narrow_ids": "base_words",
            "decode_ids": "base_words",
            "decode_offsets": "row_begins",
            "decoded": "ids",
        },
        is_fitted=True,
    ),
}
"""By the name that a family says, see families.Family."""


def capacity_for(num_bytes: int, num_rows: int, most_bytes: int, layout: str) -> Capacity:
    """Of a workspace for a batch; those of one size hold `most_bytes`, unless they are fitted.

    Then they are at most a quarter larger than what they were made for.
    """
    if most_bytes <= FITTED_BYTES or not LAYOUTS[layout].is_fitted:
        return Capacity(most_bytes, most_bytes // BYTES_A_ROW, layout)
    wanted = max(num_bytes, num_rows * BYTES_A_ROW)
    step = 1 << (wanted - 1).bit_length() - 3
    size = -(-wanted // step) * step
    are_long = num_rows * FITTED_BYTES_A_ROW <= size
    return Capacity(size, size // (FITTED_BYTES_A_ROW if are_long else BYTES_A_ROW), layout)


def cut(sizes: dict[str, int], begin: int) -> tuple[dict[str, int], int]:
    """Where each field lies from `begin` on, and the end."""
    places = {}
    for name, size in sizes.items():
        places[name] = begin
        begin += -(-size // ALIGNMENT) * ALIGNMENT
    return places, begin


def field_places(capacity: Capacity) -> tuple[dict[str, int], int, int]:
    """Where each field lies in the device block; where the cleared ones end; the block's size."""
    n, rows = -(-max(1, capacity.num_bytes) // TILE) * TILE, capacity.num_rows
    layout = LAYOUTS[capacity.layout]
    begin = -(-JOB.itemsize // ALIGNMENT) * ALIGNMENT
    places, end = cut(_cleared(n, rows) | layout.cleared(n, rows), begin)
    scratch, size = cut(_scratch(n, rows) | layout.scratch(n, rows), end)
    places |= scratch
    shared = {**layout.shared, "decoded_offsets": "framed_offsets"}
    return places | {name: places[other] for name, other in shared.items()}, end, size


@functools.cache
def device_bytes(capacity: Capacity) -> int:
    """Device memory of a workspace."""
    return field_places(capacity)[2]
