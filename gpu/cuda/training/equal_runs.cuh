// Finds where runs of one token begin, in which a pair of equal tokens is merged at every other place.
//
//     tokens      x a a a a a y a a       a a becomes c:   x c c a y c
//     occurrence    1 0 1 0 0   1 0
//
// A run may be as long as the corpus. find_repeats finds in each tile the last token that is not `left`; the largest of
// these before a tile is where the run begins that reaches into it, which enter_repeats writes.
//
// Invariant: whether a pair is merged depends on its distance from the begin of its run alone.
#pragma once
#include "training/token_window.cuh"

constexpr uint32_t RUN_THREADS = 1024;       // Threads of the one block of enter_repeats.

// One more than the number of the last of a thread's own tokens that is not `left`; 0: all are `left`.
DEVICE uint64_t behind_last_other(const TokenWindow& window, uint32_t equal) {
    uint32_t others = window.own & ~equal;
    return others ? window.begin + highest_bit(others) - TOKENS_BEFORE + 1 : 0;
}

DEVICE uint64_t larger(uint64_t a, uint64_t b) { return a < b ? b : a; }

DEVICE uint64_t largest_of_warp(uint64_t value) {
    for (uint32_t distance = 16; distance; distance /= 2)
        value = larger(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

DEVICE void find_repeats_stage(const TrainJob& job, uint64_t* scratch, uint64_t block, uint64_t blocks) {
    for (uint64_t tile = block; tile < num_train_tiles(job); tile += blocks) {
        TokenWindow window = read_window(job, tile);
        uint64_t behind = largest_of_warp(behind_last_other(window, equal_tokens(window, job.left)));
        if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = behind;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (uint32_t i = 1; i < BLOCK / 32; i++) behind = larger(behind, scratch[i]);
            job.run_begins[tile] = behind;
        }
        __syncthreads();
    }
}

// Writes where the run begins that reaches into each tile. One block of RUN_THREADS, whose threads have neighbouring
// tiles.
DEVICE void enter_repeats_stage(const TrainJob& job, uint64_t* scratch) {
    uint64_t tiles = num_train_tiles(job), each = (tiles + RUN_THREADS - 1) / RUN_THREADS;
    uint64_t first = threadIdx.x * each, last = first + each < tiles ? first + each : tiles;
    uint64_t largest = 0;
    for (uint64_t tile = first; tile < last; tile++) largest = larger(largest, job.run_begins[tile]);
    scratch[threadIdx.x] = largest;
    __syncthreads();
    uint64_t begin = 0;
    for (uint32_t i = 0; i < threadIdx.x; i++) begin = larger(begin, scratch[i]);
    for (uint64_t tile = first; tile < last; tile++) {
        uint64_t own = job.run_begins[tile];
        job.run_begins[tile] = begin;
        begin = larger(begin, own);
    }
}

// Where the run begins that the thread's first token continues, or that token itself. The whole block calls it;
// `scratch` is uint64[BLOCK].
DEVICE uint64_t run_before(const TrainJob& job, uint64_t tile, const TokenWindow& window, uint32_t equal,
                           uint64_t* scratch) {
    scratch[threadIdx.x] = behind_last_other(window, equal);
    __syncthreads();
    uint64_t begin = 0;
    for (uint32_t i = threadIdx.x; i && !begin; i--) begin = scratch[i - 1];
    __syncthreads();
    return begin ? begin : job.run_begins[tile];
}

// Bits 0 .. 19 of the window: a pair of equal tokens is merged there. `place` is the place of the thread's first token
// in its run.
DEVICE uint32_t run_occurrences(uint32_t equal, uint64_t place) {
    uint32_t pairs = equal & equal >> 1, occurrences = 0, odd = place & 1;
    // Of the two tokens before it: they matter only if they are of the same run.
    if (odd) occurrences |= pairs & 2;
    else occurrences |= pairs & 1;
    for (uint32_t i = TOKENS_BEFORE; i < WINDOW_TOKENS - 1; i++) {
        if (!odd) occurrences |= pairs & 1u << i;
        odd = equal >> i & 1 ? odd ^ 1 : 0;
    }
    return occurrences;
}
