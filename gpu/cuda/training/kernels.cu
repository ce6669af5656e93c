// The kernels that learn a vocabulary by byte-pair encoding, in the order in which they run.
// gpu/training/merger.py launches them. `count_pairs` runs once for a table of pairs; each merge then runs the two
// kernels for repeats (only where left and right are equal), one of the two merges, `update_pairs`, and the two
// kernels that find the best pair.
// job.cuh has the argument; equal_runs.cuh finds repeats; merge.cuh merges, with token_window.cuh and shared_sums.cuh;
// pair_table.cuh counts and chooses pairs.
// Launch: BLOCK threads and any number of blocks; enter_repeats one block of RUN_THREADS, best_pair one block of BLOCK.
// Invariant: before each merge the table holds what counting all neighbours anew would give; docs/internals/training.md
// has the proof.
#include "training/merge.cuh"
#include "training/pair_table.cuh"

// A block a tile of tokens: tokens, places, slot_counts, span_tables -> frequencies, bonuses, penalties.
KERNEL __launch_bounds__(BLOCK) count_pairs(const TrainJob* job) {
    SHARED PairsShared shared;
    count_pairs_stage(*job, shared, blockIdx.x, gridDim.x);
}

// A block a tile of tokens, where `left` and `right` are one: tokens, left -> run_begins.
KERNEL __launch_bounds__(BLOCK) find_repeats(const TrainJob* job) {
    SHARED uint64_t scratch[BLOCK / 32];
    find_repeats_stage(*job, scratch, blockIdx.x, gridDim.x);
}

// One block, a thread neighbouring tiles: run_begins -> run_begins.
KERNEL __launch_bounds__(RUN_THREADS) enter_repeats(const TrainJob* job) {
    SHARED uint64_t scratch[RUN_THREADS];
    enter_repeats_stage(*job, scratch);
}

// A block the next tile of tokens: tokens, run_begins, left, right, merged -> merged_tokens, tile_states, neighbours,
// report.
KERNEL __launch_bounds__(BLOCK) merge_tokens(const TrainJob* job) {
    SHARED MergeTileShared<TokenKind::ALONE> shared;
    merge_tiles_stage<TokenKind::ALONE>(*job, shared);
}

// The same with places: tokens, places, slot_counts, span_tables, run_begins, left, right, merged -> merged_tokens,
// merged_places, tile_states, neighbours, report.
KERNEL __launch_bounds__(BLOCK) merge_placed(const TrainJob* job) {
    SHARED MergeTileShared<TokenKind::PLACED> shared;
    merge_tiles_stage<TokenKind::PLACED>(*job, shared);
}

// A thread an id: neighbours, left, right, merged -> neighbours, frequencies, bonuses, penalties, lengths,
// row_is_stale.
KERNEL __launch_bounds__(BLOCK) update_pairs(const TrainJob* job) {
    update_pairs_stage(*job, blockIdx.x, gridDim.x);
}

// A block a row of the table: frequencies, bonuses, penalties, lengths, row_is_stale -> row_scores, row_rights,
// row_is_stale.
KERNEL __launch_bounds__(BLOCK) best_of_rows(const TrainJob* job) {
    SHARED BestShared shared;
    best_of_rows_stage(*job, shared, blockIdx.x, gridDim.x);
}

// One block: row_scores, row_rights, frequencies, bonuses, penalties -> report.
KERNEL __launch_bounds__(BLOCK) best_pair(const TrainJob* job) {
    SHARED BestShared shared;
    best_pair_stage(*job, shared);
}
