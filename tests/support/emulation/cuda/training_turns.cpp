// Merges with blocks that run by turns, each with shared memory of its own: they wait for each other's
// tiles as on a device.
#include "training/merge.cuh"

template <bool PLACED>
static void merge_by_turns(TrainJob job) {
    DYNAMIC_SHARED(memory);
    merge_tiles_stage<PLACED>(job, *reinterpret_cast<MergeTileShared<PLACED>*>(memory));
}

extern "C" void merge_all_by_turns(bool placed, uint32_t blocks, const TrainJob* job) {
    if (placed) emulate(merge_by_turns<true>, blocks, BLOCK, job, sizeof(MergeTileShared<true>));
    else emulate(merge_by_turns<false>, blocks, BLOCK, job, sizeof(MergeTileShared<false>));
}
