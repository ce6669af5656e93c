// The kernels that cut pieces where merges never cross, in the order in which they run; see
// gpu/README.md.
#include "cut_certain.cuh"
#include "cut_find.cuh"
#include "cut_join.cuh"
#include "cut_level.cuh"
#include "cut_whole.cuh"

DYNAMIC_SHARED(memory);

KERNEL __launch_bounds__(CERTAIN_BLOCK, 1) cut_certain(const Job* job) {
    wait_for_kernel_before();
    cut_certain_stage(*job, *reinterpret_cast<CertainShared*>(memory), blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) find_long(const Job* job) {
    wait_for_kernel_before();
    SHARED FindShared shared;
    find_long_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(MERGE_THREADS, 1) windows(const Job* job) {
    wait_for_kernel_before();
    windows_stage(*job, *reinterpret_cast<MergeShared*>(memory), blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) check_windows(const Job* job) {
    wait_for_kernel_before();
    check_windows_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BRIDGE_THREADS, BRIDGE_BLOCKS) bridges(const Job* job) {
    wait_for_kernel_before();
    SHARED BridgeShared shared;
    bridges_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) join_bridges(const Job* job) {
    wait_for_kernel_before();
    join_bridges_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) write_borders(const Job* job) {
    wait_for_kernel_before();
    write_borders_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(WALK_THREADS, 1) last_pieces(const Job* job) {
    wait_for_kernel_before();
    last_pieces_stage(*job, *reinterpret_cast<LastShared*>(memory), blockIdx.x, gridDim.x);
}
