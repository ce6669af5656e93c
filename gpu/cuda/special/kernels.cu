// Special tokens and motifs: places of the text where a token stands as it is, leftmost, longest, none inside another.
//
//     find_special      places where a token matches, and how far the last one of a tile reaches    find.cuh, trie.cuh
//     enter_special     how many bytes of each tile the one before takes                            accept.cuh
//     accept_special    the tokens that count; hard boundaries around them                          accept.cuh
//     clear_special     behind the pretokenizer: starts inside of accepted tokens go
//
// gpu/kernels/families.py launches them behind mark_rows and validate; those named `again` run only for vocabularies of
// two rounds, accept_whole for those of letters with tokens that only a whole stretch is. What always holds: no other
// stage looks across a hard boundary, and cut_certain cuts no token of the vocabulary.
//
// Launch: BLOCK threads, any number of blocks.
#include "special/accept.cuh"

// A thread a row: num_rows -> row_errors, row_refused.
KERNEL __launch_bounds__(BLOCK) clear_faults(const Job* job) {
    wait_for_kernel_before();
    clear_faults_stage(*job, blockIdx.x, gridDim.x);
}

// A block a tile: text, hard, tables -> special_matches, special_list, special_exits, special_function, special_counts.
KERNEL __launch_bounds__(BLOCK, 6) find_special(const Job* job) {
    wait_for_kernel_before();
    SHARED SpecialShared shared;
    find_special_stage<FIRST_ROUND>(*job, shared, blockIdx.x, gridDim.x);
}

// A warp each run of tiles that have tables: special_exits, special_function, special_counts -> special_exits.
KERNEL __launch_bounds__(BLOCK) enter_special(const Job* job) {
    wait_for_kernel_before();
    enter_special_stage<FIRST_ROUND>(*job, blockIdx.x, gridDim.x);
}

// A block a tile with candidates: special_list, special_matches, special_exits, special_counts, row_flags, row_begins
// -> special, hard, row_refused, special_counts.
KERNEL __launch_bounds__(BLOCK, 6) accept_special(const Job* job) {
    wait_for_kernel_before();
    SHARED OrbitShared shared;
    accept_special_stage<FIRST_ROUND>(*job, shared, blockIdx.x, gridDim.x);
}

// As find_special, in what the first round left: text, hard, special, tables -> special_matches, special_list,
// special_exits, special_function, special_counts.
KERNEL __launch_bounds__(BLOCK, 6) find_special_again(const Job* job) {
    wait_for_kernel_before();
    SHARED SpecialShared shared;
    find_special_stage<SECOND_ROUND>(*job, shared, blockIdx.x, gridDim.x);
}

// As enter_special, and a warp 32 rows: special_exits, special_function, special_counts, hard, row_refused ->
// special_exits, row_stretch.
KERNEL __launch_bounds__(BLOCK) enter_special_again(const Job* job) {
    wait_for_kernel_before();
    enter_special_stage<SECOND_ROUND>(*job, blockIdx.x, gridDim.x);
}

// As accept_special: special_list, special_matches, special_exits, special_counts, row_flags, row_begins, row_stretch
// -> special, hard, row_refused, special_counts.
KERNEL __launch_bounds__(BLOCK, 6) accept_special_again(const Job* job) {
    wait_for_kernel_before();
    SHARED OrbitShared shared;
    accept_special_stage<SECOND_ROUND>(*job, shared, blockIdx.x, gridDim.x);
}

// A thread 64 bytes: text, hard, special, tables -> special, special_counts.
KERNEL __launch_bounds__(BLOCK) accept_whole(const Job* job) {
    wait_for_kernel_before();
    accept_whole_stage(*job, blockIdx.x, gridDim.x);
}

// A thread 64 bytes: special, special_counts, hard -> starts.
KERNEL __launch_bounds__(BLOCK) clear_special(const Job* job) {
    wait_for_kernel_before();
    clear_special_stage(*job, blockIdx.x, gridDim.x);
}
