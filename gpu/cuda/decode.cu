// The kernels of decoding, in the order in which they run, behind clear_faults. Launch: BLOCK
// threads, any number of blocks.
#include "decode.cuh"

KERNEL __launch_bounds__(BLOCK) decode_size(const Job* job) {
    SHARED ScanShared shared;
    size_stage<false>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) decode_resize(const Job* job) {
    SHARED ScanShared shared;
    size_stage<true>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) decode_spell(const Job* job) {
    SHARED SpellShared shared;
    spell_stage(*job, shared, blockIdx.x, gridDim.x);
}
