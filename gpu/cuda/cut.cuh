// Cuts long pieces at borders of their own encoding, so that what is looked up and merged is short.
//
// A border of enc(s) may be cut: enc of the two sides, joined, is enc(s) (gpu/README.md, Substrings).
// Windows of a long piece are encoded apart, each overlapping the next. Where both results of
// an overlap have the same two borders one after the other they are stitched: every two neighbouring
// tokens of the outcome are neighbours in some window's result, and so the outcome is the encoding
// (Pairs decide). A piece of which any overlap has no such place goes to the next level as a whole:
//
//     level 0   windows of 64 bytes, four lanes each, one every 32
//     level 1   windows of 1,024 bytes, a warp each, one every 768; pieces up to 1,024 end here
//     level 2   the whole piece, a block each
//
// Text that repeats itself gives tokens of 2^k times its period, so that windows meet where their
// distance is a multiple of that: 768 is one for letters of one, two, three and four bytes.
//
// Example, windows of 8: borders of window 0 at 0 2 4 7, of window 1 (from 4) at 4 7 9: both have
// 4 and 7, so the piece is cut at 0 2 4 7 9.
#pragma once
#include "block.cuh"
#include "cut_window.cuh"
#include "merge.cuh"

constexpr uint32_t WINDOW_0 = 64, STRIDE_0 = 32, OVERLAP_0 = WINDOW_0 - STRIDE_0;
constexpr uint32_t STRIDE_1 = 768, OVERLAP_1 = WINDOW_1 - STRIDE_1;
constexpr uint64_t ONE_PIECE = 1ull << 40;   // window_counts: pieces << 40 | windows.
constexpr uint32_t WINDOW_LANES = WINDOW_0 / 16;

// How many windows cover a piece; the last one has more than `overlap` bytes unless it is the only one.
DEVICE uint32_t num_windows(uint32_t length, uint32_t stride, uint32_t overlap) {
    return length <= overlap ? 1 : (length - overlap - 1) / stride + 1;
}

// Adds a piece to a level's list; its windows follow those of the pieces before it.
DEVICE void add_piece(LongPiece* pieces, uint64_t* count, uint32_t begin, uint32_t end,
                      uint32_t windows) {
    uint64_t before = atomic_add(count, ONE_PIECE + windows);
    LongPiece& piece = pieces[before >> 40];
    piece.begin = begin;
    piece.end = end;
    piece.first_window = static_cast<uint32_t>(before);
    piece.failed = 0;
}

// The piece that holds a window: the last one whose first window is not behind it.
DEVICE uint32_t piece_of(const LongPiece* pieces, uint32_t count, uint32_t window) {
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (pieces[middle].first_window <= window) low = middle;
        else high = middle - 1;
    }
    return low;
}

// Bit i: a token of a merged window begins at place i.
DEVICE uint64_t borders_of_window(Group<WINDOW_LANES>& group, uint32_t length) {
    uint64_t borders = 0;
    for (uint32_t place = 0; place < length; place += length_of(group.word(place))) borders |= 1ull << place;
    return borders;
}

// Encodes every window of level 0: a warp takes as many as it has groups.
DEVICE void windows_stage(const Job& job, MergeShared& shared, uint32_t block, uint32_t num_blocks) {
    uint64_t counts = job.window_counts[0];
    uint32_t windows = static_cast<uint32_t>(counts), pieces = counts >> 40;
    Group<WINDOW_LANES> group(shared.columns[threadIdx.x / 32]);
    if (block * group.GROUPS >= windows) return;
    PairCache cache = load_cache(job, shared.cache);
    uint32_t step = num_blocks * MERGE_WARPS * group.GROUPS;
    for (uint32_t first = (threadIdx.x / 32 * num_blocks + block) * group.GROUPS; first < windows; first += step) {
        uint32_t window = first + group.number, begin = 0, length = 0;
        if (window < windows) {
            LongPiece piece = job.long_pieces[piece_of(job.long_pieces, pieces, window)];
            begin = piece.begin + (window - piece.first_window) * STRIDE_0;
            length = min_of(WINDOW_0, piece.end - begin);
        }
        merge_piece<WINDOW_LANES, 4>(merging(job, cache), group, job.text + begin, length);
        if (length && group.member == 0) job.window_borders[window] = borders_of_window(group, length);
        __syncwarp();
    }
}

