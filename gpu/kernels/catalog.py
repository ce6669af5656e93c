"""Lists the kernels: the sources of each module, and each kernel's launch shape.

Nothing here compiles: `runtime.module_loader` compiles a module when one of its kernels is first
launched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpu.kernels.job import CUDA, constant

_INCLUDE = re.compile(r'^#include "([\w/]+\.cuh)"$', re.MULTILINE)
SOURCES = {
    "text": (
        "special/kernels.cu",
        "batch/utf8.cu",
        "text/pretokenize/kernels.cu",
        "text/kernels.cu",
        "batch/post_process.cu",
        "decode/decode.cu",
    ),
    "nfc_check": ("text/pretokenize/nfc_check.cu",),
    "split": ("text/split/kernels.cu",),
    "merge": ("text/merge/kernels.cu",),
    "fused_block": ("text/fused/block.cu",),
    "fused_cluster": ("text/fused/cluster.cu",),
    "fused_grid": ("text/fused/grid.cu",),
    "kmers": ("kmers/kernels.cu",),
    "plain_kmers": ("kmers/plain_kernels.cu",),
    "dna": ("dna/kernels.cu",),
    "repair_chunk128": ("dna/repair/chunk128.cu",),
    "repair_chunk512": ("dna/repair/chunk512.cu",),
    "dna_parts": ("dna/parts/kernels.cu",),
    "training": ("training/kernels.cu",),
}
"""The files of each module; a module is named after its folder or file.

