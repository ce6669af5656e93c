// The kernels that learn a vocabulary, in the order in which they run for each merge; see gpu/README.md.
// Launch: BLOCK threads, any number of blocks; enter_repeats one block of RUN_THREADS, best_pair one block.
#include "train_merge.cuh"
#include "train_pairs.cuh"

KERNEL __launch_bounds__(BLOCK) count_pairs(const TrainJob* job) {
    SHARED PairsShared shared;
    count_pairs_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) find_repeats(const TrainJob* job) {
    SHARED uint64_t scratch[BLOCK / 32];
    find_repeats_stage(*job, scratch, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(RUN_THREADS) enter_repeats(const TrainJob* job) {
    SHARED uint64_t scratch[RUN_THREADS];
    enter_repeats_stage(*job, scratch);
}

KERNEL __launch_bounds__(BLOCK) merge_tokens(const TrainJob* job) {
    SHARED MergeTileShared<false> shared;
    merge_tiles_stage<false>(*job, shared);
}

KERNEL __launch_bounds__(BLOCK) merge_placed(const TrainJob* job) {
    SHARED MergeTileShared<true> shared;
    merge_tiles_stage<true>(*job, shared);
}

KERNEL __launch_bounds__(BLOCK) update_pairs(const TrainJob* job) {
    update_pairs_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) best_of_rows(const TrainJob* job) {
    SHARED BestShared shared;
    best_of_rows_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) best_pair(const TrainJob* job) {
    SHARED BestShared shared;
    best_pair_stage(*job, shared);
}
