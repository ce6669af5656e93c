// The kernels that find the tokens of pieces; a module of its own, since it takes longest to compile.
#include "text/merge/merge_bins.cuh"

DYNAMIC_SHARED(memory);

// A block a tile: text, starts, cuts, special, special_counts, tables -> records, tile_pieces, misses, miss_counts,
// status.
KERNEL __launch_bounds__(BLOCK, 8) look_up(const Job* job) {
    wait_for_kernel_before();
    SHARED LookUpShared shared;
    look_up_stage<SeparateLaunches>(*job, shared, blockIdx.x, gridDim.x);
}

// A warp chunks of missed pieces of one bin, by tickets: text, misses, miss_counts, tables -> merged_ids,
// merged_counts, merge_tickets.
KERNEL __launch_bounds__(MERGE_THREADS, 1) merge(const Job* job) {
    wait_for_kernel_before();
    merge_stage(*job, *reinterpret_cast<MergeStageShared*>(memory), blockIdx.x, gridDim.x);
}
