// The kernels of decoding, in the order in which they run, behind clear_faults; the second one
// returns at once where every id has bytes. Launch: BLOCK threads, any number of blocks.
#include "spell.cuh"

KERNEL __launch_bounds__(BLOCK) decode_spell(const Job* job) {
    wait_for_kernel_before();
    SHARED SpellShared shared;
    spell_stage<false>(*job, shared);
}

KERNEL __launch_bounds__(BLOCK) decode_spell_again(const Job* job) {
    wait_for_kernel_before();
    SHARED SpellShared shared;
    spell_stage<true>(*job, shared);
}
