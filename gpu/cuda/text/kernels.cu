// The kernels of byte-level BPE but for those that cut pieces (text/split/kernels.cu) and merge them
// (text/merge/kernels.cu), in the order in which they run (gpu/kernels/families.py); see docs/internals/text-bpe.md.
//
// Above each kernel, here and in the other files, stands who takes what, which fields of the Job it reads, and behind
// an arrow which ones it writes. `tables` are those of the vocabulary. A launch has any number of blocks, which go on
// in steps of the whole grid, unless it says otherwise; gpu/kernels/catalog.py has the numbers. Kernels of a name that
// ends with 16 or 8 are those above them with ids of so many bits.
#include "text/compact/compact_to_host.cuh"
#include "batch/narrow_ids.cuh"
#include "batch/store_answer.cuh"
#include "text/compact/row_offsets.cuh"
#include "batch/load_batch.cuh"

using namespace warptok::text;

// A thread sixteen bytes and a row at a time; the Job comes with the launch: host_text, host_row_begins,
// host_row_flags, host_row_max_length -> text, row_begins, row_flags, row_max_length, cleared, device_job.
KERNEL __launch_bounds__(BLOCK) load_batch(GRID_CONSTANT const Job job) {
    wait_for_kernel_before();
    load_batch_stage(job, blockIdx.x, gridDim.x);
}

// A thread a row: row_begins -> hard, row_errors, row_refused.
KERNEL __launch_bounds__(BLOCK) mark_rows(const Job* job) {
    wait_for_kernel_before();
    mark_rows_stage(*job, blockIdx.x, gridDim.x);
    clear_faults_stage(*job, blockIdx.x, gridDim.x);
}

// A warp a tile, in small batches a part of one: records, tile_pieces, merged_counts -> tile_counts.
KERNEL __launch_bounds__(BLOCK) count_tiles(const Job* job) {
    wait_for_kernel_before();
    count_all_tiles(*job, blockIdx.x, gridDim.x);
}

// One block, a thread eight tiles or parts: tile_counts -> group_offsets, status.
KERNEL __launch_bounds__(SCAN_BLOCK) sum_tiles(const Job* job) {
    wait_for_kernel_before();
    SHARED uint32_t scratch[32];
    sum_tiles_stage(*job, scratch);
}

// A warp a tile, in small batches a part of one: records, tile_pieces, tile_counts, group_offsets, miss_counts,
// merged_counts, merged_ids, tables -> ids, narrow_ids.
KERNEL __launch_bounds__(BLOCK, 8) compact(const Job* job) {
    wait_for_kernel_before();
    SHARED BinBegins begins;
    compact_stage(*job, job->answer.ids, begins, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 8) compact16(const Job* job) {
    wait_for_kernel_before();
    SHARED BinBegins begins;
    compact_stage(*job, reinterpret_cast<uint16_t*>(job->answer.narrow_ids), begins, blockIdx.x, gridDim.x);
}

// A block a tile; every block adds all counts up for itself: records, tile_pieces, tile_counts, miss_counts,
// merged_counts, merged_ids, row_begins, starts, row_errors, row_refused, bad_tiles, window_counts, tables -> host_ids,
// host_offsets, host_errors, host_status, status.
KERNEL __launch_bounds__(BLOCK) compact_to_host(const Job* job) {
    wait_for_kernel_before();
    SHARED BinBegins begins;
    SHARED CompactToHostShared shared;
    find_begins<SeparateLaunches>(*job, begins);
    uint64_t num_ids = sum_parts(*job, shared, blockIdx.x);
    compact_to_host_stage(*job, shared, begins, num_ids, blockIdx.x, gridDim.x);
}

// A warp neighbouring rows, or where rows are short a block a tile: row_begins, starts, records, tile_pieces,
// tile_counts, group_offsets, merged_counts, status -> id_offsets.
KERNEL __launch_bounds__(BLOCK) row_offsets(const Job* job) {
    wait_for_kernel_before();
    SHARED RowOffsetsShared shared;
    all_row_offsets(*job, sums_of(*job), shared, blockIdx.x, gridDim.x);
}

// A thread a word of 32 bits: ids, id_bits, status -> narrow_ids.
KERNEL __launch_bounds__(BLOCK) narrow_ids(const Job* job) {
    wait_for_kernel_before();
    if (job->answer.id_bits == 16) narrow_ids_stage<uint16_t>(*job, blockIdx.x, gridDim.x);
    else narrow_ids_stage<uint8_t>(*job, blockIdx.x, gridDim.x);
}

// A thread a row: answer_offsets, row_errors, row_refused, bad_tiles, window_counts, status -> host_offsets,
// host_errors, host_status.
KERNEL __launch_bounds__(BLOCK) report(const Job* job) {
    wait_for_kernel_before();
    report_stage(*job, blockIdx.x, gridDim.x);
}

// The same, and neighbouring threads neighbouring ids: answer_ids, answer_offsets, row_errors, row_refused, bad_tiles,
// window_counts, status -> host_ids, host_offsets, host_errors, host_status.
KERNEL __launch_bounds__(BLOCK) store_answer(const Job* job) {
    wait_for_kernel_before();
    store_answer_stage(*job, blockIdx.x, gridDim.x);
}
