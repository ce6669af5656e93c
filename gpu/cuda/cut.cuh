// Cuts long pieces at borders of their own encoding, so that what is looked up and merged is short.
//
// A border of enc(s) may be cut: enc of the two sides, joined, is enc(s) (gpu/README.md, Substrings).
// Windows of a long piece are encoded apart, each overlapping the next. Where both results of
// an overlap have the same two borders one after the other they are stitched: every two neighbouring
// tokens of the outcome are neighbours in some window's result, and so the outcome is the encoding
// (Pairs decide). Windows of any length may follow each other so. Where two do not meet is a seam:
//
//     level 0   windows of 64 bytes, four lanes each, one every 32                    cut.cuh
//     level 1   a patch of 512 bytes over each seam, a warp                           cut_patch.cuh
//     level 2   from a patch that leads nowhere to the next one or back to level 0:
//               windows of up to 1,024 bytes one after the other, a warp              cut_bridge.cuh
//     level 3   a whole piece, a block: windows, else rounds                cut_walk.cuh, cut_whole.cuh
//
// Example, windows of 8: borders of window 0 at 0 2 4 7, of window 1 (from 4) at 4 7 9: both have
// 4 and 7, so the piece is cut at 0 2 4 7 9.
#pragma once
#include "block.cuh"
#include "merge.cuh"

constexpr uint32_t WINDOW_0 = 64, STRIDE_0 = 32, OVERLAP_0 = WINDOW_0 - STRIDE_0;
constexpr uint64_t ONE_PIECE = 1ull << 40;   // window_counts: pieces << 40 | windows.
constexpr uint32_t WINDOW_LANES = WINDOW_0 / 16;

// How many windows cover a piece; the last one has more than `overlap` bytes unless it is the only one.
DEVICE uint32_t num_windows(uint32_t length, uint32_t stride, uint32_t overlap) {
    return length <= overlap ? 1 : (length - overlap - 1) / stride + 1;
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

// The piece of a window of level 0.
DEVICE LongPiece& piece_of_window(const Job& job, uint32_t window) {
    return job.long_pieces[piece_of(job.long_pieces, job.window_counts[0] >> 40, window)];
}

DEVICE uint32_t begin_of_window(const LongPiece& piece, uint32_t window) {
    return piece.begin + (window - piece.first_window) * STRIDE_0;
}

DEVICE uint32_t last_window(const LongPiece& piece) {
    return piece.first_window + num_windows(piece.end - piece.begin, STRIDE_0, OVERLAP_0) - 1;
}

// Bit i: a token of a merged window begins at place i.
DEVICE uint64_t borders_of_window(Group<WINDOW_LANES>& group, uint32_t length) {
    uint64_t borders = 0;
    for (uint32_t place = 0; place < length; place += length_of(group.word(place))) borders |= 1ull << place;
    return borders;
}

// Encodes every window of level 0: a warp takes as many as it has groups.
DEVICE void windows_stage(const Job& job, MergeShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]);
    Group<WINDOW_LANES> group(shared.columns[threadIdx.x / 32]);
    if (block * group.GROUPS >= windows) return;
    PairCache cache = load_cache(job, shared.cache);
    uint32_t step = num_blocks * MERGE_WARPS * group.GROUPS;
    for (uint32_t first = (threadIdx.x / 32 * num_blocks + block) * group.GROUPS; first < windows; first += step) {
        uint32_t window = first + group.number, begin = 0, length = 0;
        if (window < windows) {
            LongPiece piece = piece_of_window(job, window);
            begin = begin_of_window(piece, window);
            length = min_of(WINDOW_0, piece.end - begin);
        }
        merge_piece<WINDOW_LANES, 4>(merging(job, cache), group, job.text + begin, length);
        if (length && group.member == 0) job.window_borders[window] = borders_of_window(group, length);
        __syncwarp();
    }
}

// The last place up to `limit` where two results meet, in bytes from the second window's beginning;
// NO_PLACE where they do not.
//
// Bit i of either: a token begins, or the window ends, i bytes from there.
constexpr uint32_t NO_PLACE = 0xFFFFFFFF;
DEVICE uint32_t meeting_place(uint64_t left, uint64_t right, uint32_t limit) {
    uint64_t both = left & right, either = left | right;
    for (uint64_t bits = limit < 63 ? both & ((2ull << limit) - 1) : both; bits;) {
        uint32_t place = highest_bit(bits);
        uint64_t next = either & ~1ull << place;
        if (both & next & -next) return place;
        bits ^= 1ull << place;
    }
    return NO_PLACE;
}

// Where windows `window` and `window + 1` of one piece meet.
DEVICE uint32_t meeting_of_windows(const Job& job, uint32_t window) {
    uint64_t left = job.window_borders[window] >> STRIDE_0 | 1ull << STRIDE_0;
    return meeting_place(left, job.window_borders[window + 1] & ((2ull << STRIDE_0) - 1), STRIDE_0);
}

// Sends a piece to level 3, once.
DEVICE void fail_piece(const Job& job, LongPiece& piece) {
    if (atomicAdd(&piece.failed, 1u)) return;
    LongPiece& whole = job.whole_pieces[atomic_add(job.window_counts + 2, 1)];
    whole.begin = piece.begin;
    whole.end = piece.end;
    whole.failed = 0;
}

// Sets start bits: bit i of `bits` is the byte `place + i`.
DEVICE void set_starts(const Job& job, uint64_t place, uint64_t bits) {
    uint32_t shift = place % 64;
    if (bits << shift) atomic_or(job.starts + place / 64, bits << shift);
    if (shift && bits >> (64 - shift)) atomic_or(job.starts + place / 64 + 1, bits >> (64 - shift));
}

// Start bits from a byte on, 64.
DEVICE uint64_t starts_from(const Job& job, uint64_t place) {
    uint64_t low = job.starts[place / 64] >> place % 64;
    return place % 64 ? low | job.starts[place / 64 + 1] << (64 - place % 64) : low;
}

// Takes the starts from `begin` to `end` back, of every `step`th word from number `first` on.
DEVICE void clear_starts(const Job& job, uint32_t begin, uint32_t end, uint32_t first, uint32_t step) {
    for (uint32_t word = begin / 64 + first; word * 64ull < end; word += step) {
        uint64_t mask = ~0ull;
        if (begin > word * 64ull) mask <<= begin % 64;
        if (end - word * 64ull < 64) mask &= (1ull << end % 64) - 1;
        if (begin < end) atomic_and(job.starts + word, ~mask);
    }
}
