// The kernels of batches of bases that end soon; see docs/internals/dna-bpe.md. Launch: cooperative, a block of BASES_THREADS a
// multiprocessor at most. The Job is not read from memory but comes with the launch.
#include "dna/parts/write_ids.cuh"

DYNAMIC_SHARED(memory);

// A block a part of the text: host_text, text, host_row_begins, tables -> host_ids, host_offsets, host_status,
// row_begins, part_states.
KERNEL __launch_bounds__(BASES_THREADS, 1) encode_bases(GRID_CONSTANT const Job job) {
    encode_parts<false>(job, *reinterpret_cast<BasesShared<false>*>(memory), blockIdx.x, gridDim.x);
}

// The same with ending_last in shared memory: host_text, text, host_row_begins, tables -> host_ids, host_offsets,
// host_status, row_begins, part_states.
KERNEL __launch_bounds__(BASES_THREADS, 1) encode_bases_copied(GRID_CONSTANT const Job job) {
    encode_parts<true>(job, *reinterpret_cast<BasesShared<true>*>(memory), blockIdx.x, gridDim.x);
}
