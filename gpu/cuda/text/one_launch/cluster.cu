// The kernel of other small batches. Launch: CLUSTER blocks of BLOCK threads, which are one cluster. The
// Job is not read from memory but comes with the launch.
#include "text/one_launch/stages.cuh"

using namespace warptok::text;

DYNAMIC_SHARED(memory);

// All of a batch: host_text, host_row_begins, host_row_flags, host_row_max_length, tables -> host_ids, host_offsets,
// host_errors, host_status.
KERNEL __launch_bounds__(BLOCK, 1) CLUSTER_OF(CLUSTER) encode_cluster(GRID_CONSTANT const Job job) {
    encode_small<OneCluster, OneClusterLaunch>(job, *reinterpret_cast<SmallShared*>(memory), blockIdx.x, gridDim.x);
}
