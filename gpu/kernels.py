"""The kernels: their sources joined by module, their launch shapes, the order in which they run.

Knows no CuPy: `device` compiles a module when the first of its kernels is launched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from gpu.job import CUDA, constant

__all__ = [
    "CHARACTERS",
    "FAMILIES",
    "KERNELS",
    "KMERS",
    "SOURCES",
    "STRIDED_KMERS",
    "TEXT",
    "Family",
    "Kernel",
    "encode_kernels",
    "frame_kernels",
    "joined_source",
    "letter_kernels",
    "num_blocks",
    "plain_kernels",
]

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)
SOURCES = {
    "text": ("special.cu", "utf8.cu", "pretokenize.cu", "encode.cu", "frame.cu", "decode.cu"),
    "small": ("small.cu",),
    "symbols": ("symbols.cu",),
}
"""The files of each module; `text` has the kernels that all families share."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """How a kernel is launched; all of them walk over their work in steps of the whole grid.

    Attributes:
        threads: of a block.
        bytes_a_block: text that one block takes in one step.
        blocks_a_processor: blocks at most for each multiprocessor.
        shared_bytes: of shared memory that the launch asks for, beside what the kernel declares.
        module: of `SOURCES`, that it is compiled with.
        takes_job: the Job comes with the launch, from host memory; others read it on the device.
        cluster: blocks that run side by side; all of a launch.
    """

    threads: int
    bytes_a_block: int
    blocks_a_processor: int
    shared_bytes: int = 0
    module: str = "text"
    takes_job: bool = False
    cluster: int = 1


_WIDEST = 32
PLAIN_WRITERS = ("letters", "kmers", "strided")
_BLOCK, _TILE = constant("BLOCK"), constant("TILE")
_MERGE = 2 * 128 * 128 + 4 * constant("FILTER_WORDS") + 8 * 16 * 1024  # MergeShared of merge.cuh.
_WALK, _WORDS = constant("WALK_THREADS"), constant("WALK_WORDS")
_WALK_SHARED = _WALK // 32 * (2 * 4 * constant("WINDOW_1") + 4 * (_WORDS + 3)) + 256  # WalkShared.
_CHUNKS = 64 * _BLOCK  # A thread a chunk of 64 bytes.
_CLUSTER, _SMALL_SHARED = constant("CLUSTER"), constant("SMALL_SHARED")

_LETTERS = _BLOCK // 32 * constant("LETTER_TILE")
_SCAN_THREADS = constant("SCAN_THREADS")


def _symbol_kernels() -> dict[str, Kernel]:
    """Those of characters and k-mers; the ones that write ids do so in three widths."""
    shapes = {
        "turn_rows": (_BLOCK, 16 * _BLOCK, 8),
        "place_rows": (_BLOCK, _TILE, 8),
        "begin_letters": (_BLOCK, _CHUNKS, 8),
        "expand_letters": (_BLOCK, _TILE, 8),
        "place_letters": (_BLOCK, _TILE, 8),
        "mark_letter_rows": (_BLOCK, _TILE, 8),
        "find_breaks": (_BLOCK, _LETTERS, 8),
        "enter_tiles": (_SCAN_THREADS, 1 << 62, 1),
        "find_places": (_BLOCK, _LETTERS, 8),
        "sum_letter_tiles": (_SCAN_THREADS, 1 << 62, 1),
        "letter_offsets": (_BLOCK, _TILE, 8),
        "write_places": (_BLOCK, _LETTERS, 8),
        "frame_own_spans": (_BLOCK, _TILE, 8),
        "decode_kmers": (_BLOCK, _TILE, 8),
        "decode_kmers_again": (_BLOCK, _TILE, 8),
    }
    for bits in ("", "16", "8"):
        shapes |= {f"write_{name}{bits}": (_BLOCK, _TILE, 8) for name in PLAIN_WRITERS}
    return {name: Kernel(*shape, module="symbols") for name, shape in shapes.items()}


KERNELS = {
    "take_in": Kernel(_BLOCK, 16 * _BLOCK, 8),
    "mark_rows": Kernel(_BLOCK, _CHUNKS, 8),
    "clear_faults": Kernel(_BLOCK, _CHUNKS, 8),
    "validate": Kernel(_BLOCK, 16 * _BLOCK, 8),
    "find_special": Kernel(_BLOCK, _TILE, 6),
    "enter_special": Kernel(_BLOCK, 8 * _TILE, 8),
    "accept_special": Kernel(_BLOCK, _TILE, 6),
    "find_special_again": Kernel(_BLOCK, _TILE, 6),
    "enter_special_again": Kernel(_BLOCK, 8 * _TILE, 8),
    "accept_special_again": Kernel(_BLOCK, _TILE, 6),
    "clear_special": Kernel(_BLOCK, _CHUNKS, 8),
    "pretokenize": Kernel(_BLOCK, _CHUNKS, 16),
    "map_tiles": Kernel(_BLOCK, 8 * _TILE, 6),
    "enter_runs": Kernel(_BLOCK, 8 * _TILE, 4),
    "redo_tiles": Kernel(_BLOCK, 8 * _TILE, 6),
    "cut_certain": Kernel(1024, 64 * 1024, 2, 4 * (1 << 14) + 65536 // 8),
    "find_long": Kernel(_BLOCK, _CHUNKS, 8),
    "windows": Kernel(1024, 32 * 256, 1, _MERGE),
    "check_windows": Kernel(_BLOCK, 32 * _BLOCK, 8),
    "write_borders": Kernel(_BLOCK, 32 * _BLOCK, 8),
    "hard_windows": Kernel(128, 4 * 768, 6),
    "check_hard": Kernel(_BLOCK, 768 * _BLOCK, 8),
    "write_hard_borders": Kernel(_BLOCK, 768 * _BLOCK, 8),
    "walk_pieces": Kernel(_WALK, _TILE, 1, _WALK_SHARED),
    "whole_pieces": Kernel(_BLOCK, _TILE, 8),
    "look_up": Kernel(_BLOCK, _TILE, 1 << 20),
    "merge": Kernel(1024, 2 * 1024, 1, _MERGE + 12 * constant("NUM_BINS")),
    "row_offsets": Kernel(_BLOCK, _TILE, 16),
    "count_tiles": Kernel(_BLOCK, 8 * _TILE, 32),
    "sum_tiles": Kernel(constant("SCAN_BLOCK"), 1 << 62, 1),
    "compact": Kernel(_BLOCK, 8 * _TILE, 32),
    "put_out": Kernel(_BLOCK, 4 * _BLOCK, 1),
    "pack": Kernel(_BLOCK, _TILE, 16),
    "frame_rows": Kernel(_BLOCK, _TILE, 8),
    "frame_ids": Kernel(_BLOCK, _TILE, 8),
    "span_begins": Kernel(_BLOCK, _TILE, 8),
    "frame_spans": Kernel(_BLOCK, _TILE, 8),
    "decode_spell": Kernel(_BLOCK, _TILE, 8),
    "decode_spell_again": Kernel(_BLOCK, _TILE, 8),
    "encode_block": Kernel(_BLOCK, _TILE, 1, _SMALL_SHARED, "small", takes_job=True),
    "encode_cluster": Kernel(
        _BLOCK, _TILE, 1, _SMALL_SHARED, "small", takes_job=True, cluster=_CLUSTER
    ),
    **_symbol_kernels(),
}

SPECIAL = (
    ("find_special", "enter_special", "accept_special"),
    ("find_special_again", "enter_special_again", "accept_special_again"),
)
"""By round: special tokens in the text, and in what these leave of it."""

PRETOKENIZE = ("pretokenize", "map_tiles", "enter_runs", "redo_tiles")
CUT = (
    "cut_certain",
    *("find_long", "windows", "check_windows", "write_borders"),
    *("hard_windows", "check_hard", "write_hard_borders", "walk_pieces", "whole_pieces"),
)
MERGE = ("look_up", "merge")
COUNT = ("count_tiles", "sum_tiles", "row_offsets")


@dataclass(frozen=True, slots=True)
class Family:
    """The kernels of one kind of vocabulary, between those that all of them share.

    Attributes:
        name: of the family.
        layout: of its workspaces (`layout.LAYOUTS`).
        content: from text, hard bits and accepted special tokens to id_offsets.
        write: from there to ids.
        spans: from framed rows to spans.
        decode: from ids to bytes.
        is_fused: whether the kernels of small.cu do all of it in one launch, unless STATUS_RARE.
        plain: from rows to id_offsets and ids, for most batches; where they set STATUS_RARE all
            others follow. () where there are none such.
        rewrite: those of `content` that rewrite the text; not needed where its bytes are letters.
        turns_rows: rows may ask for the other strand or a circle.
    """

    name: str
    layout: str
    content: tuple[str, ...]
    write: tuple[str, ...]
    spans: tuple[str, ...]
    decode: tuple[str, ...] = ("decode_spell", "decode_spell_again")
    is_fused: bool = False
    plain: tuple[str, ...] = ()
    rewrite: tuple[str, ...] = ()
    turns_rows: bool = False


TEXT = Family(
    "text",
    "text",
    content=(*PRETOKENIZE, "clear_special", *CUT, *MERGE, *COUNT),
    write=("compact",),
    spans=("span_begins", "frame_spans"),
    is_fused=True,
)
"""Byte-level BPE behind a pretokenizer."""

REWRITE = ("begin_letters", "clear_special", "expand_letters", "place_letters")
PLACES = (
    *("mark_letter_rows", "find_breaks", "enter_tiles", "find_places", "sum_letter_tiles"),
    "letter_offsets",
)
CHARACTERS = Family(
    "characters",
    "symbols",
    content=(*REWRITE, *PLACES),
    write=("write_places",),
    spans=("frame_own_spans",),
    plain=("place_rows", "write_letters"),
    rewrite=REWRITE,
    turns_rows=True,
)
"""An id for each letter."""
KMERS = replace(
    CHARACTERS,
    name="kmers",
    plain=("place_rows", "write_kmers"),
    decode=("decode_kmers", "decode_kmers_again"),
)
"""An id for each letter and those behind it."""
STRIDED_KMERS = replace(KMERS, name="strided_kmers", plain=("place_rows", "write_strided"))
"""An id for every so many letters."""

FAMILIES = {family.name: family for family in (TEXT, CHARACTERS, KMERS, STRIDED_KMERS)}


def encode_kernels(
    family: Family = TEXT,
    *,
    num_rounds: int = 0,
    validate: bool = False,
    count_only: bool = False,
) -> tuple[str, ...]:
    """From text and row_begins on the device to ids and id_offsets.

    Args:
        family: of the vocabulary.
        num_rounds: rounds of special tokens, see special.py.
        validate: whether rows may not be UTF-8.
        count_only: id_offsets without ids.
    """
    special: tuple[str, ...] = sum(SPECIAL[:num_rounds], ())
    return (
        *("mark_rows", "clear_faults"),
        *(("validate",) if validate else ()),
        *special,
        *(name for name in family.content if special or name != "clear_special"),
        *(() if count_only else family.write),
    )


def plain_kernels(family: Family, *, id_bits: int = 32, turned: bool = False) -> tuple[str, ...]:
    """What a family tries first; ids of fewer bits than 32 go to `packed`."""
    *first, write = family.plain
    return (
        *(("turn_rows",) if turned else ()),
        *first,
        write if id_bits == _WIDEST else f"{write}{id_bits}",
    )


def letter_kernels(family: Family) -> tuple[str, ...]:
    """As encode_kernels, for a batch whose bytes are letters: it needs not be rewritten."""
    content = (name for name in family.content if name not in family.rewrite)
    return ("clear_faults", *content, *family.write)


def frame_kernels(
    family: Family = TEXT, *, spans: bool, count_only: bool = False
) -> tuple[str, ...]:
    """Begin and end tokens and truncation, behind encode_kernels."""
    if count_only:
        return ("frame_rows",)
    return ("frame_rows", "frame_ids", *(family.spans if spans else ()))


def num_blocks(name: str, num_bytes: int, processors: int) -> int:
    """Blocks of a launch for up to `num_bytes` of text on a device of so many multiprocessors."""
    kernel = KERNELS[name]
    if kernel.cluster > 1:
        return kernel.cluster
    return max(
        1, min(-(-num_bytes // kernel.bytes_a_block), kernel.blocks_a_processor * processors)
    )


def joined_source(module: str) -> str:
    """A module as one source without includes, so that a cache of compiled code sees it all."""
    done: set[str] = set()
    return "\n".join(_with_includes(CUDA / name, done) for name in SOURCES[module])


def _with_includes(path: Path, done: set[str]) -> str:
    done.add(path.name)

    def include(line: re.Match[str]) -> str:
        return "" if line[1] in done else _with_includes(CUDA / line[1], done)

    return _INCLUDE.sub(include, path.read_text()).replace("#pragma once\n", "")
