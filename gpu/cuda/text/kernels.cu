// The first and the last kernels of byte-level BPE, in the order in which they run (gpu/kernels/families.py); see
// docs/internals/text-bpe.md. Between them run those that split pieces (text/split/kernels.cu) and merge them
// (text/merge/kernels.cu).
//
//     records        a   b   miss of three ids c d e       after look_up and merge
//     tile_counts    1 + 1 + 3 = 5                         count_tiles
//     ids            a b c d e                             sum_tiles, compact
//
// Above each kernel, here and in the other files, stand:
//
//   - the work of one thread, warp or block; the fields of the Job that the kernel reads, an arrow, and those that it
//     writes. `tables` are the fields of the vocabulary.
//   - Needs: what must be true before the launch; a kernel stands for all that it ensures.
//   - Ensures: what is true when the launch has ended.
//
// Launch: any number of blocks of BLOCK threads, which proceed in steps of the whole grid, unless the file or the
// kernel says otherwise; gpu/kernels/catalog.py has the numbers. Shared memory is static, and below 48 KiB a block,
// unless it is said to be dynamic. A kernel whose name ends with 16 or 8 is the one above it with ids of so many bits.
// Rows that are at fault are encoded as well; their ids mean nothing.
//
// Invariant: the ids are in the order of the text, whatever the order in which blocks write them.
#include "text/compact/compact_to_host.cuh"
#include "batch/narrow_ids.cuh"
#include "batch/store_answer.cuh"
#include "text/compact/row_offsets.cuh"
#include "batch/load_batch.cuh"

using namespace warptok::text;

// A thread per sixteen bytes and row; the Job comes with the launch: host_text, host_row_begins, host_row_flags,
// host_row_max_length -> text, row_begins, row_flags, row_max_length, cleared, device_job.
// Needs: nothing on the device.
// Ensures: the batch and the Job lie on the device; the words from `cleared` on are zeros.
KERNEL __launch_bounds__(BLOCK) load_batch(GRID_CONSTANT const Job job) {
    wait_for_kernel_before();
    load_batch_stage(job, blockIdx.x, gridDim.x);
}

// A thread per row: row_begins -> hard, row_errors, row_refused.
// Needs: load_batch, so that `hard` is zeros.
// Ensures: there is a hard bit exactly where a row begins; no row is at fault.
KERNEL __launch_bounds__(BLOCK) mark_rows(const Job* job) {
    wait_for_kernel_before();
    mark_rows_stage(*job, blockIdx.x, gridDim.x);
    clear_faults_stage(*job, blockIdx.x, gridDim.x);
}

// A warp per tile, in small batches per part of one: records, tile_pieces, merged_counts -> tile_counts.
// Needs: merge.
// Ensures: tile_counts has the ids of the pieces of each unit (a tile or a part).
KERNEL __launch_bounds__(BLOCK) count_tiles(const Job* job) {
    wait_for_kernel_before();
    count_all_tiles(*job, blockIdx.x, gridDim.x);
}

// One block, a thread per eight units: tile_counts -> group_offsets, status.
// Needs: tile_counts of all units.
// Ensures: group_offsets has the ids before every eight units; STATUS_NUM_IDS is the sum of all.
KERNEL __launch_bounds__(SCAN_BLOCK) sum_tiles(const Job* job) {
    wait_for_kernel_before();
    SHARED uint32_t scratch[32];
    sum_tiles_stage(*job, scratch);
}

// A warp per tile, in small batches per part of one: records, tile_pieces, tile_counts, group_offsets, miss_counts,
// merged_counts, merged_ids, tables -> ids, narrow_ids.
// Needs: sum_tiles; in compact16, no id of the vocabulary needs more than 16 bits.
// Ensures: `ids`, or in compact16 narrow_ids, has the ids of all pieces in the order of the text.
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

// A block per tile of a small batch without post-processing; every block adds all counts up for itself: records,
// tile_pieces, tile_counts, miss_counts, merged_counts, merged_ids, row_begins, starts, row_errors, row_refused,
// bad_tiles, window_counts, tables -> host_ids, host_offsets, host_errors, host_status, status.
// Needs: count_tiles.
// Ensures: the answer and its status lie in pinned memory.
KERNEL __launch_bounds__(BLOCK) compact_to_host(const Job* job) {
    wait_for_kernel_before();
    SHARED BinBegins begins;
    SHARED CompactToHostShared shared;
    find_begins<SeparateLaunches>(*job, begins);
    uint64_t num_ids = sum_parts(*job, shared, blockIdx.x);
    compact_to_host_stage(*job, shared, begins, num_ids, blockIdx.x, gridDim.x);
}

// A warp per neighbouring rows, or a block per tile where rows are short: row_begins, starts, records, tile_pieces,
// tile_counts, group_offsets, merged_counts, status -> id_offsets.
// Needs: sum_tiles.
// Ensures: id_offsets has the ids before each row, and of all rows.
KERNEL __launch_bounds__(BLOCK) row_offsets(const Job* job) {
    wait_for_kernel_before();
    SHARED RowOffsetsShared shared;
    all_row_offsets(*job, sums_of(*job), shared, blockIdx.x, gridDim.x);
}

// A thread per word of 32 bits: ids, id_bits, status -> narrow_ids.
// Needs: ids and STATUS_NUM_IDS; no id of the vocabulary needs more than id_bits.
// Ensures: narrow_ids has the same ids.
KERNEL __launch_bounds__(BLOCK) narrow_ids(const Job* job) {
    wait_for_kernel_before();
    if (job->answer.id_bits == 16) narrow_ids_stage<uint16_t>(*job, blockIdx.x, gridDim.x);
    else narrow_ids_stage<uint8_t>(*job, blockIdx.x, gridDim.x);
}

// A thread per row: answer_offsets, row_errors, row_refused, bad_tiles, window_counts, status -> host_offsets,
// host_errors, host_status.
// Needs: all kernels of the batch.
// Ensures: the host has the offsets, faults and status of the batch.
KERNEL __launch_bounds__(BLOCK) report(const Job* job) {
    wait_for_kernel_before();
    report_stage(*job, blockIdx.x, gridDim.x);
}

// As report, and neighbouring threads neighbouring ids: answer_ids, answer_offsets, row_errors, row_refused,
// bad_tiles, window_counts, status -> host_ids, host_offsets, host_errors, host_status.
// Needs: all kernels of the batch.
// Ensures: the host has the ids, too.
KERNEL __launch_bounds__(BLOCK) store_answer(const Job* job) {
    wait_for_kernel_before();
    store_answer_stage(*job, blockIdx.x, gridDim.x);
}
