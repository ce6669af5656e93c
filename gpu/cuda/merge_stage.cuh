// Merges the listed pieces: a thread each, neighbours in a list have about the same length.
#pragma once
#include "look_up.cuh"
#include "merge.cuh"

constexpr int MERGE_THREADS = 128;
constexpr int LONG_MERGE_THREADS = 64;  // For pieces of more than 32 bytes.

// Writes the ids of a merged piece and its record.
template <int N, int THREADS>
DEVICE void write_merged(const Job& job, Columns<N, THREADS>& columns, uint64_t entry,
                         const typename Columns<N, THREADS>::Alive& alive) {
    uint32_t begin = static_cast<uint32_t>(entry), tile = begin / TILE;
    uint32_t number = entry >> 32 & 0xFFF, count = alive.count();
    uint32_t* ids = job.merged_ids + begin;
    for (uint32_t place = 0; place != columns.NONE; place = alive.next(place))
        *ids++ = __ldg(job.symbol_ids + columns.symbol(place, threadIdx.x));
    job.records[static_cast<uint64_t>(tile) * TILE + number] =
        MISS | count << PLACE_BITS | begin % TILE;
    atomicAdd(&job.tile_counts[tile], count);
}

// Merges the pieces of bins first_bin..last_bin, none longer than N bytes; long ones first.
template <int N, int THREADS>
DEVICE void merge_stage(const Job& job, Columns<N, THREADS>& columns, uint32_t first_bin,
                        uint32_t last_bin, uint32_t block, uint32_t num_blocks) {
    for (uint32_t bin = last_bin + 1; bin-- > first_bin;) {
        uint32_t count = job.miss_counts[bin], stride = num_blocks * THREADS;
        for (uint32_t i = block * THREADS + threadIdx.x; i < count; i += stride) {
            uint64_t entry = job.misses[bin][i];
            const uint8_t* text = job.text + static_cast<uint32_t>(entry);
            auto alive = merge_piece(job, columns, threadIdx.x, text, entry >> 44);
            write_merged(job, columns, entry, alive);
        }
    }
}
