// Level 2 of cutting long pieces: a block walks through a piece, every window beginning at a border of
// the one before it.
//
// "xaaaa..." where aa merges: windows that begin inside the run at an odd place never meet those
// before, but one that begins at a border does. So that not one window runs after the other, all
// warps of the block take one each, as far apart as the last result's borders repeat:
//
//     borders of the last window   .. | . . | . . | . .     the next ones begin 3 n bytes apart
//
// Those that meet (cut.cuh) are kept; the last of them says where the next ones begin. The first of
// these meets it if it begins with the same token. A piece where it does not is merged as a whole.
#pragma once
#include "cut.cuh"

constexpr uint32_t WALK_WARPS = 24;
constexpr uint32_t WALK_THREADS = 32 * WALK_WARPS;
constexpr uint32_t WALK_WORDS = WINDOW_1 / 32;

struct WalkShared {
    WarpColumns columns[WALK_WARPS];
    uint32_t borders[WALK_WARPS][WALK_WORDS + 2];  // Bits of places, the window's end among them.
    uint32_t meetings[WALK_WARPS];  // Where a window meets the one before, from its beginning on.
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

// Where two windows meet, from the second's beginning on, `stride` bytes behind the first's.
DEVICE uint32_t meeting_of_walk(const uint32_t* left_words, const uint32_t* right_words, uint32_t stride) {
    uint32_t lane = threadIdx.x & 31, known = bits_below(min_of(stride, WINDOW_1 - stride) + 1);
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

// Cuts a piece; false where two windows did not meet. The whole block calls it.
DEVICE bool walk_piece(const Job& job, WalkShared& shared, const LongPiece& piece) {
    uint32_t warp = threadIdx.x / 32, begin = piece.begin;
    Step step = {0, 0, STRIDE_1};
    for (;;) {
        uint32_t stride = step.stride, left = piece.end - begin;
        uint32_t windows = min_of(WALK_WARPS, num_windows(left, stride, WINDOW_1 - stride));
        uint32_t offset = warp * stride, met = 1;
        if (warp < windows) encode_window(job, shared, begin + offset, min_of(WINDOW_1, left - offset));
        __syncthreads();
        if (warp < windows)
            shared.meetings[warp] =
                warp ? meeting_of_walk(shared.borders[warp - 1], shared.borders[warp], stride) : 0;
        __syncthreads();
        if (step.token && border_behind(shared.borders[0], 0) != step.token) return false;
        while (met < windows && shared.meetings[met] != NO_PLACE) met++;
        uint32_t last = (met - 1) * stride;
        bool ends = last + WINDOW_1 >= left;
        step = next_step(shared.borders[met - 1]);
        uint32_t to = warp + 1 < met ? stride + shared.meetings[warp + 1 < met ? warp + 1 : 0] : step.place;
        if (ends && warp + 1 == met) to = left - last;
        if (warp < met) write_walk(job, shared.borders[warp], begin + offset, shared.meetings[warp], to);
        if (ends || step.place == 0) return ends;
        begin += last + step.place;
        __syncthreads();
    }
}

DEVICE void walk_pieces_stage(const Job& job, WalkShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t pieces = job.window_counts[2] >> 40;
    for (uint32_t number = block; number < pieces; number += num_blocks) {
        bool is_cut = walk_piece(job, shared, job.whole_pieces[number]);
        __syncthreads();
        if (threadIdx.x == 0) job.whole_pieces[number].failed = !is_cut;
    }
}
