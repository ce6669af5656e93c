// Merges with blocks that run by turns, each with shared memory of its own: they wait for each other's
// tiles as on a device.
#include "training/merge.cuh"

template <TokenKind KIND>
static void merge_by_turns(TrainJob job) {
    DYNAMIC_SHARED(memory);
    merge_tiles_stage<KIND>(job, *reinterpret_cast<MergeTileShared<KIND>*>(memory));
}

template <TokenKind KIND>
static void merge_all(uint32_t blocks, const TrainJob* job) {
    emulate(merge_by_turns<KIND>, blocks, BLOCK, job, sizeof(MergeTileShared<KIND>));
}

extern "C" void merge_all_by_turns(bool placed, uint32_t blocks, const TrainJob* job) {
    if (placed) merge_all<TokenKind::PLACED>(blocks, job);
    else merge_all<TokenKind::ALONE>(blocks, job);
}
