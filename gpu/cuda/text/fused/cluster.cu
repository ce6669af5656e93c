// The kernel of other small batches. Launch: CLUSTER blocks of BLOCK threads, which are one cluster, with FUSED_SHARED
// bytes of dynamic shared memory each. The Job comes with the launch.
//
//     load   special   pretokenize   split   look up   merge   compact   post-process   store
//
// Invariant: where STATUS_FALLBACK is 0, the answer is that of single launches (text/fused/stages.cuh).
#include "text/fused/stages.cuh"

using namespace warptok::text;

DYNAMIC_SHARED(memory);

// The cluster encodes the whole batch: host_text, host_row_begins, host_row_flags, host_row_max_length, tables ->
// host_ids, host_offsets, host_errors, host_status.
// Needs: nothing on the device but the vocabulary.
// Ensures: host_ids, host_offsets and host_status are the answer, or STATUS_FALLBACK of host_status is not 0.
KERNEL __launch_bounds__(BLOCK, 1) CLUSTER_OF(CLUSTER) encode_cluster(GRID_CONSTANT const Job job) {
    encode_fused<OneCluster, OneClusterLaunch>(job, *reinterpret_cast<FusedShared*>(memory), blockIdx.x, gridDim.x);
}
