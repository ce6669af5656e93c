// Kernels that only tests launch: device functions that no kernel of their own calls.
#include "text/split/merge_by_block.cuh"
#include "batch/rows.cuh"
#include "common/lookback_scan.cuh"
#include "special/trie.cuh"

// The sum of all tiles before each one, by a warp, from states as other blocks may have left them.
KERNEL probe_look_back(const Job* job) {
    for (uint64_t tile = 0; tile < job->num_rows; tile++) {
        uint64_t before = sum_of_tiles_before(job->frame_states, tile);
        if (threadIdx.x == 0) job->framed_offsets[tile] = before;
    }
}

// The first row that does not begin before each place of the text, in `id_offsets`; a warp.
KERNEL probe_first_rows(const Job* job) {
    for (uint64_t place = 0; place < job->num_bytes; place++) {
        uint64_t row = first_row_not_before(*job, place);
        if (threadIdx.x == 0) job->id_offsets[place] = row;
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

// The borders of each row, one window of up to WINDOW_1 bytes, at 32 a word in `ids`, WALK_WORDS + 1 words a row.
KERNEL probe_rounds(const Job* job) {
    SHARED RoundShared shared;
    SHARED Borders borders;
    for (uint64_t row = 0; row < job->num_rows; row++) {
        uint32_t begin = job->row_begins[row], length = job->row_begins[row + 1] - begin;
        encode_by_block(*job, shared, borders, begin, length);
        for (uint32_t i = threadIdx.x; i <= WALK_WORDS; i += BRIDGE_THREADS)
            job->ids[row * (WALK_WORDS + 1) + i] = borders.words[i];
        __syncthreads();
    }
}

// How many rounds each row takes, one window of up to WINDOW_1 bytes, in `ids`.
KERNEL probe_num_rounds(const Job* job) {
    SHARED RoundShared shared;
    for (uint64_t row = 0; row < job->num_rows; row++) {
        uint64_t begin = job->row_begins[row];
        Round round = begin_rounds(*job, shared, job->text + begin, job->row_begins[row + 1] - begin);
        uint32_t number = 0;
        for (; round.lowest != NO_RANK; number++) {
            Symbols& from = shared.symbols[number % 2];
            find_chains(shared, from, round);
            find_merged(shared, from, round);
            round = merge_round(*job, shared, from, shared.symbols[(number + 1) % 2], round);
        }
        if (threadIdx.x == 0) job->ids[row] = number;
        __syncthreads();
    }
}
