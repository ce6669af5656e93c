// Splits long pieces at boundaries of their own encoding, so that what is looked up and merged is short.
//
// A boundary of enc(s) may be split: enc of the two sides, joined, is enc(s) (docs/internals/text-bpe.md, Substrings).
// Windows of a long piece are encoded apart, each overlapping the next. Where both results of an overlap have the same
// two boundaries one after the other they are joined: every two neighbouring tokens of the outcome are neighbours in
// some window's result, and so the outcome is the encoding (Pairs decide). Where two windows do not meet is a *seam*:
//
//     windows        of 512 bytes, a warp each, one every 256      text/split/windows.cuh, text/split/join_windows.cuh
//     whole pieces   all pieces with a seam, the grid, in rounds   text/split/whole_piece.cuh
//
// Example, windows of 8: boundaries of window 0 at 0 2 4 7, of window 1 (from 4) at 4 7 9: both have 4 and 7, so the
// piece is split at 0 2 4 7 9.
//
// Two windows *meet* at a boundary of both if the next boundary of either is one of both, too. With bits for the
// boundaries of both and for those of either: if the lowest bit of `either`, which is either & (0 - either), is in
// `both`.
//
//     first      . | . . | . . | . |
//     second     | . . . | . | . | .        they meet at 4, behind which 6 is next;
//                                            not at 6: 8 is the second one's alone
//
// Every field of a window is written by one kernel and read by later ones only:
//
//     windows          begin, length, piece, borders; joint is its begin
//     check_windows    joint where it meets the window before
//     write_borders    reads them, and sets the start bits
//
// Invariant: a piece that has failed is in whole_pieces once, and last_pieces sets all start bits inside of it anew;
// all other pieces have the start bits of their encoding after write_borders.
#pragma once
#include "common/block_reduce.cuh"
#include "text/merge/merge_piece.cuh"

namespace warptok::text {

constexpr uint32_t WINDOW_BYTES = 512;
constexpr uint32_t WINDOW_STEP = 256;           // From one window to the next, about (text/split/windows.cuh).
constexpr uint32_t WINDOW_OVERLAP = WINDOW_BYTES - WINDOW_STEP;
constexpr uint32_t WORDS_A_WINDOW = WINDOW_BYTES / 32 + 1;
constexpr uint32_t NO_PLACE = 0xFFFFFFFF;

// The bits of a word above one of them.
DEVICE uint32_t bits_above(uint32_t bit) { return 0xFFFFFFFEu << bit; }

struct Window {  // Places in the batch.
    uint32_t begin, length;
    uint32_t piece;      // Number of the piece that it is in.
    uint32_t joint;      // From here on its boundaries count: where it meets the window before.
    uint32_t borders[WORDS_A_WINDOW];  // Bits of places, the window's end among them.
};

// Windows lie where merged ids will: nothing is merged before all pieces are split.
DEVICE Window& window_of(const Job& job, uint32_t window) {
    return reinterpret_cast<Window*>(job.text.merged_ids)[window];
}

// The number of windows of the whole batch; it is known after find_long.
DEVICE uint32_t all_windows(const Job& job) { return static_cast<uint32_t>(job.text.window_counts[COUNT_WINDOWS]); }

// The number of windows that cover a piece; the last one has more than WINDOW_OVERLAP bytes unless it is the only one.
DEVICE uint32_t num_windows(uint32_t length) {
    return length <= WINDOW_OVERLAP ? 1 : (length - WINDOW_OVERLAP - 1) / WINDOW_STEP + 1;
}

// The number of the piece that holds a window: the last one whose first window is not behind it.
DEVICE uint32_t find_piece(const Job& job, uint32_t window) {
    uint32_t low = 0, high = (job.text.window_counts[COUNT_WINDOWS] >> COUNT_SHIFT) - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (job.text.long_pieces[middle].first_window <= window) low = middle;
        else high = middle - 1;
    }
    return low;
}

// The piece of a window.
DEVICE LongPiece& piece_of_window(const Job& job, uint32_t window) {
    return job.text.long_pieces[window_of(job, window).piece];
}

DEVICE uint32_t last_window(const LongPiece& piece) {
    return piece.first_window + num_windows(piece.end - piece.begin) - 1;
}

// Lists a piece to be merged whole, once.
DEVICE void fail_piece(const Job& job, LongPiece& piece) {
    if (atomicAdd(&piece.failed, 1u)) return;
    uint64_t before = atomic_add(job.text.window_counts + COUNT_WHOLE, ONE_ABOVE + (piece.end - piece.begin));
    job.text.whole_pieces[before >> COUNT_SHIFT] = {piece.begin, piece.end, static_cast<uint32_t>(before)};
}

// Sets start bits: bit i of `bits` is the byte `place + i`.
DEVICE void set_starts(const Job& job, uint64_t place, uint64_t bits) {
    uint32_t shift = place % 64;
    if (bits << shift) atomic_or(job.text.starts + place / 64, bits << shift);
    if (shift && bits >> (64 - shift)) atomic_or(job.text.starts + place / 64 + 1, bits >> (64 - shift));
}

// The 64 start bits from a byte on.
DEVICE uint64_t starts_from(const Job& job, uint64_t place) {
    uint64_t low = job.text.starts[place / 64] >> place % 64;
    return place % 64 ? low | job.text.starts[place / 64 + 1] << (64 - place % 64) : low;
}

// Clears the start bits from `begin` to `end`, in every `step`th word from number `first` on.
DEVICE_NOINLINE void clear_starts(const Job& job, uint32_t begin, uint32_t end, uint32_t first, uint32_t step) {
    for (uint32_t word = begin / 64 + first; word * 64ull < end; word += step) {
        uint64_t mask = ~0ull;
        if (begin > word * 64ull) mask <<= begin % 64;
        if (end - word * 64ull < 64) mask &= (1ull << end % 64) - 1;
        if (begin < end) atomic_and(job.text.starts + word, ~mask);
    }
}

}  // namespace warptok::text
