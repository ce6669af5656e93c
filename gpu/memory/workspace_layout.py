"""Computes the offsets of a batch's fields in the device memory of a workspace.

Plain arithmetic, without a device. Sizes depend on the bytes of text and the number of rows, but
not on the length of the longest row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu.kernels.job import JOB, constant

ALIGNMENT = 256
TEXT_PADDING = 64
SMALL_BYTES = 1 << 22
"""The most text of a small batch, whose answer a kernel writes directly into pinned memory."""
BYTES_A_ROW = 16
"""A workspace has room for one row in this many bytes of text; more rows count as more text."""
FITTED_BYTES, FITTED_BYTES_A_ROW = 1 << 17, 64
"""From this size of text on, fitted layouts apply; the bytes that they have for each row."""
MAX_TEMPLATE = 6
"""The most begin and end tokens of a row for which the layouts of letters have room."""
TILE, SCAN_TILE = constant("TILE"), constant("SCAN_ITEMS") * constant("BLOCK")
DECODE_TILE, LETTER_TILE = constant("DECODE_TILE"), constant("LETTER_TILE")
LEAST_LETTERS, PARTS = constant("LEAST_LETTERS"), constant("SMALL_PARTS")
CHUNKS = tuple(constant(f"{size}_CHUNK") for size in ("SMALL", "LARGE"))
REPAIR_ROUNDS, FINISH_ROUNDS = constant("REPAIR_ROUNDS"), constant("FINISH_ROUNDS")
SMALL_CHUNK_TEXT = 3 << 24
"""The most text of DNA for which small chunks are faster; vocabularies may set a lower limit."""
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
    """The additional workspace fields of a family, with their sizes in bytes.

    Attributes:
        cleared: returns the sizes of the fields that must be zero at the start of a batch, by the
            number of bytes (whole tiles) and of rows.
        scratch: returns the sizes of the other fields, by the same numbers.
        aliases: fields that share the memory of another field, because their lifetimes do not
            overlap.
        is_fitted: whether a large workspace has the size that one batch needs, instead of the size
            for the largest batch of its size class.
    """

    cleared: Callable[[int, int], dict[str, int]]
    scratch: Callable[[int, int], dict[str, int]]
    aliases: Mapping[str, str]
    is_fitted: bool = False


def _cleared(n: int, rows: int) -> dict[str, int]:
    """Return the fields of every family that are zero before a batch begins."""
    return {
        "status": 64,
        "hard": n // 8 + 16,
        "special": n // 8 + 16,
        "special_counts": 32,
        "decode_faults": 4,
        "decode_states": 16 * (n // DECODE_TILE + 2),
        "post_process_states": 8 * (rows // SCAN_TILE + 2),
    }


def _scratch(n: int, rows: int) -> dict[str, int]:
    """Return the other fields of every family."""
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
        "post_processed_offsets": 8 * (rows + 1),
        "num_tokens": 8 * rows,
        "kept": 16 * rows,
    }


def _text_cleared(n: int, rows: int) -> dict[str, int]:
    return {
        "miss_counts": 4 * constant("NUM_BINS"),
        "merge_tickets": 4,
        "window_counts": 32,
        "bad_tiles": 4,
        "splits": n // 8 + 16,
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
        "augmented_text": n + TEXT_PADDING,
        "letters": 2 * n + 64,  # Aliased ids continue in letter_places: 1.5 ids a byte in all.
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
        "augmented_text": n + TEXT_PADDING,
    }
    post_processed = (
        4 * (n + MAX_TEMPLATE * rows) + 64
    )  # post_processed_ids share the memory of all paths.
    return paths | {"behind_paths": post_processed - sum(paths.values()), "row_not_ascii": 4 * rows}


def _window_words(chunk: int) -> int:
    """Return the number of words, of 32 borders each, of a window."""
    return (chunk + constant("OVERLAP") + constant("MAX_LETTERS")) // 32


LAYOUTS = {
    "text": Layout(
        _text_cleared,
        _text_scratch,
        {
            # find_special writes, accept_special reads last; then last_pieces or look_up write
            # records.
            "special_matches": "records",
            # map_tiles writes, redo_tiles reads last; then windows write merged_ids.
            "chunk_before": "merged_ids",
            # map_tiles writes, redo_tiles reads last; then compact writes ids.
            "chunk_pending": "ids",
            # compact reads merged_ids last; then post_process_ids writes.
            "post_processed_ids": "merged_ids",
            # merge reads misses last; then compact16 or narrow_ids write. The alias continues in
            # the other lists of misses, which have 6 bytes a byte of text in all.
            "narrow_ids": "misses0",
            # compact reads records last; then span_begins writes; post_process_spans reads last.
            "span_begins": "records",
            # Decoding uses none of the fields of encoding.
            "decode_ids": "merged_ids",
            "decode_offsets": "row_begins",
            "decoded": "ids",
        },
    ),
    "kmers": Layout(
        _kmers_cleared,
        _kmers_scratch,
        {
            # find_special writes, accept_special reads last; then expand_letters writes
            # letter_places.
            "special_matches": "letter_places",
            # write_places reads letters and letter_places last; then post_process_ids or narrow_ids
            # write. The plain kernels also write narrow_ids, and do not use letters.
            "post_processed_ids": "letters",
            "narrow_ids": "letters",
            # Decoding uses none of the fields of encoding.
            "decode_ids": "letters",
            "decode_offsets": "row_begins",
            "decoded": "ids",
        },
    ),
    "dna": Layout(
        _dna_cleared,
        _dna_scratch,
        {
            # find_special writes, accept_special reads last; then forward_windows, repairs and
            # write_letter_ids write ids.
            "special_matches": "ids",
            # augment_rows reads it last; then post_process_rows writes post_processed_offsets.
            "sent_begins": "post_processed_offsets",
            # forward_windows writes, walk_windows reads last; then repairs write window_ranks.
            "deferred_windows": "window_ranks",
            # Only encode_dna_parts uses it; where that falls back, all other kernels come after it.
            "part_states": "window_ranks",
            # write_letter_ids reads the paths last; then post_process_ids or narrow_ids write. The
            # aliases continue in all fields of paths, up to the end of behind_paths.
            "post_processed_ids": "base_words",
            "narrow_ids": "base_words",
            # Decoding uses none of the fields of encoding.
            "decode_ids": "base_words",
            "decode_offsets": "row_begins",
            "decoded": "ids",
        },
        is_fitted=True,
    ),
}
"""The layouts by name, see `Family.layout`."""


def capacity_for(num_bytes: int, num_rows: int, most_bytes: int, layout: str) -> Capacity:
    """Return the capacity of a new workspace for a batch.

    Workspaces of a size class have room for `most_bytes` of text. A workspace of a fitted layout is
    at most a quarter larger than its batch.
    """
    if most_bytes <= FITTED_BYTES or not LAYOUTS[layout].is_fitted:
        return Capacity(most_bytes, most_bytes // BYTES_A_ROW, layout)
    needed = max(num_bytes, num_rows * BYTES_A_ROW)
    step = 1 << (needed - 1).bit_length() - 3
    size = -(-needed // step) * step
    are_long = num_rows * FITTED_BYTES_A_ROW <= size
    return Capacity(size, size // (FITTED_BYTES_A_ROW if are_long else BYTES_A_ROW), layout)


def cut(sizes: dict[str, int], begin: int) -> tuple[dict[str, int], int]:
    """Return the offset of each field, from `begin` on, and the end of the last field."""
    places = {}
    for name, size in sizes.items():
        places[name] = begin
        begin += -(-size // ALIGNMENT) * ALIGNMENT
    return places, begin


def field_places(capacity: Capacity) -> tuple[dict[str, int], int, int]:
    """Return each field's offset in the device block, the end of cleared ones, and the size."""
    n, rows = -(-max(1, capacity.num_bytes) // TILE) * TILE, capacity.num_rows
    layout = LAYOUTS[capacity.layout]
    begin = -(-JOB.itemsize // ALIGNMENT) * ALIGNMENT
    places, end = cut(_cleared(n, rows) | layout.cleared(n, rows), begin)
    scratch, size = cut(_scratch(n, rows) | layout.scratch(n, rows), end)
    places |= scratch
    # Only decoding uses decoded_offsets, only encoding post_processed_offsets.
    aliases = {**layout.aliases, "decoded_offsets": "post_processed_offsets"}
    return places | {name: places[other] for name, other in aliases.items()}, end, size


@functools.cache
def device_bytes(capacity: Capacity) -> int:
    """Return the bytes of device memory of a workspace."""
    return field_places(capacity)[2]
