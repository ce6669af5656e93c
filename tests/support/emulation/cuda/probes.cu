// Kernels that only tests launch: device functions that no kernel of their own calls.
#include "batch/rows.cuh"
#include "common/lookback_scan.cuh"
#include "special/trie.cuh"

// The sum of all tiles before each one, by a warp, from states as other blocks may have left them.
KERNEL probe_look_back(const Job* job) {
    for (uint64_t tile = 0; tile < job->batch.num_rows; tile++) {
        uint64_t before = sum_of_tiles_before(job->post_process.post_process_states, tile);
        if (threadIdx.x == 0) job->post_process.post_processed_offsets[tile] = before;
    }
}

// The first row that does not begin before each place of the text, in `id_offsets`; a warp.
KERNEL probe_first_rows(const Job* job) {
    for (uint64_t place = 0; place < job->batch.num_bytes; place++) {
        uint64_t row = first_row_not_before(*job, place);
        if (threadIdx.x == 0) job->answer.id_offsets[place] = row;
    }
}

// The id of every special token in the text, from its first byte on in `ids`.
KERNEL probe_special_ids(const Job* job) {
    for (uint64_t place = threadIdx.x; place < job->batch.num_bytes; place += BLOCK) {
        if (!begins_special(*job, place)) continue;
        uint32_t length = border_behind(*job, place, special_limit(*job, place));
        job->answer.ids[place] = special_id(*job, place, length);
    }
}
