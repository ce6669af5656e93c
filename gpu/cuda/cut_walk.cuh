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
#include "cut_hard.cuh"
#include "walk_window.cuh"

// The first window of level 1 from `number` on that does not meet the next one, or the last window.
DEVICE uint32_t last_of_chain(const Job& job, WalkShared& shared, const LongPiece& piece, uint32_t number) {
    uint32_t last = num_hard_windows(piece) - 1;
    if (threadIdx.x == 0) shared.lowest = last;
    __syncthreads();
    for (uint32_t first = number; first < last; first += WALK_THREADS) {
        uint32_t i = first + threadIdx.x;
        if (i < last && meeting_of_hard_windows(job, piece, i) == NO_PLACE) atomicMin(&shared.lowest, i);
        __syncthreads();
        uint32_t lowest = shared.lowest;
        __syncthreads();
        if (lowest < last) return lowest;
    }
    return last;
}

// Copies window `number` of level 1 to shared memory, with its end; each warp writes the same.
DEVICE void load_hard(const Job& job, WalkShared& shared, const LongPiece& piece, uint32_t number) {
    uint32_t lane = threadIdx.x & 31, begin = piece.begin + number * STRIDE_1;
    uint32_t length = min_of(WINDOW_1, piece.end - begin), bits = 0;
    if (32 * lane < length)
        bits = bits_at(borders_of(job, number), begin + 32 * lane, min_of(32, length - 32 * lane));
    if (length / 32 == lane) bits |= 1u << length % 32;
    shared.hard[lane] = bits;
    if (lane < 2) shared.hard[WALK_WORDS + lane] = lane == 0 && length == WINDOW_1;
    __syncwarp();
}

// Sets the start bits of windows `first` to `last` of level 1, from one place to another.
DEVICE void write_chain(const Job& job, const LongPiece& piece, uint32_t first, uint32_t last, uint32_t from,
                        uint32_t to) {
    for (uint32_t i = first + threadIdx.x; i <= last; i += WALK_THREADS) {
        uint32_t begin = piece.begin + i * STRIDE_1;
        uint32_t mine = i == first ? from : begin + meeting_of_hard_windows(job, piece, i - 1);
        uint32_t next = i == last ? to : begin + STRIDE_1 + meeting_of_hard_windows(job, piece, i);
        write_hard_window(job, i, mine, next);
    }
}

constexpr uint32_t WORTH_A_CHAIN = 8;  // Windows of level 1 that a walk goes along with.

// Goes along the windows of level 1 from `number` on, which are right from place `from` on, to the last
// one that meets the one before. Step 0 where that is the piece's last one, or no step leads on.
DEVICE Step follow_chain(const Job& job, WalkShared& shared, const LongPiece& piece, uint32_t number,
                         uint32_t last, uint32_t from) {
    bool ends = last + 1 == num_hard_windows(piece);
    load_hard(job, shared, piece, last);
    Step step = next_step(shared.hard);
    uint32_t to = ends ? piece.end : piece.begin + last * STRIDE_1 + step.place;
    write_chain(job, piece, number, last, from, to);
    __syncthreads();
    return ends ? Step{0, 0, STRIDE_1} : step;
}

// Windows of level 1 that a walk goes along with, `from` a place in its last window; NO_PLACE: none.
struct Chain {
    uint32_t first, last, from;
};

// Where the walk's window `number`, which begins at `begin`, meets one of level 1 that leads far.
DEVICE Chain find_chain(const Job& job, WalkShared& shared, const LongPiece& piece, uint32_t begin,
                        uint32_t number) {
    uint32_t first = (begin - piece.begin + STRIDE_1 - 1) / STRIDE_1;
    uint32_t ahead = piece.begin + first * STRIDE_1 - begin;
    Chain none = {0, 0, NO_PLACE};
    if (first + WORTH_A_CHAIN >= num_hard_windows(piece)) return none;
    load_hard(job, shared, piece, first);
    uint32_t meeting = meeting_of_walk(shared.borders[number], shared.hard, ahead, WINDOW_1);
    if (meeting == NO_PLACE || ahead + meeting < shared.meetings[number]) return none;
    uint32_t last = last_of_chain(job, shared, piece, first);
    return last < first + WORTH_A_CHAIN ? none : Chain{first, last, ahead + meeting};
}

// Cuts a piece; false where two windows did not meet. The whole block calls it.
DEVICE bool walk_piece(const Job& job, WalkShared& shared, const LongPiece& piece) {
    uint32_t warp = threadIdx.x / 32, windows_1 = num_hard_windows(piece);
    uint32_t number = last_of_chain(job, shared, piece, 0);
    Step step = follow_chain(job, shared, piece, 0, number, piece.begin);
    uint32_t begin = piece.begin + number * STRIDE_1 + step.place;
    if (step.place == 0) return number + 1 == windows_1;
    for (;;) {
        uint32_t stride = step.stride, left = piece.end - begin;
        uint32_t windows = min_of(WALK_WARPS, num_windows(left, stride, WINDOW_1 - stride));
        uint32_t offset = warp * stride, met = 1;
        if (warp < windows) encode_window(job, shared, begin + offset, min_of(WINDOW_1, left - offset));
        __syncthreads();
        if (warp < windows)
            shared.meetings[warp] =
                warp ? meeting_of_walk(shared.borders[warp - 1], shared.borders[warp], stride, stride) : 0;
        __syncthreads();
        if (border_behind(shared.borders[0], 0) != step.token) return false;
        while (met < windows && shared.meetings[met] != NO_PLACE) met++;
        uint32_t last = (met - 1) * stride, last_begin = begin + last;
        bool ends = last + WINDOW_1 >= left;
        step = next_step(shared.borders[met - 1]);
        Chain chain = {0, 0, NO_PLACE};
        if (!ends) chain = find_chain(job, shared, piece, last_begin, met - 1);
        bool follows = chain.from != NO_PLACE;
        uint32_t stop = ends ? left - last : follows ? chain.from : step.place;
        uint32_t to = warp + 1 < met ? stride + shared.meetings[warp + 1 < met ? warp + 1 : 0] : stop;
        if (warp < met) write_walk(job, shared.borders[warp], begin + offset, shared.meetings[warp], to);
        if (ends) return true;
        begin = last_begin;
        if (follows) {
            __syncthreads();
            step = follow_chain(job, shared, piece, chain.first, chain.last, last_begin + stop);
            if (chain.last + 1 == windows_1) return true;
            begin = piece.begin + chain.last * STRIDE_1;
        }
        if (step.place == 0) return false;
        begin += step.place;
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
