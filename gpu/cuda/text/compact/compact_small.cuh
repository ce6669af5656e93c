// The ids of a batch of few tiles one after another, and where each row's begin, in one launch: every block adds the
// counts up for itself, which takes less than waiting for one.
//
//     look_up_few, merge    tile_counts, of each part
//     compact_few           what is before each tile, ids, id_offsets
#pragma once
#include "text/compact/compact.cuh"
#include "text/compact/row_offsets.cuh"

struct PartSums {                          // Of each block: the ids before every tile.
    uint32_t sums[32], group_offsets[FEW_TILES * SMALL_PARTS / WARPS];
};

// How many ids there are, and what is before each tile's.
DEVICE uint64_t sum_parts(const Job& job, PartSums& shared, uint32_t block) {
    uint64_t num_ids = sum_groups<SMALL_PARTS>(job, shared.sums, shared.group_offsets);
    if (block == 0 && threadIdx.x == 0) job.status[STATUS_NUM_IDS] = num_ids;
    return num_ids;
}

struct CompactFewShared {
    BinBegins begins;
    PartSums parts;
    RowOffsetsShared rows;
};

template <class Id>
DEVICE void compact_few_stage(const Job& job, Id* ids, CompactFewShared& shared, uint32_t block, uint32_t num_blocks) {
    find_begins<false>(job, shared.begins);
    GroupSums<uint32_t> sums = {shared.parts.group_offsets, sum_parts(job, shared.parts, block)};
    constexpr uint32_t AHEAD = 4;          // Few warps have nothing else to do meanwhile.
    write_units<SMALL_PARTS, AHEAD>(job, shared.begins, sums.before, ids, block, num_blocks);
    all_row_offsets(job, sums, shared.rows, block, num_blocks);
}
