// The last stage of a small batch without post-processing: stores ids, offsets and report in pinned host memory. The
// ids of a tile are put in order in shared memory first, since single words are slow on their way to the host.
//
//     count_tiles    compact_to_host: every block adds all counts up, stores its tiles' ids and its rows' begins
//
// Every block adds all counts up for itself, which takes less time than waiting for another block.
//
// Invariant: the ids before each tile are the same in every block, so that blocks need not wait for each other.
#pragma once
#include "text/compact/compact.cuh"
#include "batch/store_answer.cuh"

namespace warptok::text {

struct CompactToHostShared {
    uint32_t sums[32];                     // Scratch of sum_groups.
    uint32_t group_offsets[SMALL_BATCH_TILES * SMALL_PARTS / WARPS];  // The ids before every tile.
    int32_t ids[TILE + MAX_PIECE];         // The ids of the pieces that begin in a tile.
};

// Adds up the ids before each tile; returns the ids of all.
DEVICE uint64_t sum_parts(const Job& job, CompactToHostShared& shared, uint32_t block) {
    uint64_t num_ids = sum_groups<SMALL_PARTS>(job, shared.sums, shared.group_offsets);
    if (block == 0 && threadIdx.x == 0) job.answer.status[STATUS_NUM_IDS] = num_ids;
    return num_ids;
}

DEVICE void compact_tiles_to_host(const Job& job, CompactToHostShared& shared, const BinBegins& begins,
                                  uint64_t num_ids, uint32_t block, uint32_t num_blocks) {
    static_assert(SMALL_PARTS == WARPS, "a warp a part, and what is before a tile's first one is added up");
    const uint32_t* before = shared.group_offsets;
    for (uint32_t tile = block; tile < num_tiles(job); tile += num_blocks) {
        uint32_t unit = tile * SMALL_PARTS + threadIdx.x / 32;
        uint64_t place = ids_before(job, before, unit) - before[tile];
        write_unit(job, begins, records_of<SMALL_PARTS>(job, unit), shared.ids + place);
        __syncthreads();
        uint64_t end = tile + 1 < num_tiles(job) ? before[tile + 1] : num_ids;
        put_ids(job, before[tile], shared.ids, end - before[tile], threadIdx.x, BLOCK);
        __syncthreads();
    }
}

// Writes ids, id_offsets and the report to the host, after sum_parts.
DEVICE void compact_to_host_stage(const Job& job, CompactToHostShared& shared, const BinBegins& begins,
                                  uint64_t num_ids, uint32_t block, uint32_t num_blocks) {
    compact_tiles_to_host(job, shared, begins, num_ids, block, num_blocks);
    // The offsets and the report are written while the ids are still being stored.
    GroupSums<uint32_t> sums = {shared.group_offsets, num_ids};
    row_offsets_stage<SMALL_PARTS>(job, sums, job.host.host_offsets, block, num_blocks);
    report_faults(job, block, num_blocks);
}

}  // namespace warptok::text
