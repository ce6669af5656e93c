// The kernels that all families share, in front of the kernels that write ids and behind them.
//
//     load_batch.cuh     a batch from pinned host memory; hard boundaries where rows begin     text/kernels.cu
//     augment_rows.cuh   rows that are encoded otherwise than they were sent                   kmers/kernels.cu
//     utf8.cuh           which rows are not UTF-8                                              utf8.cu
//     narrow_ids.cuh     ids of 16 or 8 bits                                                   text/kernels.cu
//     post_process.cuh   begin and end tokens, truncation and spans                            here
//     store_answer.cuh   the answer of a small batch to pinned host memory                     text/kernels.cu
//
// gpu/kernels/families.py launches these kernels behind those that write ids and id_offsets, and the last two
// only where spans are requested. They depend on rows and ids alone.
//
//     ids 7 8 9, begin token 1, end token 2      answer 1 7 8 9 2      spans (0, 0) (0, 2) (2, 3) (3, 6) (0, 0)
//
// Invariant: each place of the answer is written once, whatever the number of blocks.
//
// Launch: BLOCK threads, any number of blocks.
#include "batch/post_process.cuh"

// A block claims the next 2,048 rows (common/lookback_scan.cuh): id_offsets, row_flags, row_max_length, row_errors,
// row_refused -> num_tokens, kept, post_processed_offsets, post_process_states, status.
// Needs: id_offsets and faults of all rows; post_process_states of zeros.
// Ensures: `kept` says which ids of each row stay, post_processed_offsets where each row of the answer begins. A
// refused row has no ids.
KERNEL __launch_bounds__(BLOCK) post_process_rows(const Job* job) {
    wait_for_kernel_before();
    SHARED ScanShared shared;
    post_process_rows_stage(*job, shared);
}

// A thread per four ids of the answer: ids, id_offsets, kept, post_processed_offsets, row_flags, prefix, suffix ->
// post_processed_ids.
// Needs: post_process_rows.
// Ensures: post_processed_ids is the answer, with begin and end tokens.
KERNEL __launch_bounds__(BLOCK) post_process_ids(const Job* job) {
    wait_for_kernel_before();
    post_process_ids_stage(*job, blockIdx.x, gridDim.x);
}

// A block claims the next 2,048 ids (common/lookback_scan.cuh): ids, id_offsets, token_table -> span_begins,
// span_states.
// Needs: ids of all rows; span_states of zeros.
// Ensures: span_begins has how many bytes the ids before each one spell.
KERNEL __launch_bounds__(BLOCK) span_begins(const Job* job) {
    wait_for_kernel_before();
    SHARED ScanShared shared;
    span_begins_stage(*job, shared);
}

// A thread per four ids of the answer: span_begins, id_offsets, kept, post_processed_offsets, row_flags -> spans.
// Needs: post_process_rows, span_begins.
// Ensures: `spans` has begin and end byte in its row of each id of the answer, (0, 0) of begin and end tokens.
KERNEL __launch_bounds__(BLOCK) post_process_spans(const Job* job) {
    wait_for_kernel_before();
    post_process_spans_stage(*job, blockIdx.x, gridDim.x);
}