// Where two results meet, in bytes from the second window's beginning; NO_PLACE where they do not.
//
// Bit i of either: a token begins, or the window ends, i bytes from there. Bits 0..STRIDE_0 count.
constexpr uint32_t NO_PLACE = 0xFFFFFFFF;
DEVICE uint32_t meeting_place(uint64_t left, uint64_t right) {
    for (uint64_t both = left & right; both; both &= both - 1) {
        uint64_t behind = ~1ull << lowest_bit(both);
        uint64_t next_left = left & behind, next_right = right & behind;
        if (next_left && next_right && (next_left & -next_left) == (next_right & -next_right))
            return lowest_bit(both);
    }
    return NO_PLACE;
}

// Where windows `window` and `window + 1` of one piece meet.
DEVICE uint32_t meeting_of_windows(const Job& job, uint32_t window) {
    uint64_t left = job.window_borders[window] >> STRIDE_0 | 1ull << STRIDE_0;
    return meeting_place(left, job.window_borders[window + 1] & ((2ull << STRIDE_0) - 1));
}

// Sends a piece to the next level, once.
DEVICE void fail_piece(LongPiece& piece, LongPiece* next, uint64_t* count, uint32_t stride,
                       uint32_t overlap) {
    uint32_t windows = num_windows(piece.end - piece.begin, stride, overlap);
    if (atomicAdd(&piece.failed, 1u) == 0) add_piece(next, count, piece.begin, piece.end, windows);
}

// Whether no lane before this one fails the same piece: atomics of all on one place take their time.
DEVICE bool fails_first(bool fails, uint32_t number) {
    uint32_t failed_before = __shfl_up_sync(ALL_LANES, fails ? number : NO_PLACE, 1);
    return fails && ((threadIdx.x & 31) == 0 || failed_before != number);
}

// By whole warps: the windows of one are neighbours.
DEVICE void check_windows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t counts = job.window_counts[0];
    uint32_t windows = static_cast<uint32_t>(counts), pieces = counts >> 40, lane = threadIdx.x & 31;
    for (uint32_t first = block * BLOCK + threadIdx.x - lane; first < windows; first += num_blocks * BLOCK) {
        uint32_t window = first + lane, number = piece_of(job.long_pieces, pieces, window);
        LongPiece& piece = job.long_pieces[number];
        uint32_t last = piece.first_window + num_windows(piece.end - piece.begin, STRIDE_0, OVERLAP_0) - 1;
        bool fails = window < last && meeting_of_windows(job, window) == NO_PLACE;
        if (fails_first(fails, number) && !piece.failed)
            fail_piece(piece, job.hard_pieces, job.window_counts + 1, STRIDE_1, OVERLAP_1);
    }
}

// Sets start bits: bit i of `bits` is the byte `place + i`.
DEVICE void set_starts(const Job& job, uint64_t place, uint64_t bits) {
    uint32_t shift = place % 64;
    if (bits << shift) atomic_or(job.starts + place / 64, bits << shift);
    if (shift && bits >> (64 - shift)) atomic_or(job.starts + place / 64 + 1, bits >> (64 - shift));
}

// Cuts the pieces whose windows all met: each window gives its borders between two meeting places.
DEVICE void write_borders_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t counts = job.window_counts[0];
    uint32_t windows = static_cast<uint32_t>(counts), pieces = counts >> 40;
    for (uint32_t window = block * BLOCK + threadIdx.x; window < windows; window += num_blocks * BLOCK) {
        LongPiece piece = job.long_pieces[piece_of(job.long_pieces, pieces, window)];
        if (piece.failed) continue;
        uint32_t number = window - piece.first_window;
        uint64_t borders = job.window_borders[window];
        if (number > 0) borders &= ~0ull << meeting_of_windows(job, window - 1);
        if (number + 1 < num_windows(piece.end - piece.begin, STRIDE_0, OVERLAP_0)) {
            uint32_t meeting = STRIDE_0 + meeting_of_windows(job, window);
            borders &= meeting >= 64 ? ~0ull : (1ull << meeting) - 1;
        }
        set_starts(job, piece.begin + number * STRIDE_0, borders);
    }
}
