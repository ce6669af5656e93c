// Level 2 of cutting long pieces: one block encodes a whole piece in rounds.
//
// A round merges every pair of the lowest rank at once, leftmost first where two overlap ("aaa"),
// which is what merging them one after the other gives. Only text that repeats itself comes here,
// and that has few different ranks. The symbols lie in `records` (their numbers) and `merged_ids` (places),
// which are not in use yet, from the piece's first byte on.
#pragma once
#include "cut.cuh"

struct WholeShared {
    uint32_t scratch[BLOCK / 32 + 1], candidates[BLOCK / 32];
    uint32_t lowest;
};

// The lowest rank of all neighbours.
DEVICE uint32_t lowest_rank(const Job& job, WholeShared& shared, const uint32_t* symbols, uint32_t count) {
    if (threadIdx.x == 0) shared.lowest = NO_RANK;
    __syncthreads();
    uint32_t lowest = NO_RANK;
    for (uint32_t i = threadIdx.x; i + 1 < count; i += BLOCK)
        lowest = min_of(lowest, rank_of(job, symbols[i], symbols[i + 1]));
    lowest = __reduce_min_sync(0xFFFFFFFF, lowest);
    if ((threadIdx.x & 31) == 0) atomicMin(&shared.lowest, lowest);
    __syncthreads();
    lowest = shared.lowest;
    __syncthreads();
    return lowest;
}

// How many candidates stand directly before this thread's symbol without a gap: odd ones are taken
// by the symbol before them. `carried` counts those at the end of the symbols before this block's.
DEVICE uint32_t candidates_before(const WholeShared& shared, uint32_t carried) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t gaps = ~shared.candidates[warp] & ((1u << lane) - 1);
    if (gaps) return lane - 1 - highest_bit(gaps);
    uint32_t count = lane;
    while (warp-- > 0) {
        gaps = ~shared.candidates[warp];
        if (gaps) return count + 31 - highest_bit(gaps);
        count += 32;
    }
    return count + carried;
}

// Merges all pairs of one rank; returns how many symbols are left.
DEVICE uint32_t merge_round(const Job& job, WholeShared& shared, uint32_t* symbols, uint32_t* places,
                            uint32_t count, uint32_t rank) {
    uint32_t merged = FIRST_MERGED + rank, written = 0, carried = 0;
    for (uint32_t first = 0; first < count; first += BLOCK) {
        uint32_t i = first + threadIdx.x;
        bool here = i < count, pair = i + 1 < count;
        uint32_t symbol = here ? symbols[i] : 0, place = here ? places[i] : 0;
        bool candidate = pair && rank_of(job, symbol, symbols[i + 1]) == rank;
        uint32_t votes = __ballot_sync(0xFFFFFFFF, candidate);
        if ((threadIdx.x & 31) == 0) shared.candidates[threadIdx.x >> 5] = votes;
        __syncthreads();
        uint32_t before = candidates_before(shared, carried);
        bool taken = before % 2 == 1;  // By the symbol on its left.
        bool kept = here && !taken;
        uint32_t total, to = written + sum_before(kept, shared.scratch, total);
        if (kept) {
            symbols[to] = candidate ? merged : symbol;
            places[to] = place;
        }
        written += total;
        if (threadIdx.x == BLOCK - 1) shared.lowest = candidate ? before + 1 : 0;
        __syncthreads();
        carried = shared.lowest;
        __syncthreads();
    }
    return written;
}

DEVICE void whole_pieces_stage(const Job& job, WholeShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t pieces = job.window_counts[2] >> 40;
    for (uint32_t number = block; number < pieces; number += num_blocks) {
        LongPiece piece = job.whole_pieces[number];
        uint32_t* symbols = job.records + piece.begin;
        uint32_t* places = job.merged_ids + piece.begin;
        uint32_t count = piece.end - piece.begin;
        for (uint32_t i = threadIdx.x; i < count; i += BLOCK) {
            symbols[i] = job.text[piece.begin + i];
            places[i] = piece.begin + i;
        }
        __syncthreads();
        for (;;) {
            uint32_t rank = lowest_rank(job, shared, symbols, count);
            if (rank == NO_RANK) break;
            count = merge_round(job, shared, symbols, places, count, rank);
        }
        for (uint32_t i = threadIdx.x; i < count; i += BLOCK) set_starts(job, places[i], 1);
        __syncthreads();
    }
}
