// The kernels of the pretokenizer, in the order in which they run; the last three have nothing to do
// for most batches and return at once. Launch: BLOCK threads, any number of blocks.
#include "pretokenize_stage.cuh"

KERNEL __launch_bounds__(BLOCK) pretokenize(const Job* job) {
    SHARED PretokenizeShared shared;
    pretokenize_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) map_tiles(const Job* job) {
    SHARED PretokenizeShared shared;
    map_tiles_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) enter_runs(const Job* job) {
    enter_runs_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) redo_tiles(const Job* job) {
    SHARED PretokenizeShared shared;
    redo_tiles_stage(*job, shared, blockIdx.x, gridDim.x);
}