`text` has the kernels that all families share. Modules are compiled in parallel, so the first
answer waits for the slowest of them.
"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The launch shape of a kernel; every kernel strides over its work by the whole grid.

    Attributes:
        threads: the threads of a block.
        bytes_a_block: the text that a block processes in one stride.
        blocks_a_processor: the largest number of blocks for each multiprocessor.
        shared_bytes: the dynamic shared memory of a block.
        warp_shared_bytes: the part of it that each warp has, where a block may have fewer warps;
            0: it may not.
        module: the module of `SOURCES` that has the kernel.
        takes_job: whether the Job comes with the launch, from host memory; other kernels read it
            in device memory.
        cluster: the number of blocks of the cluster that forms the whole launch; 1: no cluster.
        is_grid: whether the blocks wait for each other, so that all must run at the same time.
        bytes_a_small_block: `bytes_a_block` in small batches; 0: the same.
        stage: the stage under which its time is counted, see `runtime.stage_timer`.
    """

    threads: int
    bytes_a_block: int
    blocks_a_processor: int
    shared_bytes: int = 0
    module: str = "text"
    takes_job: bool = False
    cluster: int = 1
    is_grid: bool = False
    bytes_a_small_block: int = 0
    stage: str = "compact"
    warp_shared_bytes: int = 0


_BLOCK, _TILE = constant("BLOCK"), constant("TILE")
SMALL_BATCH_BYTES = constant("SMALL_BATCH_TILES") * _TILE
"""The most text of a small batch: `is_small_batch` of common/job.cuh."""
_CERTAIN_BLOCK, _MERGE_THREADS = constant("CERTAIN_BLOCK"), constant("MERGE_THREADS")
_WARP_COLUMNS = 8 * constant("WARP_PLACES")  # Columns of text/merge/piece_state.cuh.
_STRIDE = constant("WINDOW_STEP")  # From one window of a long piece to the next.
_CHUNKS = 64 * _BLOCK  # Each thread processes 64 bytes.
_CLUSTER, _FUSED_SHARED = constant("CLUSTER"), constant("FUSED_SHARED")

_LETTERS = _BLOCK // 32 * constant("LETTER_TILE")
_SCAN_THREADS = constant("SCAN_THREADS")
_AROUND = constant("AROUND") + constant("BEHIND_TILE")  # Letters that neighbouring tiles share.


def _kmer_kernels() -> dict[str, Kernel]:
    """Return the kernels of characters and k-mers; those that write ids exist for three widths."""
    pretokenize = {
        "augment_rows": Kernel(_BLOCK, 16 * _BLOCK, 8),
        "begin_letters": Kernel(_BLOCK, _CHUNKS, 8),
        "expand_letters": Kernel(_BLOCK, _TILE, 8),
        "place_letters": Kernel(_BLOCK, _TILE, 8),
        "mark_letter_rows": Kernel(_BLOCK, _TILE, 8),
        "find_breaks": Kernel(_BLOCK, _LETTERS, 8),
        "enter_tiles": Kernel(_SCAN_THREADS, 1 << 62, 1),
        "find_places": Kernel(_BLOCK, _LETTERS, 8),
        "sum_letter_tiles": Kernel(_SCAN_THREADS, 1 << 62, 1),
        "letter_offsets": Kernel(_BLOCK, _TILE, 8),
    }
    merge = {
        "place_neighbours": Kernel(_BLOCK, _TILE, 8),
        "place_rows": Kernel(_BLOCK, _TILE, 8),
    }
    compact = {
        "write_places": Kernel(_BLOCK, _LETTERS, 8),
        "post_process_own_spans": Kernel(_BLOCK, _TILE, 8),
        "decode_kmers": Kernel(_BLOCK, _TILE, 8),
        "decode_kmers_again": Kernel(_BLOCK, _TILE, 8),
        "cut_windows": Kernel(_BLOCK, 4 * _BLOCK, 8),
    }
    fused = {}  # They read over PCIe, which two blocks a multiprocessor keep busy.
    for bits, id_bytes in (("", 4), ("16", 2), ("8", 1)):
        # One block for each piece of text; fewer blocks that stride took 5 to 10 % longer.
        each = constant("LETTER_ROUNDS") * _BLOCK * 16 // id_bytes
        compact[f"write_letters{bits}"] = Kernel(_BLOCK, each, 1 << 20)
        letters = constant("STAGED_BYTES") // id_bytes
        for name, own, blocks in (
            ("kmers", min(letters, constant("MOST_LETTERS")), 1 << 20),
            ("strided", constant("TILE_LETTERS"), 1 << 20),
            ("even_kmers", letters, 1 << 20),
            ("even_strided", constant("TILE_LETTERS"), 32),
        ):
            compact[f"write_{name}{bits}"] = Kernel(_BLOCK, _BLOCK // 32 * (own - _AROUND), blocks)
        fused[f"fetch_letters{bits}"] = Kernel(_BLOCK, each, 2, takes_job=True)
    stages = {"pretokenize": pretokenize, "merge": merge, "compact": compact, "fused": fused}
    return {
        name: replace(kernel, module=_kmer_module(name), stage=stage)
        for stage, kernels in stages.items()
        for name, kernel in kernels.items()
    }


def _kmer_module(kernel: str) -> str:
    is_plain = kernel.startswith(("place_neighbours", "place_rows", "write_", "fetch_"))
    return "plain_kmers" if is_plain and kernel != "write_places" else "kmers"


def _dna_kernels() -> dict[str, Kernel]:
    """Return the kernels of BPE over DNA letters; a window is SMALL_CHUNK letters or more."""
    walkers, chunk = constant("WALKERS"), constant("SMALL_CHUNK")
    threads = constant("PART_THREADS")
    parts = Kernel(
        threads,
        threads,
        1,
        constant("DNA_PARTS_SHARED"),
        module="dna_parts",
        takes_job=True,
        is_grid=True,
        stage="fused",
    )
    kernels = {
        "map_letters": Kernel(_BLOCK, _CHUNKS, 8),
        "pack_letters": Kernel(_BLOCK, _CHUNKS, 8, stage="pretokenize"),
        "pack_special": Kernel(_BLOCK, _CHUNKS, 8, stage="pretokenize"),
        "strip_ends": Kernel(_BLOCK, _CHUNKS, 8, stage="pretokenize"),
        "walk_windows": Kernel(walkers, chunk * walkers, 8, stage="merge"),
        "forward_windows": Kernel(
            constant("FORWARD_THREADS"),
            chunk,
            constant("FORWARD_BLOCKS"),
            constant("FORWARD_SHARED"),
            stage="merge",
        ),
        "forward_windows_copied": Kernel(
            constant("COPIED_THREADS"), chunk, 1, constant("COPIED_SHARED"), stage="merge"
        ),
        "meet_windows": Kernel(_BLOCK, chunk * _BLOCK, 8, stage="merge"),
        "write_letter_ids": Kernel(_BLOCK, _TILE, 8),
    }
    kernels = {name: replace(kernel, module="dna") for name, kernel in kernels.items()}
    for name, module in (("repair_small", "repair_chunk128"), ("repair_large", "repair_chunk512")):
        kernels[name] = Kernel(_BLOCK, chunk * _BLOCK, 3, module=module, stage="merge")
    return kernels | {"encode_dna_parts": parts, "encode_dna_parts_copied": parts}


def _training_kernels() -> dict[str, Kernel]:
    """Return the kernels that learn a vocabulary; their "bytes" are tokens, or rows of pairs."""
    tile = constant("TRAIN_TILE")
    shapes = {
        "count_pairs": (_BLOCK, tile, 8),
        "find_repeats": (_BLOCK, tile, 8),
        "enter_repeats": (constant("RUN_THREADS"), 1 << 62, 1),
        "merge_tokens": (_BLOCK, tile, 5),
        "merge_placed": (_BLOCK, tile, 3),
        "update_pairs": (_BLOCK, _BLOCK, 8),
        "best_of_rows": (_BLOCK, 1, 8),
        "best_pair": (_BLOCK, 1 << 62, 1),
    }
    return {name: Kernel(*shape, module="training") for name, shape in shapes.items()}


KERNELS = {
    "load_batch": Kernel(_BLOCK, 16 * _BLOCK, 8, takes_job=True, stage="copy_to_device"),
    "mark_rows": Kernel(_BLOCK, _CHUNKS, 8, stage="pretokenize"),
    "clear_faults": Kernel(_BLOCK, _CHUNKS, 8, stage="pretokenize"),
    "validate": Kernel(_BLOCK, 16 * _BLOCK, 8, stage="pretokenize"),
    "check_composed": Kernel(_BLOCK, 16 * _BLOCK, 8, module="nfc_check"),
    "find_special": Kernel(_BLOCK, _TILE, 6, stage="pretokenize"),
    "enter_special": Kernel(_BLOCK, 8 * _TILE, 8, stage="pretokenize"),
    "accept_special": Kernel(_BLOCK, _TILE, 6, stage="pretokenize"),
    "find_special_again": Kernel(_BLOCK, _TILE, 6, stage="pretokenize"),
    "enter_special_again": Kernel(_BLOCK, 8 * _TILE, 8, stage="pretokenize"),
    "accept_special_again": Kernel(_BLOCK, _TILE, 6, stage="pretokenize"),
    "accept_whole": Kernel(_BLOCK, _CHUNKS, 8, stage="pretokenize"),
    "clear_special": Kernel(_BLOCK, _CHUNKS, 8, stage="pretokenize"),
    "pretokenize": Kernel(_BLOCK, _CHUNKS, 16, bytes_a_small_block=_TILE, stage="pretokenize"),
    "map_tiles": Kernel(constant("MAP_BLOCK"), _TILE, 2, stage="pretokenize"),
    "enter_runs": Kernel(
        constant("ENTER_BLOCK"), constant("ENTER_BLOCK") * _TILE, 1, stage="pretokenize"
    ),
    "redo_tiles": Kernel(_BLOCK, _CHUNKS, 6, stage="pretokenize"),
    "split_at_certain": Kernel(
        _CERTAIN_BLOCK,
        16 * _CERTAIN_BLOCK,
        constant("CERTAIN_BLOCKS"),
        constant("CERTAIN_SHARED"),
        module="split",
        stage="pretokenize",
    ),
    "find_long": Kernel(_BLOCK, _CHUNKS, 8, module="split", stage="pretokenize"),
    # A warp processes a window; those of a small batch are spread over all multiprocessors.
    "windows": Kernel(
        _MERGE_THREADS,
        _MERGE_THREADS // 32 * _STRIDE,
        constant("MERGE_BLOCKS"),
        constant("WINDOWS_SHARED"),
        module="split",
        warp_shared_bytes=_WARP_COLUMNS,
        bytes_a_small_block=_STRIDE,
        stage="pretokenize",
    ),
    "check_windows": Kernel(_BLOCK, _STRIDE * _BLOCK, 8, module="split", stage="pretokenize"),
    "write_borders": Kernel(_BLOCK, _STRIDE * _BLOCK // 32, 8, module="split", stage="pretokenize"),
    "last_pieces": Kernel(constant("WHOLE_THREADS"), 2048, 1, module="split", stage="pretokenize"),
    "look_up": Kernel(_BLOCK, _TILE, 1 << 20, module="merge", stage="merge"),
    "merge": Kernel(
        _MERGE_THREADS,
        2 * _MERGE_THREADS,
        constant("MERGE_BLOCKS"),
        constant("MERGE_SHARED"),
        module="merge",
        warp_shared_bytes=_WARP_COLUMNS,
        stage="merge",
    ),
    "row_offsets": Kernel(_BLOCK, _TILE, 16),
    "count_tiles": Kernel(_BLOCK, 8 * _TILE, 32, bytes_a_small_block=_TILE),
    "sum_tiles": Kernel(constant("SCAN_BLOCK"), 1 << 62, 1),
    "compact": Kernel(_BLOCK, 8 * _TILE, 32, bytes_a_small_block=_TILE),
    "compact16": Kernel(_BLOCK, 8 * _TILE, 32, bytes_a_small_block=_TILE),
    "compact_to_host": Kernel(_BLOCK, _TILE, 8, stage="copy_to_host"),
    "store_answer": Kernel(_BLOCK, 4 * _BLOCK, 1, stage="copy_to_host"),
    "report": Kernel(_BLOCK, 16 * _BLOCK, 1, stage="copy_to_host"),
    "narrow_ids": Kernel(_BLOCK, _TILE, 16),
    "post_process_rows": Kernel(_BLOCK, _TILE, 8),
    "post_process_ids": Kernel(_BLOCK, _TILE, 8),
    "span_begins": Kernel(_BLOCK, _TILE, 8),
    "post_process_spans": Kernel(_BLOCK, _TILE, 8),
    "decode_spell": Kernel(_BLOCK, _TILE, 8),
    "decode_spell_again": Kernel(_BLOCK, _TILE, 8),
    "encode_block": Kernel(
        _BLOCK, _TILE, 1, _FUSED_SHARED, "fused_block", takes_job=True, stage="fused"
    ),
    "encode_cluster": Kernel(
        _BLOCK,
        _TILE,
        1,
        _FUSED_SHARED,
        "fused_cluster",
        takes_job=True,
        cluster=_CLUSTER,
        stage="fused",
    ),
    "encode_grid": Kernel(
        _BLOCK,
        _TILE // 2,
        constant("GRID_BLOCKS"),
        _FUSED_SHARED,
        module="fused_grid",
        takes_job=True,
        is_grid=True,
        stage="fused",
    ),
    **_kmer_kernels(),
    **_dna_kernels(),
    **_training_kernels(),
}


def num_blocks(name: str, num_bytes: int, processors: int) -> int:
    """Return the number of blocks with which a kernel is launched.

    Args:
        name: the kernel, a key of KERNELS.
        num_bytes: the bytes of text of the batch.
        processors: the multiprocessors of the device.
    """
    kernel = KERNELS[name]
    if kernel.cluster > 1:
        return kernel.cluster
    each = kernel.bytes_a_block
    if num_bytes <= SMALL_BATCH_BYTES:
        each = kernel.bytes_a_small_block or each
    return max(1, min(-(-num_bytes // each), kernel.blocks_a_processor * processors))


def modules_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the modules of these kernels and the module that all families share."""
    own = {"text", *(KERNELS[name].module for name in names)}
    return tuple(module for module in SOURCES if module in own)


def joined_source(module: str) -> str:
    """Return a module's source with all includes inserted, so compile caches notice changes."""
    return source_of(*SOURCES[module])


def source_of(*names: str) -> str:
    """Join files of gpu/cuda to one source with all includes inserted."""
    done: set[str] = set()
    return "\n".join(_with_includes(name, done) for name in names)


def _with_includes(name: str, done: set[str]) -> str:
    done.add(name)

    def include(line: re.Match[str]) -> str:
        return "" if line[1] in done else _with_includes(line[1], done)

    return _INCLUDE.sub(include, (CUDA / name).read_text()).replace("#pragma once\n", "")
