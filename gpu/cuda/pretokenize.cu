// The kernels of the pretokenizer, in the order in which they run; the last three have nothing to do
// for most batches and return at once. Launch: BLOCK threads, in map_tiles MAP_BLOCK, in enter_runs
// ENTER_BLOCK or fewer warps; any number of blocks.
#include "pretokenize_redo.cuh"
#include "pretokenize_runs.cuh"
#include "pretokenize_stage.cuh"

KERNEL __launch_bounds__(BLOCK) pretokenize(const Job* job) {
    wait_for_kernel_before();
    SHARED PretokenizeShared shared;
    pretokenize_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(MAP_BLOCK, 2) map_tiles(const Job* job) {
    wait_for_kernel_before();
    SHARED MapShared shared;
    map_tiles_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(ENTER_BLOCK) enter_runs(const Job* job) {
    wait_for_kernel_before();
    SHARED RunsShared shared;
    enter_runs_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) redo_tiles(const Job* job) {
    wait_for_kernel_before();
    SHARED PretokenizeShared shared;
    redo_tiles_stage(*job, shared, blockIdx.x, gridDim.x);
}
