// The last resort of cutting long pieces, where windows do not meet however they begin: one block
// encodes a whole piece in rounds.
//
// A round merges every pair of the lowest rank at once, leftmost first where two
// overlap ("aaa"), or one by one where the rank is late (late_ranks.cuh). Only text that repeats itself comes here,
// and that has few different ranks. The symbols lie in `records` (their numbers) and `merged_ids` (places),
// which are not in use yet, from the piece's first byte on.
#pragma once
#include "cut_walk.cuh"

struct WholeShared {
    uint32_t scratch[WALK_WARPS + 1], candidates[WALK_WARPS];
    uint32_t lowest, carried;
};

// The lowest of all threads' values, for all of them.
DEVICE uint32_t lowest_of_block(WholeShared& shared, uint32_t value) {
    if (threadIdx.x == 0) shared.lowest = 0xFFFFFFFF;
    __syncthreads();
    value = __reduce_min_sync(ALL_LANES, value);
    if ((threadIdx.x & 31) == 0) atomicMin(&shared.lowest, value);
    __syncthreads();
    value = shared.lowest;
    __syncthreads();
    return value;
}

// The lowest rank of all neighbours.
DEVICE uint32_t lowest_rank(const Job& job, WholeShared& shared, const uint32_t* symbols, uint32_t count) {
    uint32_t lowest = NO_RANK;
    for (uint32_t i = threadIdx.x; i + 1 < count; i += WALK_THREADS)
        lowest = min_of(lowest, rank_of(job, symbols[i], symbols[i + 1]));
    return lowest_of_block(shared, lowest);
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
    for (uint32_t first = 0; first < count; first += WALK_THREADS) {
        uint32_t i = first + threadIdx.x;
        bool here = i < count, pair = i + 1 < count;
        uint32_t symbol = here ? symbols[i] : 0, place = here ? places[i] : 0;
        bool candidate = pair && rank_of(job, symbol, symbols[i + 1]) == rank;
        uint32_t votes = __ballot_sync(ALL_LANES, candidate);
        if ((threadIdx.x & 31) == 0) shared.candidates[threadIdx.x >> 5] = votes;
        __syncthreads();
        uint32_t before = candidates_before(shared, carried);
        bool taken = before % 2 == 1;  // By the symbol on its left.
        bool kept = here && !taken;
        uint32_t total, to = written + sum_before<WALK_THREADS>(kept, shared.scratch, total);
        if (kept) {
            symbols[to] = candidate ? merged : symbol;
            places[to] = place;
        }
        written += total;
        if (threadIdx.x == WALK_THREADS - 1) shared.carried = candidate ? before + 1 : 0;
        __syncthreads();
        carried = shared.carried;
        __syncthreads();
    }
    return written;
}

// The same for a late rank, by one thread: what is left is a stack that the symbols behind it are put on.
DEVICE uint32_t grow_round(const Job& job, uint32_t* symbols, uint32_t* places, uint32_t count, uint32_t rank) {
    uint32_t written = 0;
    for (uint32_t next = 0; next < count; written++) {
        uint32_t symbol = symbols[next], place = places[next], lowest = NO_RANK;
        if (++next < count) lowest = rank_of(job, symbol, symbols[next]);
        for (uint32_t before = NO_RANK, behind = lowest; lowest <= rank; lowest = min_of(before, behind)) {
            symbol = FIRST_MERGED + lowest;
            if (before == lowest) place = places[--written];
            else next++;
            before = written ? rank_of(job, symbols[written - 1], symbol) : NO_RANK;
            behind = next < count ? rank_of(job, symbol, symbols[next]) : NO_RANK;
        }
        symbols[written] = symbol;
        places[written] = place;
    }
    return written;
}

// Cuts a piece; the whole block calls it.
DEVICE void cut_whole(const Job& job, WholeShared& shared, const LongPiece& piece) {
    uint32_t* symbols = job.records + piece.begin;
    uint32_t* places = job.merged_ids + piece.begin;
    uint32_t count = piece.end - piece.begin;
    for (uint32_t i = threadIdx.x; i < count; i += WALK_THREADS) {
        symbols[i] = job.text[piece.begin + i];
        places[i] = piece.begin + i;
    }
    __syncthreads();
    for (;;) {
        uint32_t rank = lowest_rank(job, shared, symbols, count);
        if (rank == NO_RANK) break;
        if (!is_late(bounded(job, rank))) {
            count = merge_round(job, shared, symbols, places, count, rank);
            continue;
        }
        if (threadIdx.x == 0) shared.carried = grow_round(job, symbols, places, count, rank);
        __syncthreads();
        count = shared.carried;
        __syncthreads();
    }
    for (uint32_t i = threadIdx.x; i < count; i += WALK_THREADS) set_starts(job, places[i], 1);
    __syncthreads();
}

struct LastShared {  // Of a block.
    WalkShared walk;
    WholeShared whole;
};

// Level 2, a block a piece.
DEVICE void last_pieces_stage(const Job& job, LastShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t pieces = job.window_counts[COUNT_WHOLE];
    for (uint32_t number = block; number < pieces; number += num_blocks) {
        LongPiece piece = job.whole_pieces[number];
        clear_starts(job, piece.begin + 1, piece.end, threadIdx.x, WALK_THREADS);
        __syncthreads();
        bool is_cut = walk_piece(job, shared.walk, piece);
        __syncthreads();
        if (is_cut) continue;
        if (threadIdx.x == 0) job.whole_pieces[number].failed = 1;
        clear_starts(job, piece.begin + 1, piece.end, threadIdx.x, WALK_THREADS);
        __syncthreads();
        cut_whole(job, shared.whole, piece);
    }
}
