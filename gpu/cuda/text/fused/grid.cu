// The kernel of batches that fill the device and yet end soon. Launch: cooperative, at most GRID_BLOCKS blocks of BLOCK
// threads a multiprocessor, so that all run at a time, with FUSED_SHARED bytes of dynamic shared memory each. The Job
// comes with the launch.
//
//     load   special   pretokenize   split   look up   merge   compact   post-process   store
//
// Invariant: where STATUS_FALLBACK is 0, the answer is that of single launches (text/fused/stages.cuh).
#include "text/fused/stages.cuh"

using namespace warptok::text;

DYNAMIC_SHARED(memory);

// The grid encodes the whole batch, unless it stops: host_text, host_row_begins, host_row_flags, host_row_max_length,
// tables -> host_ids, host_offsets, host_errors, host_status, device_job.
// Needs: nothing on the device but the vocabulary; grid_arrivals as the launch before left it.
// Ensures: as the other two, or single launches can go on from where it stopped (text/fused/stages.cuh).
KERNEL __launch_bounds__(BLOCK, GRID_BLOCKS) encode_grid(GRID_CONSTANT const Job job) {
    encode_fused<OneGrid, GridLaunch>(job, *reinterpret_cast<FusedShared*>(memory), blockIdx.x, gridDim.x);
}
