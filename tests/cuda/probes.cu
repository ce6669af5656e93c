// Kernels that only tests launch: device functions that no kernel of their own calls.
#include "special_match.cuh"

// The id of every special token in the text, from its first byte on in `ids`.
KERNEL probe_special_ids(const Job* job) {
    for (uint64_t place = threadIdx.x; place < job->num_bytes; place += BLOCK) {
        if (!is_special(*job, place)) continue;
        uint32_t length = border_behind(*job, place, special_limit(*job, place));
        job->ids[place] = special_id(*job, place, length);
    }
}
