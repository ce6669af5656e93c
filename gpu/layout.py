"""Where the fields of a batch lie in a workspace's device memory: sizes in, places out.

Plain arithmetic; knows no device. Every size follows total bytes of text and rows, never rows x
longest row.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu.job import JOB, constant

__all__ = [
    "BIN_LENGTHS",
    "SHARED_PLACES",
    "SMALL_BYTES",
    "TEXT_PADDING",
    "TILE",
    "Capacity",
    "cut",
    "device_bytes",
    "field_places",
]

ALIGNMENT = 256
TEXT_PADDING = 64
SMALL_BYTES = 1 << 22
"""Text of a batch whose answer a kernel writes straight into pinned memory."""
TILE, SCAN_TILE = constant("TILE"), constant("SCAN_ITEMS") * constant("BLOCK")
DECODE_TILE = constant("DECODE_TILE")
SHARED_PLACES = {
    "special_matches": "records",
    "framed_ids": "merged_ids",
    "packed": "merged_ids",
    "span_begins": "records",
    "decode_ids": "merged_ids",
    "decode_offsets": "row_begins",
    "decoded": "ids",
}
"""Fields that lie where others do which nobody reads any more."""
BIN_LENGTHS = (2, 5, 9, 13, 17, 25, 33, 65)
"""The shortest piece in each of the bins that look_up.cuh fills."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The largest batch that a workspace holds."""

    num_bytes: int
    num_rows: int


def _cleared(n: int, rows: int) -> dict[str, int]:
    """Fields that are zero before a batch begins, with their bytes."""
    return {
        "status": 64,
        "miss_counts": 4 * constant("NUM_BINS"),
        "merge_tickets": 4,
        "window_counts": 24,
        "bad_tiles": 4,
        "hard": n // 8 + 16,
        "cuts": n // 8 + 16,
        "special": n // 8 + 16,
        "special_counts": 32,
        "decode_faults": 4,
        "decode_states": 16 * (n // DECODE_TILE + 2),
        "frame_states": 8 * (rows // SCAN_TILE + 2),
        "span_states": 8 * (n // SCAN_TILE + 2),
    }


def _scratch(n: int, rows: int) -> dict[str, int]:
    """The other fields, for n bytes (whole tiles) of text, with their bytes."""
    tiles = n // TILE
    return {
        "text": n + TEXT_PADDING,
        "row_begins": 8 * (rows + 1),
        "row_flags": rows,
        "starts": n // 8 + 16,
        "tile_state": tiles,
        "tile_entry": tiles,
        "tile_function": 32 * tiles,
        "tile_pending": 32 * tiles,
        "records": 4 * n + TEXT_PADDING,
        "tile_pieces": 4 * tiles,
        "tile_counts": 4 * tiles + 32,
        "group_offsets": tiles + 8,
        "merged_ids": 8 * n + 512,
        "long_pieces": 16 * (n // 129 + 1),
        "hard_pieces": 16 * (n // 129 + 1),
        "whole_pieces": 16 * (n // 513 + 1),
        "window_borders": 8 * (n // 32 + 1),
        "even_borders": n // 8 + 16,
        "odd_borders": n // 8 + 16,
        "ids": 4 * n,
        "id_offsets": 8 * (rows + 1),
        "row_errors": 4 * rows,
        "row_refused": 4 * rows,
        "row_stretch": 4 * rows,
        "row_max_length": 4 * rows,
        "special_list": 8 * tiles,
        "special_exits": 2 * tiles,
        "special_function": 256 * tiles,
        "framed_offsets": 8 * (rows + 1),
        "num_tokens": 8 * rows,
        "kept": 16 * rows,
        "decoded_offsets": 8 * (rows + 1),
    }


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
    places, end = cut(_cleared(n, rows), -(-JOB.itemsize // ALIGNMENT) * ALIGNMENT)
    scratch, size = cut(_scratch(n, rows), end)
    bins = {f"misses{i}": 8 * (n // length + 1) for i, length in enumerate(BIN_LENGTHS)}
    bins |= {f"merged_counts{i}": n // length + 1 for i, length in enumerate(BIN_LENGTHS)}
    missed, size = cut(bins, size)
    return places | scratch | missed, end, size


def device_bytes(capacity: Capacity) -> int:
    """Device memory of a workspace."""
    return field_places(capacity)[2]
