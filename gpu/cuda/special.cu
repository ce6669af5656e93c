// The kernels of special tokens, in the order in which they run. Launch: BLOCK threads, any number
// of blocks. Before them the hard bits are where rows begin; those named `again` run only for
// vocabularies of two rounds, accept_whole for those of letters with tokens that only a whole
// stretch is, clear_special behind the pretokenizer. cut_certain may follow: it cuts no token of the
// vocabulary.
#include "special_accept.cuh"

KERNEL __launch_bounds__(BLOCK) clear_faults(const Job* job) {
    wait_for_kernel_before();
    clear_faults_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 6) find_special(const Job* job) {
    wait_for_kernel_before();
    SHARED SpecialShared shared;
    find_special_stage<0>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) enter_special(const Job* job) {
    wait_for_kernel_before();
    enter_special_stage<0>(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 6) accept_special(const Job* job) {
    wait_for_kernel_before();
    SHARED OrbitShared shared;
    accept_special_stage<0>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 6) find_special_again(const Job* job) {
    wait_for_kernel_before();
    SHARED SpecialShared shared;
    find_special_stage<1>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) enter_special_again(const Job* job) {
    wait_for_kernel_before();
    enter_special_stage<1>(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 6) accept_special_again(const Job* job) {
    wait_for_kernel_before();
    SHARED OrbitShared shared;
    accept_special_stage<1>(*job, shared, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) accept_whole(const Job* job) {
    wait_for_kernel_before();
    accept_whole_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) clear_special(const Job* job) {
    wait_for_kernel_before();
    clear_special_stage(*job, blockIdx.x, gridDim.x);
}
