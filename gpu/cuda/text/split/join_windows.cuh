// Joins the windows of a piece where neighbours meet, and splits it there; a piece with a seam is listed to be merged
// whole.
//
//     window 0      |-------------|               from the piece's begin to window 1's joint
//     window 1             |-------------|        from its joint to window 2's
//     window 2                    |----------|    from its joint to the piece's end
//
// Invariant: boundaries are taken from window to window, never back: where the chain would leave a window in front of
// where it came in, the piece has failed.
#pragma once
#include "text/split/windows_common.cuh"

namespace warptok::text {

// The last place where two neighbouring windows meet, in bytes from the second one's begin; NO_PLACE where they do not
// meet. A thread looks from the last word of the overlap to the first, because the border behind another one may be in
// a later word.
DEVICE uint32_t meeting_of(const Window& first, const Window& second) {
    uint32_t distance = second.begin - first.begin, overlap = WINDOW_BYTES - distance;  // No first one is shorter.
    bool is_next_common = false;  // Of the next border of either, behind the word that is looked at.
    uint32_t behind = 0;          // The first one's word behind that one.
    for (uint32_t i = overlap / 32 + 1; i-- > 0;) {
        uint32_t word = distance / 32 + i, own = word < WORDS_A_WINDOW ? first.borders[word] : 0;
        uint32_t left = shift_right(own, behind, distance % 32), right = second.borders[i];
        behind = own;
        if (i == overlap / 32) right &= ~bits_above(overlap % 32);
        uint32_t both = left & right, either = left | right;
        for (uint32_t bits = both; bits; bits ^= 1u << highest_bit(bits)) {
            uint32_t above = either & bits_above(highest_bit(bits));
            if (above ? both & above & (0 - above) : is_next_common) return 32 * i + highest_bit(bits);
        }
        if (either) is_next_common = both & either & (0 - either);
    }
    return NO_PLACE;
}

// Writes the joint of each window, where it is entered from the one before. A thread takes a window and the next one.
DEVICE void check_windows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = all_windows(job);
    for (uint32_t window = block * BLOCK + threadIdx.x; window < windows; window += num_blocks * BLOCK) {
        LongPiece& piece = piece_of_window(job, window);
        if (window == last_window(piece)) continue;
        uint32_t place = meeting_of(window_of(job, window), window_of(job, window + 1));
        if (place == NO_PLACE) fail_piece(job, piece);
        else window_of(job, window + 1).joint += place;
    }
}

// A mask of the bits of this lane's word, of 32 places each, below `end`.
DEVICE uint32_t bits_below(uint32_t end) {
    uint32_t first = (threadIdx.x & 31) * 32;
    if (end <= first) return 0;
    return end - first >= 32 ? 0xFFFFFFFFu : (1u << (end - first)) - 1;
}

// Splits at the boundaries of a window, from its joint to the next window's; returns false where that is backwards. The
// whole warp calls it, and a lane takes a word.
DEVICE bool write_window(const Job& job, const LongPiece& piece, uint32_t number) {
    const Window& window = window_of(job, number);
    uint32_t to = number == last_window(piece) ? piece.end : window_of(job, number + 1).joint, from = window.joint;
    if (from > to || to > window.begin + window.length) return false;
    uint32_t lane = threadIdx.x & 31, bits = lane < WORDS_A_WINDOW ? window.borders[lane] : 0;
    bits &= bits_below(to - window.begin) & ~bits_below(from - window.begin);
    if (bits) set_starts(job, window.begin + 32 * lane, bits);
    return true;
}

// Splits all pieces that have not failed; a warp takes a window.
DEVICE void write_borders_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = all_windows(job), warps = num_blocks * BLOCK / 32;
    for (uint32_t window = (block * BLOCK + threadIdx.x) / 32; window < windows; window += warps) {
        LongPiece& piece = piece_of_window(job, window);
        if (piece.failed || write_window(job, piece, window)) continue;
        if ((threadIdx.x & 31) == 0) fail_piece(job, piece);
    }
}

}  // namespace warptok::text
