// The window of a thread: its own sixteen tokens, the two before them and the four behind.
//
//     thread 0               thread 1
//     . . 0 1 ... 14 15 16 17 18 19
//                  14 15 16 17 ... 31 32 33 34 35
//
// Masks have a bit for each token of the window: bit 0 is the first of the two before.
#pragma once
#include "training/job.cuh"

constexpr uint32_t WINDOW_TOKENS = 22, TOKENS_BEFORE = 2;
constexpr uint32_t OWN_TOKENS = 0xFFFFu << TOKENS_BEFORE;

struct TokenWindow {
    uint64_t begin;                // The number of the thread's first own token.
    uint32_t words[WINDOW_TOKENS / 2];  // Two tokens each, the first one in the low half.
    uint32_t own;                  // The thread's own tokens that exist.
    uint32_t valid;                // All tokens of the window that exist.
};

// The tokens below number `count`, of a window whose bit 0 is token number `first`.
DEVICE uint32_t bits_before(uint64_t count, int64_t first) {
    int64_t there = static_cast<int64_t>(count) - first;
    return there <= 0 ? 0 : there >= WINDOW_TOKENS ? (1u << WINDOW_TOKENS) - 1 : (1u << there) - 1;
}

// The window of each thread of a block; whole warps call it.
DEVICE TokenWindow read_window(const TrainJob& job, uint64_t tile) {
    TokenWindow window;
    uint64_t begin = window.begin = tile * tokens_a_tile(job) + threadIdx.x * TRAIN_ITEMS;
    // Threads without tokens of their own read those of the next tile, which the last thread with tokens needs.
    const uint16_t* from = job.tokens + begin;
    uint4 low = load_16(from), high = load_16(from + 8);
    uint32_t* words = window.words;
    words[1] = low.x, words[2] = low.y, words[3] = low.z, words[4] = low.w;
    words[5] = high.x, words[6] = high.y, words[7] = high.z, words[8] = high.w;
    words[0] = __shfl_up_sync(ALL_LANES, words[8], 1);
    words[9] = __shfl_down_sync(ALL_LANES, words[1], 1);
    words[10] = __shfl_down_sync(ALL_LANES, words[2], 1);
    uint32_t lane = threadIdx.x & 31;
    if (lane == 0) words[0] = begin ? from[-2] | static_cast<uint32_t>(from[-1]) << 16 : ~0u;
    if (lane == 31) {
        words[9] = from[16] | static_cast<uint32_t>(from[17]) << 16;
        words[10] = from[18] | static_cast<uint32_t>(from[19]) << 16;
    }
    window.valid = bits_before(job.num_tokens, static_cast<int64_t>(begin) - TOKENS_BEFORE);
    window.own = threadIdx.x < job.tile_threads ? window.valid & OWN_TOKENS : 0;
    return window;
}

// The tokens of a window that are `id`.
DEVICE uint32_t equal_tokens(const TokenWindow& window, uint64_t id) {
    uint32_t value = static_cast<uint32_t>(id), equal = 0;
#pragma unroll
    for (uint32_t i = 0; i < WINDOW_TOKENS / 2; i++) {
        equal |= static_cast<uint32_t>((window.words[i] & 0xFFFF) == value) << 2 * i;
        equal |= static_cast<uint32_t>(window.words[i] >> 16 == value) << (2 * i + 1);
    }
    return equal & window.valid;
}

// Own token i of the thread, 0 .. 15, or the first token behind them, 16.
DEVICE uint32_t own_token(const TokenWindow& window, uint32_t i) {
    return window.words[1 + i / 2] >> 16 * (i & 1) & 0xFFFF;
}
