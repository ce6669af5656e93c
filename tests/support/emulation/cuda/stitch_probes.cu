// Kernels that only tests launch: device functions of dna/windows/stitch.cuh, whose names others have, too.
#include "dna/windows/stitch.cuh"

using namespace warptok::dna;

// Start bits of every word of the text in `hard`, a thread a word.
KERNEL probe_starts(const Job* job) {
    for (uint64_t word = threadIdx.x; word * 64 < job->batch.num_bytes; word += 32) job->batch.hard[word] = starts_in(*job, word);
}
