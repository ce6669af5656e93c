// The kernels of special tokens, in the order in which they run. Launch: BLOCK threads, any number
// of blocks. Before them the hard bits are where rows begin; those named `again` run only for
// vocabularies of two rounds, accept_whole for those of letters with tokens that only a whole
// stretch is, clear_special behind the pretokenizer. cut_certain may follow: it cuts no token of the
// vocabulary.
#include "special_accept.cuh"

KERNEL __launch_bounds__(BLOCK) clear_faults(const Job* job) {
    clear_faults_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 6) find_special(const Job* job) {
    SHARED SpecialShared shared;
    find_special_stage<0>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) enter_special(const Job* job) {
    enter_special_stage<0>(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 6) accept_special(const Job* job) {
    SHARED OrbitShared shared;
    accept_special_stage<0>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 6) find_special_again(const Job* job) {
    SHARED SpecialShared shared;
    find_special_stage<1>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) enter_special_again(const Job* job) {
    enter_special_stage<1>(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 6) accept_special_again(const Job* job) {
    SHARED OrbitShared shared;
    accept_special_stage<1>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) accept_whole(const Job* job) {
    accept_whole_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) clear_special(const Job* job) {
    clear_special_stage(*job, blockIdx.x, gridDim.x);
}
