// The kernel that checks rows for UTF-8; it runs behind mark_rows. utf8.cuh has an example and the invariant. Launch:
// BLOCK threads, any number of blocks.
#include "batch/utf8.cuh"

// A thread per sixteen bytes: text, hard, row_begins -> row_errors.
// Needs: hard bits where rows begin, no row at fault (mark_rows).
// Ensures: row_errors of each row that is not UTF-8 is its first bad byte.
KERNEL __launch_bounds__(BLOCK) validate(const Job* job) {
    wait_for_kernel_before();
    validate_stage(*job, blockIdx.x, gridDim.x);
}
