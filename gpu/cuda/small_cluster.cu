// The kernel of other small batches. Launch: CLUSTER blocks of BLOCK threads, which are one cluster. The
// Job is not read from memory but comes with the launch.
#include "small.cuh"

DYNAMIC_SHARED(memory);

KERNEL __launch_bounds__(BLOCK, 1) CLUSTER_OF(CLUSTER) encode_cluster(GRID_CONSTANT const Job job) {
    encode_small<OneCluster, Few>(job, *reinterpret_cast<SmallShared*>(memory), blockIdx.x, gridDim.x);
}
