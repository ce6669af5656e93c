// As probes.cu, of the runs of letters.
#include "kmers/runs/block_sums.cuh"

// The last break before each block of runs and the ids up to there, two words of `ids` a block.
KERNEL probe_runs_before(const Job* job) {
    FourLetters four(*job);
    RunStates states(*job);
    for (uint32_t block = 0; block < run_blocks(*job); block++) {
        RunPart before = part_before(*job, four, states, block);
        if (threadIdx.x == 0) job->ids[2 * block] = before.last, job->ids[2 * block + 1] = before.ids;
    }
}
