// The pretokenizer's kernels themselves, their blocks and warps emulated.
#define WARPTOK_EMULATION "emulation.hpp"
#include "pretokenize.cu"

extern "C" void pretokenize_batch(const Job* job, uint32_t num_blocks) {
    job->bad_tiles[0] = 0;
    for (auto kernel : {pretokenize, map_tiles, enter_runs, redo_tiles})
        emulate(kernel, num_blocks, BLOCK, job);
}
