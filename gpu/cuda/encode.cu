// The kernels of byte-level BPE, in the order in which they run; see gpu/README.md.
#include "compact.cuh"
#include "cut_hard.cuh"
#include "cut_whole.cuh"
#include "merge_stage.cuh"
#include "take_in.cuh"

KERNEL __launch_bounds__(BLOCK) take_in(const Job* job) {
    take_in_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) mark_rows(const Job* job) {
    mark_rows_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) find_long(const Job* job) {
    find_long_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(WINDOW_THREADS) windows(const Job* job) {
    SHARED Columns<WINDOW_0, WINDOW_THREADS> columns;
    windows_stage(*job, columns, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) check_windows(const Job* job) {
    check_windows_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) write_borders(const Job* job) {
    write_borders_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(32 * WARPS_1) hard_windows(const Job* job) {
    SHARED WarpColumns columns[WARPS_1];
    hard_windows_stage(*job, columns, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) check_hard(const Job* job) {
    check_hard_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) write_hard_borders(const Job* job) {
    write_hard_borders_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) whole_pieces(const Job* job) {
    SHARED WholeShared shared;
    whole_pieces_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 8) look_up(const Job* job) {
    SHARED LookUpShared shared;
    look_up_stage(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(MERGE_THREADS) merge_8(const Job* job) {
    SHARED Columns<8, MERGE_THREADS> columns;
    merge_stage(*job, columns, 0, 1, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(MERGE_THREADS) merge_16(const Job* job) {
    SHARED Columns<16, MERGE_THREADS> columns;
    merge_stage(*job, columns, 2, 3, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(MERGE_THREADS) merge_32(const Job* job) {
    SHARED Columns<32, MERGE_THREADS> columns;
    merge_stage(*job, columns, 4, 5, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(LONG_MERGE_THREADS) merge_64(const Job* job) {
    SHARED Columns<64, LONG_MERGE_THREADS> columns;
    merge_stage(*job, columns, 6, 6, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(LONG_MERGE_THREADS / 2) merge_128(const Job* job) {
    SHARED Columns<128, LONG_MERGE_THREADS / 2> columns;
    merge_stage(*job, columns, 7, 7, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(SCAN_BLOCK) sum_tiles(const Job* job) {
    SHARED uint64_t scratch[32];
    sum_tiles_stage(*job, scratch);
}

KERNEL __launch_bounds__(BLOCK) row_offsets(const Job* job) {
    row_offsets_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) compact(const Job* job) {
    SHARED CompactShared shared;
    compact_stage(*job, shared, blockIdx.x, gridDim.x);
}
