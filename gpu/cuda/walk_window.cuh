// One window of a walk (cut_walk.cuh): its borders, where it meets another, where the next ones begin.
#pragma once
#include "cut.cuh"

constexpr uint32_t WALK_WARPS = 24;
constexpr uint32_t WALK_THREADS = 32 * WALK_WARPS;
constexpr uint32_t WALK_WORDS = WINDOW_1 / 32;

struct WalkShared {
    WarpColumns columns[WALK_WARPS];
    uint32_t borders[WALK_WARPS][WALK_WORDS + 2];  // Bits of places, the window's end among them.
    uint32_t meetings[WALK_WARPS];  // Where a window meets the one before, from its beginning on.
    uint32_t hard[WALK_WORDS + 2];  // A window of level 1, like `borders`.
    uint32_t lowest;
};

// How a walk goes on: the next window begins at `place` of this one, with a token of `token` bytes.
struct Step {
    uint32_t place, token, stride;
};

// 32 bits of a window from any place on.
DEVICE uint32_t bits_from(const uint32_t* words, uint32_t place) {
    if (place > WINDOW_1) return 0;
    return shift_right(words[place / 32], words[place / 32 + 1], place % 32);
}

// A mask of the bits of this lane's places below `end`.
DEVICE uint32_t bits_below(uint32_t end) {
    uint32_t first = (threadIdx.x & 31) * 32;
    if (end <= first) return 0;
    return end - first >= 32 ? 0xFFFFFFFFu : (1u << (end - first)) - 1;
}

// The first border behind a place.
DEVICE uint32_t border_behind(const uint32_t* words, uint32_t place) {
    uint32_t lane = threadIdx.x & 31, bits = words[lane] & ~bits_below(place + 1);
    return __reduce_min_sync(ALL_LANES, bits ? 32 * lane + lowest_bit(bits) : WINDOW_1);
}

// The last border of which `candidates` has this lane's bits, 0 where there is none.
DEVICE uint32_t last_of(uint32_t candidates) {
    uint32_t place = candidates ? (threadIdx.x & 31) * 32 + highest_bit(candidates) : 0;
    return WINDOW_1 - __reduce_min_sync(ALL_LANES, WINDOW_1 - place);
}

DEVICE void encode_window(const Job& job, WalkShared& shared, uint32_t begin, uint32_t length) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    uint32_t borders = merge_window(job, shared.columns[warp], job.text + begin, length);
    if (length / 32 == lane) borders |= 1u << length % 32;
    shared.borders[warp][lane] = borders;
    if (lane < 2) shared.borders[warp][WALK_WORDS + lane] = lane == 0 && length == WINDOW_1;
}

// Where two windows meet, at most `limit` bytes behind the second's beginning, which is `stride` bytes
// behind the first's.
DEVICE uint32_t meeting_of_walk(const uint32_t* left_words, const uint32_t* right_words, uint32_t stride,
                                uint32_t limit) {
    uint32_t lane = threadIdx.x & 31, known = bits_below(min_of(limit, WINDOW_1 - stride) + 1);
    uint32_t left = bits_from(left_words, stride + 32 * lane) & known, right = right_words[lane] & known;
    uint32_t both = left & right, either = left | right, found = NO_PLACE;
    uint32_t filled = __ballot_sync(ALL_LANES, either != 0) & bits_above(lane);
    uint32_t agree = __ballot_sync(ALL_LANES, (both & either & (0 - either)) != 0);
    for (; both && found == NO_PLACE; both &= both - 1) {
        uint32_t bit = lowest_bit(both), next = either & bits_above(bit);
        bool meets = next ? left & right & next & (0 - next) : filled && agree >> lowest_bit(filled) & 1;
        if (meets) found = 32 * lane + bit;
    }
    return __reduce_min_sync(ALL_LANES, found);
}

// Where to go on from a window of WINDOW_1 bytes; place 0 where there is no border to go on from.
DEVICE Step next_step(const uint32_t* words) {
    uint32_t lane = threadIdx.x & 31, place = last_of(words[lane] & bits_below(STRIDE_1 + 1)), alike = 0;
    uint32_t low = bits_from(words, place), high = bits_from(words, place + 32);
    for (uint32_t bits = words[lane] & bits_below(place); bits; bits &= bits - 1) {
        uint32_t other = 32 * lane + lowest_bit(bits);
        if (bits_from(words, other) == low && bits_from(words, other + 32) == high) alike |= bits & (0 - bits);
    }
    bool repeats = __any_sync(ALL_LANES, alike != 0);
    uint32_t period = repeats ? place - last_of(alike) : STRIDE_1;
    return {place, border_behind(words, place) - place, STRIDE_1 / period * period};
}

// Sets the start bits of this warp's window from one place to another.
DEVICE void write_walk(const Job& job, const uint32_t* words, uint32_t begin, uint32_t from, uint32_t to) {
    uint32_t lane = threadIdx.x & 31, bits = words[lane] & bits_below(to) & ~bits_below(from);
    if (bits) set_starts(job, begin + 32 * lane, bits);
}
