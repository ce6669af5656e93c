// The kernels of small batches. Launch: BLOCK threads; one block, or one cluster of them. The Job is
// not read from memory but comes with the launch.
#include "small.cuh"

DYNAMIC_SHARED(memory);

KERNEL __launch_bounds__(BLOCK) encode_block(GRID_CONSTANT const Job job) {
    encode_small<OneBlock>(job, *reinterpret_cast<SmallShared*>(memory), 0, 1);
}

KERNEL __launch_bounds__(BLOCK) CLUSTER_OF(CLUSTER) encode_cluster(GRID_CONSTANT const Job job) {
    encode_small<OneCluster>(job, *reinterpret_cast<SmallShared*>(memory), blockIdx.x, gridDim.x);
}
