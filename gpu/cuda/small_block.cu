// The kernel of the smallest batches. Launch: one block of BLOCK threads. The Job is not read from
// memory but comes with the launch.
#include "small.cuh"

DYNAMIC_SHARED(memory);

KERNEL __launch_bounds__(BLOCK, 1) encode_block(GRID_CONSTANT const Job job) {
    encode_small<OneBlock, Few>(job, *reinterpret_cast<SmallShared*>(memory), 0, 1);
}
