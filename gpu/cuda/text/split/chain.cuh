// The chain at last: which bridges are of it, and the borders of all that is.
//
// All bridges are built side by side. Those that lead past a window with a bridge make that one's bridge dead:
//
//     bridges    A --------> C ----> D                    the chain: A C D
//                    B --------> D                        dead, as A leads past B
//
// A window whose bridge none leads past is *anchored*: its bridge is of the chain, whatever stands before, since the chain
// cannot go by. From each anchored one on a warp follows the chain up to the next one that is anchored.
#pragma once
#include "text/split/bridge.cuh"

// Whether a window with a bridge is anchored. Only the MAX_PASSED bridges before it in its piece can lead past it, the i-th
// before it, counted from 0, if it leads past more than i. The whole warp looks, a lane a word, back from the window's.
DEVICE bool is_anchored(const Job& job, const LongPiece& piece, uint32_t window) {
    if (job.window_counts[COUNT_SEAMS] < ONE_ABOVE) return true;  // None leads past any.
    uint32_t lane = threadIdx.x & 31, begin = piece.first_window / 32, between = 0;  // Bridges that were looked at.
    for (uint32_t words = window / 32 - begin + 1, last = window / 32;; words -= 32, last -= 32) {
        uint32_t word = last - lane, bits = lane < words ? bridged_windows(job, word) : 0;
        if (word == window / 32) bits &= (1u << window % 32) - 1;
        if (word == begin) bits &= 0xFFFFFFFF << piece.first_window % 32;
        uint32_t up_to = between + sum_of_lanes(count_bits(bits));
        bool is_past = false;
        for (uint32_t i = up_to - count_bits(bits); bits && i < MAX_PASSED; i++) {  // The lane's, the last one first.
            uint32_t other = highest_bit(bits);
            is_past |= window_of(job, word * 32 + other).passed > i;
            bits ^= 1u << other;
        }
        if (__any_sync(ALL_LANES, is_past)) return false;
        between = __shfl_sync(ALL_LANES, up_to, 31);
        if (between >= MAX_PASSED || words <= 32) return true;
    }
}

// Makes the bridges of the chain part of it, from an anchored window's on; by a warp.
DEVICE void join_from(const Job& job, LongPiece& piece, uint32_t window) {
    uint32_t last = last_window(piece);
    bool has_room = job.window_counts[COUNT_PARTS] <= room_of_parts(job);
    do {
        const Window& own = window_of(job, window);
        uint32_t target = own.target;
        if (target == NO_PLACE || !has_room) {
            if ((threadIdx.x & 31) == 0) fail_piece(job, piece);
            return;
        }
        pass_windows(job, window + 1, target);
        if (target > last) return;
        if ((threadIdx.x & 31) == 0) window_of(job, target).entry = own.place;
        window = is_bridged(job, target) ? target : look_ahead(job, target, last + 1).next;
    } while (window <= last && !is_anchored(job, piece, window));
}

DEVICE void join_bridges_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    if (!job.window_counts[COUNT_SEAMS]) return;
    uint32_t warp = (block * BLOCK + threadIdx.x) / 32, warps = num_blocks * BLOCK / 32;
    for_own_bridges(job, warp, warps, [&](uint32_t window, uint32_t) {
        LongPiece& piece = piece_of_window(job, window);
        if (is_anchored(job, piece, window)) join_from(job, piece, window);
    });
}

// Cuts where a window of the chain says so, a lane a word; false where it is left before it is entered, or
// nobody says where.
DEVICE bool write_window(const Job& job, const LongPiece& piece, uint32_t number) {
    const Window& window = window_of(job, number);
    uint32_t from = entered_at(job, piece, number), to = left_at(job, piece, number), lane = threadIdx.x & 31;
    if (from > to || to > window.begin + window.length) return false;
    uint32_t bits = lane < WORDS_0 ? window.borders[lane] : 0;
    bits &= bits_below(to - window.begin) & ~bits_below(from - window.begin);
    if (bits) set_starts(job, window.begin + 32 * lane, bits);
    return true;
}

// Cuts all pieces but those that failed, a warp a window of the chain or a part of a bridge. Where the chain would go
// backwards the piece fails.
DEVICE void write_borders_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = all_windows(job), warps = num_blocks * BLOCK / 32;
    uint32_t first = (block * BLOCK + threadIdx.x) / 32;
    for (uint32_t window = first; window < windows; window += warps) {
        LongPiece& piece = piece_of_window(job, window);
        if (piece.failed || !is_live(job, window) || write_window(job, piece, window)) continue;
        if ((threadIdx.x & 31) == 0) fail_piece(job, piece);
    }
    uint64_t parts = num_parts(job);
    for (uint64_t number = first; number < parts; number += warps) {
        const Part& part = parts_of(job)[number];
        if (is_live(job, part.owner) && !piece_of_window(job, part.owner).failed) write_part(job, part);
    }
}
