// Looking pieces up and merging those that are no tokens; a module of its own, since it takes longest to compile.
//
//     look_up    a record for each piece: an id, or a place in a list of misses      text/lookup
//     merge      the ids of all misses                                               merge_bins.cuh, merge_piece.cuh
//
// merge_piece.cuh merges a piece one pair at a time, whose rank pair_ranks.cuh knows; byte_runs.cuh gives runs of one
// byte their first merges. gpu/kernels/families.py launches them behind splitting; a small batch has the same stages in
// one launch. Invariant: no piece is longer than MAX_PIECE here, unless it is a token.
//
// Launch: BLOCK threads, in merge MERGE_THREADS; any number of blocks.
#include "text/merge/merge_bins.cuh"

using namespace warptok::text;

DYNAMIC_SHARED(memory);

// A block per tile: text, starts, splits, special, special_counts, tables -> records, tile_pieces, misses, miss_counts,
// status.
// Needs: final start bits; miss_counts of zeros.
// Ensures: each piece has a record; those that are no token are listed by length in misses.
KERNEL __launch_bounds__(BLOCK, 8) look_up(const Job* job) {
    wait_for_kernel_before();
    SHARED LookUpShared shared;
    look_up_stage<SeparateLaunches>(*job, shared, blockIdx.x, gridDim.x);
}

// A warp takes chunks of missed pieces of one bin; columns and filter lie in 97 KiB of dynamic shared memory: text,
// misses, miss_counts, tables -> merged_ids, merged_counts, merge_tickets.
// Needs: look_up; merge_tickets is 0.
// Ensures: each missed piece has its ids in merged_ids, and how many these are in merged_counts.
KERNEL __launch_bounds__(MERGE_THREADS, MERGE_BLOCKS) merge(const Job* job) {
    wait_for_kernel_before();
    merge_stage(*job, *reinterpret_cast<MergeShared*>(memory), blockIdx.x, gridDim.x);
}
