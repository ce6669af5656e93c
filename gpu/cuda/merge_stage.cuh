// Merges the listed pieces: a thread each, neighbours in a list have about the same length.
#pragma once
#include "look_up.cuh"
#include "merge.cuh"

// Most ids of a piece in a bin.
DEVICE uint32_t longest_in_bin(uint32_t bin) {
    return bin < 4 ? 4 * bin + 4 : bin < 6 ? 8 * bin - 8 : 64 << (bin - 6);
}

// Where the ids of a bin's pieces begin in merged_ids; each piece has room for longest_in_bin.
DEVICE uint64_t merged_begin(const Job& job, uint32_t bin) {
    uint64_t begin = 0;
    for (uint32_t before = 0; before < bin; before++)
        begin += static_cast<uint64_t>(job.miss_counts[before]) * longest_in_bin(before);
    return begin;
}

// Writes the ids of a merged piece, four at a time.
template <int N, int THREADS>
DEVICE void write_merged(const Job& job, Columns<N, THREADS>& columns,
                         const typename Columns<N, THREADS>::Alive& alive, uint32_t* to) {
    uint4* fours = reinterpret_cast<uint4*>(to);
    for (uint32_t place = 0; place != columns.NONE;) {
        uint32_t ids[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (place == columns.NONE) break;
            ids[i] = __ldg(job.symbol_ids + columns.symbol(place, threadIdx.x));
            place = alive.next(place);
        }
        *fours++ = {ids[0], ids[1], ids[2], ids[3]};
    }
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
            uint64_t first_id = static_cast<uint64_t>(i) * longest_in_bin(bin);
            write_merged(job, shared.columns, alive, bin_ids + first_id);
        }
    }
}
