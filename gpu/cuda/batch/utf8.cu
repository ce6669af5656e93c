// The kernel that checks rows for UTF-8; it runs after mark_rows.
//
//     E4 B8 AD | E4 B8 | 41 80      row_errors: none, byte 3, byte 6
//
// Launch: BLOCK threads, any number of blocks.
// Invariant: the first bad byte of a row is the byte that Python's bytes.decode names (batch/utf8.cuh).
#include "batch/utf8.cuh"

// A thread per sixteen bytes: text, hard, row_begins -> row_errors.
// Needs: hard bits where rows begin, no row at fault (mark_rows).
// Ensures: row_errors of each row that is not UTF-8 is its first bad byte.
KERNEL __launch_bounds__(BLOCK) validate(const Job* job) {
    wait_for_kernel_before();
    validate_stage(*job, blockIdx.x, gridDim.x);
}
