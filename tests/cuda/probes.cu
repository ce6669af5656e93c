// Kernels that only tests launch: device functions that no kernel of their own calls.
#include "scan.cuh"
#include "special_match.cuh"

// The sum of all tiles before each one, by a warp, from states as other blocks may have left them.
KERNEL probe_look_back(const Job* job) {
    for (uint64_t tile = 0; tile < job->num_rows; tile++) {
        uint64_t before = sum_of_tiles_before(job->frame_states, tile);
        if (threadIdx.x == 0) job->framed_offsets[tile] = before;
    }
}

// The id of every special token in the text, from its first byte on in `ids`.
KERNEL probe_special_ids(const Job* job) {
    for (uint64_t place = threadIdx.x; place < job->num_bytes; place += BLOCK) {
        if (!begins_special(*job, place)) continue;
        uint32_t length = border_behind(*job, place, special_limit(*job, place));
        job->ids[place] = special_id(*job, place, length);
    }
}
