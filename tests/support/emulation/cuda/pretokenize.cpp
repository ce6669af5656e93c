// The pretokenizer's kernels, their blocks and warps emulated.
#define WARPTOK_EMULATION "emulation.hpp"
#include "text/pretokenize/kernels.cu"

// The first pass as of a large batch.
KERNEL pretokenize_large(const Job* job) {
    SHARED PretokenizeShared shared;
    pretokenize_chunks(*job, make_reader(*job, shared), blockIdx.x, gridDim.x);
}

// All of them; `slow` makes every tile bad. Few threads enter runs, so that these span stretches.
extern "C" void pretokenize_batch(const Job* job, uint32_t num_blocks, uint32_t slow, uint32_t is_large) {
    job->pretokenizer.bad_tiles[0] = 0;
    if (is_large) emulate(pretokenize_large, num_blocks, BLOCK, job);
    else emulate(pretokenize, num_blocks, BLOCK, job);
    for (uint32_t i = 0; slow && i < 2 * num_tiles(*job); i++) job->pretokenizer.half_states[i] |= UNRESOLVED;
    if (slow) job->pretokenizer.bad_tiles[0] = 1;
    if (!job->pretokenizer.bad_tiles[0]) return;  // So would the others, each thread of them.
    emulate(map_tiles, num_blocks, MAP_BLOCK, job);
    emulate(enter_runs, num_blocks, 64, job);
    emulate(redo_tiles, num_blocks, BLOCK, job);
}

extern "C" void map_all(const Job* job, uint32_t num_blocks) { emulate(map_tiles, num_blocks, MAP_BLOCK, job); }

extern "C" void enter_all(const Job* job, uint32_t num_blocks, uint32_t threads) {
    emulate(enter_runs, num_blocks, threads, job);
}

// Into job.answer.ids, for each tile: whether a place that is pending before it, in state tile % 31, is committed.
KERNEL follow_places(const Job* job) {
    for (uint32_t tile = 0; tile < num_tiles(*job); tile++) job->answer.ids[tile] = is_committed(*job, tile, tile % 31);
}

extern "C" void follow_all(const Job* job) { emulate(follow_places, 1, 32, job); }
