// The kernels of framing, behind those that write ids and id_offsets; the last two where spans are
// asked for. Launch: BLOCK threads, any number of blocks.
#include "frame.cuh"

KERNEL __launch_bounds__(BLOCK) frame_rows(const Job* job) {
    wait_for_kernel_before();
    SHARED ScanShared shared;
    frame_rows_stage(*job, shared);
}

KERNEL __launch_bounds__(BLOCK) frame_ids(const Job* job) {
    wait_for_kernel_before();
    frame_ids_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) span_begins(const Job* job) {
    wait_for_kernel_before();
    SHARED ScanShared shared;
    span_begins_stage(*job, shared);
}

KERNEL __launch_bounds__(BLOCK) frame_spans(const Job* job) {
    wait_for_kernel_before();
    frame_spans_stage(*job, blockIdx.x, gridDim.x);
}
