// The kernels of framing, behind those that write ids and id_offsets; the last two where spans are
// asked for. Launch: BLOCK threads, any number of blocks.
#include "batch/frame.cuh"

// A block the next 2,048 rows (common/lookback_scan.cuh): id_offsets, row_flags, row_max_length, row_errors, row_refused -> num_tokens,
// kept, framed_offsets, frame_states, status.
KERNEL __launch_bounds__(BLOCK) frame_rows(const Job* job) {
    wait_for_kernel_before();
    SHARED ScanShared shared;
    frame_rows_stage(*job, shared);
}

// A thread four ids of the answer: ids, id_offsets, kept, framed_offsets, row_flags, prefix, suffix -> framed_ids.
KERNEL __launch_bounds__(BLOCK) frame_ids(const Job* job) {
    wait_for_kernel_before();
    frame_ids_stage(*job, blockIdx.x, gridDim.x);
}

// A block the next 2,048 ids (common/lookback_scan.cuh): ids, id_offsets, token_table -> span_begins, span_states.
KERNEL __launch_bounds__(BLOCK) span_begins(const Job* job) {
    wait_for_kernel_before();
    SHARED ScanShared shared;
    span_begins_stage(*job, shared);
}

// A thread four ids of the answer: span_begins, id_offsets, kept, framed_offsets, row_flags -> spans.
KERNEL __launch_bounds__(BLOCK) frame_spans(const Job* job) {
    wait_for_kernel_before();
    frame_spans_stage(*job, blockIdx.x, gridDim.x);
}
