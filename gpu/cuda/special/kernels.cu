// Special tokens and motifs: tokens that the text holds verbatim. The leftmost and longest match counts, and none
// overlaps another.
//
//     find_special      the candidates of each tile, and how far its last one reaches     find.cuh, trie.cuh
//     enter_special     how many bytes of each tile the tile before covers                accept.cuh
//     accept_special    the tokens that count, and hard boundaries around them            accept.cuh
//     clear_special     after the pretokenizer: removes starts inside of accepted tokens  accept.cuh
//
// gpu/kernels/families.py launches them after mark_rows and validate. Those named `again` run for vocabularies of two
// rounds, accept_whole for vocabularies of letters in which a whole stretch may be a token that merges do not reach.
//
// Invariant: no later stage looks across a hard boundary.
//
// Launch: BLOCK threads, any number of blocks.
#include "special/accept.cuh"

// A thread per row: num_rows -> row_errors, row_refused.
// Needs: nothing.
// Ensures: no row is at fault.
KERNEL __launch_bounds__(BLOCK) clear_faults(const Job* job) {
    wait_for_kernel_before();
    clear_faults_stage(*job, blockIdx.x, gridDim.x);
}

// A block per tile: text, hard, tables -> special_matches, special_list, special_exits, special_function,
// special_counts.
// Needs: hard bits where rows begin (mark_rows); special_counts of zeros.
// Ensures: each tile with candidates is in special_list once, and special_matches has them in order. special_exits
// says how many bytes of the next tile each tile covers, or VARIES; then special_function has the table.
KERNEL __launch_bounds__(BLOCK, 6) find_special(const Job* job) {
    wait_for_kernel_before();
    SHARED SpecialShared shared;
    find_special_stage<FIRST_ROUND>(*job, shared, blockIdx.x, gridDim.x);
}

// A warp per run of tiles that have tables: special_exits, special_function, special_counts -> special_exits.
// Needs: find_special.
// Ensures: the lower byte of special_exits is how many bytes of the next tile each tile covers.
KERNEL __launch_bounds__(BLOCK) enter_special(const Job* job) {
    wait_for_kernel_before();
    enter_special_stage<FIRST_ROUND>(*job, blockIdx.x, gridDim.x);
}

// A block per tile with candidates: special_list, special_matches, special_exits, special_counts, row_flags,
// row_begins -> special, hard, row_refused, special_counts.
// Needs: enter_special.
// Ensures: `special` has a bit where each accepted token begins; accepted tokens do not overlap, and hard bits stand
// where they begin and end. row_refused is the first token of a row that refuses it.
KERNEL __launch_bounds__(BLOCK, 6) accept_special(const Job* job) {
    wait_for_kernel_before();
    SHARED OrbitShared shared;
    accept_special_stage<FIRST_ROUND>(*job, shared, blockIdx.x, gridDim.x);
}

// As find_special, in what the first round left: text, hard, special, tables -> special_matches, special_list,
// special_exits, special_function, special_counts.
// Needs: accept_special.
// Ensures: the same as find_special, of the candidates of the second round and the accepted tokens of the first.
KERNEL __launch_bounds__(BLOCK, 6) find_special_again(const Job* job) {
    wait_for_kernel_before();
    SHARED SpecialShared shared;
    find_special_stage<SECOND_ROUND>(*job, shared, blockIdx.x, gridDim.x);
}

// As enter_special, and a warp per 32 rows: special_exits, special_function, special_counts, hard, row_refused ->
// special_exits, row_stretch.
// Needs: find_special_again.
// Ensures: the same as enter_special; row_stretch is where the stretch begins in which the first round refused a token
// of the row, NO_BYTE where it refused none.
KERNEL __launch_bounds__(BLOCK) enter_special_again(const Job* job) {
    wait_for_kernel_before();
    enter_special_stage<SECOND_ROUND>(*job, blockIdx.x, gridDim.x);
}

// As accept_special: special_list, special_matches, special_exits, special_counts, row_flags, row_begins, row_stretch
// -> special, hard, row_refused, special_counts.
// Needs: enter_special_again.
// Ensures: the same as accept_special, of both rounds.
KERNEL __launch_bounds__(BLOCK, 6) accept_special_again(const Job* job) {
    wait_for_kernel_before();
    SHARED OrbitShared shared;
    accept_special_stage<SECOND_ROUND>(*job, shared, blockIdx.x, gridDim.x);
}

// A thread per 64 bytes: text, hard, special, tables -> special, special_counts.
// Needs: hard bits of rows and accepted tokens.
// Ensures: `special` also has a bit where each stretch begins that as a whole is a token of WHOLE_ROOT.
KERNEL __launch_bounds__(BLOCK) accept_whole(const Job* job) {
    wait_for_kernel_before();
    accept_whole_stage(*job, blockIdx.x, gridDim.x);
}

// A thread per 64 bytes: special, special_counts, hard -> starts.
// Needs: accepted tokens; start bits of a kernel that does not know them (redo_tiles, begin_letters).
// Ensures: each accepted token has one start bit, at its first byte.
KERNEL __launch_bounds__(BLOCK) clear_special(const Job* job) {
    wait_for_kernel_before();
    clear_special_stage(*job, blockIdx.x, gridDim.x);
}
