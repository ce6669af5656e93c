// The kernels that learn a vocabulary by byte-pair encoding, in the order in which they run.
// gpu/training/merger.py launches them. `count_pairs` runs once for a table of pairs; each merge then runs the two
// kernels for repeats (only where left and right are equal), one of the two merges, `update_pairs`, and the two
// kernels that find the best pair.
//
//     tokens      x a b a b y      best pair (a, b), which becomes c
//     merged      x c c y          merge_tokens
//     table       (x, a) (b, a) (b, y) (a, b) go, (x, c) (c, c) (c, y) come          update_pairs
//
// job.cuh has the argument; equal_runs.cuh finds repeats; merge.cuh merges, with token_window.cuh and shared_sums.cuh;
// pair_table.cuh counts and chooses pairs.
//
// Launch: BLOCK threads and any number of blocks; enter_repeats one block of RUN_THREADS, best_pair one block of BLOCK.
// Invariant: before each merge the table holds what counting all neighbours anew would give; docs/internals/training.md
// has the proof.
#include "training/merge.cuh"
#include "training/pair_table.cuh"

// A block per tile of tokens; 24 KiB of shared sums: tokens, places, slot_counts, span_tables -> frequencies, bonuses,
// penalties.
// Needs: tables of zeros.
// Ensures: the tables have the sums of every two neighbouring tokens.
KERNEL __launch_bounds__(BLOCK) count_pairs(const TrainJob* job) {
    SHARED PairsShared shared;
    count_pairs_stage(*job, shared, blockIdx.x, gridDim.x);
}

// A block per tile of tokens, where `left` and `right` are one: tokens, left -> run_begins.
// Needs: nothing.
// Ensures: run_begins has one more than the last token of each tile that is not `left`, or 0.
KERNEL __launch_bounds__(BLOCK) find_repeats(const TrainJob* job) {
    SHARED uint64_t scratch[BLOCK / 32];
    find_repeats_stage(*job, scratch, blockIdx.x, gridDim.x);
}

// One block of RUN_THREADS, a thread per neighbouring tiles: run_begins -> run_begins.
// Needs: find_repeats.
// Ensures: run_begins is where the run of `left` begins that reaches into each tile.
KERNEL __launch_bounds__(RUN_THREADS) enter_repeats(const TrainJob* job) {
    SHARED uint64_t scratch[RUN_THREADS];
    enter_repeats_stage(*job, scratch);
}

// A block claims the next tile of tokens: tokens, run_begins, left, right, merged -> merged_tokens, tile_states,
// neighbours, report.
// Needs: enter_repeats, where `left` and `right` are one; tile_states and neighbours of zeros.
// Ensures: merged_tokens has the corpus after the merge; `neighbours` what it changes of the pairs.
KERNEL __launch_bounds__(BLOCK) merge_tokens(const TrainJob* job) {
    SHARED MergeTileShared<TokenKind::ALONE> shared;
    merge_tiles_stage<TokenKind::ALONE>(*job, shared);
}

// The same with places: tokens, places, slot_counts, span_tables, run_begins, left, right, merged -> merged_tokens,
// merged_places, tile_states, neighbours, report.
// Needs: what merge_tokens needs.
// Ensures: what merge_tokens ensures, and merged_places has the slot of each token.
KERNEL __launch_bounds__(BLOCK) merge_placed(const TrainJob* job) {
    SHARED MergeTileShared<TokenKind::PLACED> shared;
    merge_tiles_stage<TokenKind::PLACED>(*job, shared);
}

// A thread per id: neighbours, left, right, merged -> neighbours, frequencies, bonuses, penalties, lengths,
// row_is_stale.
// Needs: merge_tokens or merge_placed.
// Ensures: the table of pairs is that of the merged corpus; `neighbours` is zeros; rows that have changed are stale.
KERNEL __launch_bounds__(BLOCK) update_pairs(const TrainJob* job) {
    update_pairs_stage(*job, blockIdx.x, gridDim.x);
}

// A block per row of the table: frequencies, bonuses, penalties, lengths, row_is_stale -> row_scores, row_rights,
// row_is_stale.
// Needs: update_pairs.
// Ensures: row_scores and row_rights have the best pair of each row; none is stale.
KERNEL __launch_bounds__(BLOCK) best_of_rows(const TrainJob* job) {
    SHARED BestShared shared;
    best_of_rows_stage(*job, shared, blockIdx.x, gridDim.x);
}

// One block of BLOCK threads: row_scores, row_rights, frequencies, bonuses, penalties -> report.
// Needs: best_of_rows.
// Ensures: `report` has the best pair of all, or NO_MERGE.
KERNEL __launch_bounds__(BLOCK) best_pair(const TrainJob* job) {
    SHARED BestShared shared;
    best_pair_stage(*job, shared);
}
