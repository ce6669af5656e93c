// Level 2 of cutting long pieces: a block walks through a piece, every window beginning at a border of
// the one before it.
//
// So that not one window runs after the other, all warps of the block take one each, as far apart as
// the last result's borders repeat:
//
//     borders of the last window   .. | . . | . . | . .     the next ones begin 3 n bytes apart
//
// Those that meet (cut.cuh) are kept; the last of them says where the next ones begin. A piece where
// the first of these does not meet it is merged as a whole.
//
//     last turn       |-------------|         its last window, by `behind` bytes in front of `begin`
//     warp 0               |-------------|    begins at one of its borders: it must meet it there
//     warp 1                   |-------------|         `stride` behind warp 0's, which it meets
//     warp 2                       |-------------|     does not meet: met = 2, the next turn begins at a border of warp 1's
//
// A warp's window cuts from where it meets the one before (`meetings`) to where the next one meets it.
#pragma once
#include "walk_window.cuh"

constexpr uint32_t WALK_WARPS = 24;
constexpr uint32_t WALK_THREADS = 32 * WALK_WARPS;
constexpr uint32_t STRIDE_1 = 768;

struct WalkShared {
    WarpColumns<32> columns[WALK_WARPS];
    Borders borders[WALK_WARPS + 1];  // The last one: of the window that led here.
    uint32_t meetings[WALK_WARPS];    // Where a window meets the one before, from its beginning on.
};

// Cuts a piece, whose starts are cleared; false where two windows did not meet, and some starts are set then. The whole block
// calls it. Three barriers a turn: all windows are encoded; all meetings are known; `last` is there, and all is read.
DEVICE bool walk_piece(const Job& job, WalkShared& shared, const LongPiece& piece) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, begin = piece.begin, stride = STRIDE_1;
    Borders &mine = shared.borders[warp], &last = shared.borders[WALK_WARPS];
    for (uint32_t behind = 0;;) {  // How far behind the window that led here; 0 at first.
        uint32_t left = piece.end - begin, windows = min_of(WALK_WARPS, num_windows(left, stride, WINDOW_1 - stride));
        uint32_t offset = warp * stride, met = 1, place = 0;  // `met`: windows that are kept.
        if (warp < windows) encode_window(job, shared.columns[warp], mine, begin + offset, min_of(WINDOW_1, left - offset));
        __syncthreads();
        if (warp == 0 && behind) place = first_of(meetings(last, mine, behind));
        if (warp && warp < windows)
            place = first_of(meetings(shared.borders[warp - 1], mine, stride) & bits_below(stride + 1));
        if (lane == 0 && warp < windows) shared.meetings[warp] = place;
        __syncthreads();
        if (shared.meetings[0] != 0) return false;  // It begins at a border of the last one and has not even that.
        while (met < windows && shared.meetings[met] != NO_PLACE) met++;
        const Borders& end = shared.borders[met - 1];
        uint32_t offset_of_end = (met - 1) * stride;
        bool ends = offset_of_end + WINDOW_1 >= left;
        // Where the last one is left: at the piece's end, or at a border a quarter of it before its own.
        uint32_t next = ends ? left - offset_of_end : last_of(end.words[lane] & bits_below(STRIDE_1 + 1));
        if (next <= shared.meetings[met - 1]) return false;  // No way on.
        if (warp < met) {
            uint32_t to = warp + 1 < met ? stride + shared.meetings[warp + 1] : next;
            write_walk(job, mine, begin + offset, shared.meetings[warp], to);
        }
        if (ends) return true;
        uint32_t period = period_at(end, next);  // Windows as far apart as borders repeat are mostly right at once.
        stride = period ? STRIDE_1 / period * period : STRIDE_1;
        if (warp == 0) last.words[lane] = end.words[lane];
        if (warp == 0 && lane < 2) last.words[WALK_WORDS + lane] = end.words[WALK_WORDS + lane];
        begin += offset_of_end + next;
        behind = next;
        __syncthreads();
    }
}
