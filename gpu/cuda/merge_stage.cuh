// Merges the listed pieces: a thread each, neighbours in a list have about the same length.
#pragma once
#include "look_up.cuh"
#include "merge.cuh"

// Most ids of a piece in a bin.
DEVICE uint32_t longest_in_bin(uint32_t bin) {
    return bin < 4 ? 4 * bin + 4 : bin < 6 ? 8 * bin - 8 : 64 << (bin - 6);
}

// Where the ids of a bin's pieces begin in merged_ids: first the first id of every piece, then the
// second of every piece and so on, so that a warp writes neighbours.
DEVICE uint64_t merged_begin(const Job& job, uint32_t bin) {
    uint64_t begin = 0;
    for (uint32_t before = 0; before < bin; before++)
        begin += static_cast<uint64_t>(job.miss_counts[before]) * longest_in_bin(before);
    return begin;
}

template <int N, int THREADS> struct MergeShared {
    PairCache cache;
    Columns<N, THREADS> columns;
};

// Merges the pieces of bins first_bin..last_bin, none longer than N bytes; long ones first.
template <int N, int THREADS>
DEVICE void merge_stage(const Job& job, MergeShared<N, THREADS>& shared, uint32_t first_bin,
                        uint32_t last_bin, uint32_t block, uint32_t num_blocks) {
    if (!job.miss_counts[first_bin] && !job.miss_counts[last_bin]) return;
    load_cache(job, shared.cache);
    for (uint32_t bin = last_bin + 1; bin-- > first_bin;) {
        uint32_t count = job.miss_counts[bin], stride = num_blocks * THREADS;
        uint32_t* bin_ids = job.merged_ids + merged_begin(job, bin);
        for (uint32_t i = block * THREADS + threadIdx.x; i < count; i += stride) {
            uint64_t entry = job.misses[bin][i];
            const uint8_t* text = job.text + static_cast<uint32_t>(entry);
            auto alive = merge_piece(job, shared.cache, shared.columns, threadIdx.x, text, entry >> 32);
            job.merged_counts[bin][i] = alive.count();
            uint32_t* to = bin_ids + i;
            for (uint32_t place = 0; place != shared.columns.NONE; place = alive.next(place)) {
                *to = __ldg(job.symbol_ids + shared.columns.symbol(place, threadIdx.x));
                to += count;
            }
        }
    }
}
