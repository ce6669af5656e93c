// One window of up to WINDOW_1 bytes by a warp: its borders, where it meets another, how it repeats.
//
// Borders are bits of places, 32 a word, a word a lane, the window's end among them.
#pragma once
#include "text/merge/merge_by_warp_rounds.cuh"
#include "text/split/windows_common.cuh"

constexpr uint32_t WALK_WORDS = WINDOW_1 / 32;

struct Borders {
    uint32_t words[WALK_WORDS + 2];  // Zeros behind the end.
};

// 32 bits of a window from any place on.
DEVICE uint32_t bits_from(const Borders& borders, uint32_t place) {
    if (place > WINDOW_1) return 0;
    return shift_right(borders.words[place / 32], borders.words[place / 32 + 1], place % 32);
}

DEVICE uint64_t long_bits_from(const Borders& borders, uint32_t place) {
    return bits_from(borders, place) | static_cast<uint64_t>(bits_from(borders, place + 32)) << 32;
}

// A mask of the bits of this lane's places below `end`.
DEVICE uint32_t bits_below(uint32_t end) {
    uint32_t first = (threadIdx.x & 31) * 32;
    if (end <= first) return 0;
    return end - first >= 32 ? 0xFFFFFFFFu : (1u << (end - first)) - 1;
}

// The first place of which `bits` has this lane's bits, NO_PLACE where there is none.
DEVICE uint32_t first_of(uint32_t bits) {
    return __reduce_min_sync(ALL_LANES, bits ? (threadIdx.x & 31) * 32 + lowest_bit(bits) : NO_PLACE);
}

// The last such place, 0 where there is none.
DEVICE uint32_t last_of(uint32_t bits) {
    uint32_t place = bits ? (threadIdx.x & 31) * 32 + highest_bit(bits) : 0;
    return WINDOW_1 - __reduce_min_sync(ALL_LANES, WINDOW_1 - place);
}

// Borders of a window from the places of lanes, 8, 16 or 32 each, to words.
DEVICE uint32_t words_of_places(uint32_t bits, uint32_t places) {
    uint32_t lane = threadIdx.x & 31, lanes = 32 / places, word = bits << (places * (lane % lanes));  // Of a word.
    for (uint32_t distance = 1; distance < lanes; distance *= 2) word |= __shfl_xor_sync(ALL_LANES, word, distance);
    word = __shfl_sync(ALL_LANES, word, lane * lanes % 32);
    return lane < places ? word : 0;
}

// Where two windows meet (text/split/windows_common.cuh): this lane's bits of places of the second, which begins `stride` bytes
// behind the first. By the whole warp; the border next to a lane's last one is another lane's.
DEVICE_RARE uint32_t meetings(const Borders& first, const Borders& second, uint32_t stride) {
    uint32_t lane = threadIdx.x & 31, found = 0;
    uint32_t left = bits_from(first, stride + 32 * lane), right = second.words[lane];
    uint32_t both = left & right, either = left | right;
    uint32_t filled = __ballot_sync(ALL_LANES, either != 0) & bits_above(lane);
    uint32_t agree = __ballot_sync(ALL_LANES, (both & either & (0 - either)) != 0);
    for (uint32_t bits = both; bits; bits &= bits - 1) {
        uint32_t next = either & bits_above(lowest_bit(bits));
        bool meets = next ? both & next & (0 - next) : filled && agree >> lowest_bit(filled) & 1;
        if (meets) found |= bits & (0 - bits);
    }
    return found;
}

// The borders from `first` on, a multiple of `unit` in front of the one at `place`, behind which the next 64 bytes have
// the same borders as behind that one: this lane's bits.
DEVICE uint32_t borders_like(const Borders& borders, uint32_t first, uint32_t place, uint32_t unit) {
    uint32_t lane = threadIdx.x & 31, alike = 0;
    uint64_t wanted = long_bits_from(borders, place);
    uint32_t others = borders.words[lane] & bits_below(place) & ~bits_below(first);
    for (uint32_t bits = others; bits; bits &= bits - 1) {
        uint32_t other = 32 * lane + lowest_bit(bits);
        if ((place - other) % unit == 0 && long_bits_from(borders, other) == wanted) alike |= bits & (0 - bits);
    }
    return alike;
}
