// The kernels of byte-level BPE but for those that cut pieces (cut.cu) and merge them (merge.cu), in the
// order in which they run; see gpu/README.md.
#include "answer.cuh"
#include "compact_few.cuh"
#include "pack.cuh"
#include "put_out.cuh"
#include "row_offsets.cuh"
#include "take_in.cuh"

KERNEL __launch_bounds__(BLOCK) take_in(GRID_CONSTANT const Job job) {
    wait_for_kernel_before();
    take_in_stage(job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) mark_rows(const Job* job) {
    wait_for_kernel_before();
    mark_rows_stage(*job, blockIdx.x, gridDim.x);
    clear_faults_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) count_tiles(const Job* job) {
    wait_for_kernel_before();
    count_all_tiles(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(SCAN_BLOCK) sum_tiles(const Job* job) {
    wait_for_kernel_before();
    SHARED uint32_t scratch[32];
    sum_tiles_stage(*job, scratch);
}

KERNEL __launch_bounds__(BLOCK, 8) compact(const Job* job) {
    wait_for_kernel_before();
    SHARED BinBegins begins;
    compact_stage(*job, job->ids, begins, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 8) compact16(const Job* job) {
    wait_for_kernel_before();
    SHARED BinBegins begins;
    compact_stage(*job, reinterpret_cast<uint16_t*>(job->packed), begins, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) compact_few(const Job* job) {
    wait_for_kernel_before();
    SHARED CompactFewShared shared;
    compact_few_stage(*job, job->ids, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) compact_few16(const Job* job) {
    wait_for_kernel_before();
    SHARED CompactFewShared shared;
    compact_few_stage(*job, reinterpret_cast<uint16_t*>(job->packed), shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) answer(const Job* job) {
    wait_for_kernel_before();
    SHARED BinBegins begins;
    SHARED AnswerShared shared;
    find_begins<false>(*job, begins);
    uint64_t num_ids = sum_parts(*job, shared, blockIdx.x);
    answer_stage(*job, shared, begins, num_ids, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) row_offsets(const Job* job) {
    wait_for_kernel_before();
    SHARED RowOffsetsShared shared;
    all_row_offsets(*job, sums_of(*job), shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) pack(const Job* job) {
    wait_for_kernel_before();
    pack_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) report(const Job* job) {
    wait_for_kernel_before();
    report_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) put_out(const Job* job) {
    wait_for_kernel_before();
    put_out_stage(*job, blockIdx.x, gridDim.x);
}
