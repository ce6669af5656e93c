// The kernel of the smallest batches. Launch: one block of BLOCK threads. The Job is not read from
// memory but comes with the launch.
#include "text/one_launch/stages.cuh"

using namespace warptok::text;

DYNAMIC_SHARED(memory);

// All of a batch: host_text, host_row_begins, host_row_flags, host_row_max_length, tables -> host_ids, host_offsets,
// host_errors, host_status.
KERNEL __launch_bounds__(BLOCK, 1) encode_block(GRID_CONSTANT const Job job) {
    encode_small<OneBlock, OneClusterLaunch>(job, *reinterpret_cast<SmallShared*>(memory), 0, 1);
}
