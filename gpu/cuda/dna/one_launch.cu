// The kernel of batches of letters that end soon. Launch: cooperative, at most GRID_BLOCKS blocks of
// BLOCK threads a multiprocessor, so that all run at a time. The Job is not read from memory but comes
// with the launch.
#include "dna/one_launch.cuh"

DYNAMIC_SHARED(memory);

// All of a batch: host_text, host_row_begins, host_row_flags, host_row_max_length, tables -> host_ids, host_offsets,
// host_errors, host_status.
KERNEL __launch_bounds__(BLOCK, GRID_BLOCKS) encode_letters_grid(GRID_CONSTANT const Job job) {
    encode_letters<OneGrid>(job, *reinterpret_cast<LettersShared*>(memory), blockIdx.x, gridDim.x);
}
