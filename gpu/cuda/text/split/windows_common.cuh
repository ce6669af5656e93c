// Cuts long pieces at borders of their own encoding, so that what is looked up and merged is short.
//
// A border of enc(s) may be cut: enc of the two sides, joined, is enc(s) (docs/internals/text-bpe.md, Substrings).
// Windows of a long piece are encoded apart, each overlapping the next. Where both results of
// an overlap have the same two borders one after the other they are stitched: every two neighbouring
// tokens of the outcome are neighbours in some window's result, and so the outcome is the encoding
// (Pairs decide). Windows of any length may follow each other so. Where two do not meet is a seam:
//
//     level 0   windows of 512 bytes, a warp each, one every 256                text/split/windows.cuh
//     level 1   from a seam to where the chain goes on: windows of up to
//               1,024 bytes one after the other, a block                        text/split/bridge.cuh
//     level 2   all whole pieces, the grid, in rounds                           text/split/whole_piece.cuh
//
// Example, windows of 8: borders of window 0 at 0 2 4 7, of window 1 (from 4) at 4 7 9: both have
// 4 and 7, so the piece is cut at 0 2 4 7 9.
//
// Two windows *meet* at a border of both if the next border of either is one of both, too. With bits for the borders of
// both and for those of either: if the lowest bit of `either`, which is either & (0 - either), is in `both`.
//
//     first      . | . . | . | . . |
//     second     | . . . | . | . | .        they meet at 4, behind which 6 is next; not at 6: 8 is the second one's alone
//
// The *chain* is the list of windows, of level 0 and of bridges, that cut a piece from its begin to its end. Each cuts from
// where the chain comes into it to where the chain leaves it:
//
//     window 0      |-------------|           from the piece's begin to window 1's joint
//     window 1             |-------------|    from its joint to its exit, where its bridge begins
//     its bridge                   |-------|=======>|-------|    windows of its own (parts, text/split/bridge_parts.cuh)
//     window 5                                         |-------------|    from its entry on
//
// Every field of a window is written by one kernel and read by later ones only:
//
//     windows          begin, length, piece, period, borders; joint and entry are its begin, exit and target none
//     check_windows    joint where it meets the window before; seam_bits
//     bridges          exit, target, place and passed of windows with a bridge, and the bridges' parts
//     join_bridges     entry of the windows that bridges of the chain lead to; `live` of seam_bits
//     write_borders    reads them, and sets the start bits
#pragma once
#include "common/block_reduce.cuh"
#include "text/merge/merge_piece.cuh"

constexpr uint32_t WINDOW_0 = 512;
constexpr uint32_t STRIDE_0 = 256;           // From one window to the next, about (text/split/windows.cuh).
constexpr uint32_t OVERLAP_0 = WINDOW_0 - STRIDE_0;
constexpr uint32_t WORDS_0 = WINDOW_0 / 32 + 1;
constexpr uint32_t NO_PLACE = 0xFFFFFFFF;

struct Window {  // Of level 0; places in the batch.
    uint32_t begin, length;
    uint32_t piece;      // Number of the piece that it is in.
    uint32_t period;     // Of its text, of up to MAX_RUN_PERIOD bytes; 0 where it has none.
    uint32_t joint;      // Where the chain enters it from the window before, if the two meet.
    uint32_t entry;      // Where a bridge of the chain enters it, if one does.
    uint32_t exit;       // Where its own bridge leaves it, if it has one.
    uint32_t target;     // The window that its own bridge enters, one behind the piece's last where it ends with the
                         // piece; NO_PLACE where it leads nowhere.
    uint32_t place;      // Where the bridge enters that window.
    uint32_t passed;     // How many windows with bridges its bridge leads past, see text/split/chain.cuh.
    uint32_t borders[WORDS_0];  // Bits of places, the window's end among them.
};

// The windows of level 0 lie where merged ids will: nothing is merged before all pieces are cut.
DEVICE Window& window_of(const Job& job, uint32_t window) {
    return reinterpret_cast<Window*>(job.merged_ids)[window];
}

// Of the whole batch, behind find_long.
DEVICE uint32_t all_windows(const Job& job) { return static_cast<uint32_t>(job.window_counts[COUNT_WINDOWS]); }

// How many windows cover a piece; the last one has more than `overlap` bytes unless it is the only one.
DEVICE uint32_t num_windows(uint32_t length, uint32_t stride, uint32_t overlap) {
    return length <= overlap ? 1 : (length - overlap - 1) / stride + 1;
}

// The number of the piece that holds a window: the last one whose first window is not behind it.
DEVICE uint32_t find_piece(const Job& job, uint32_t window) {
    uint32_t low = 0, high = (job.window_counts[COUNT_WINDOWS] >> COUNT_SHIFT) - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (job.long_pieces[middle].first_window <= window) low = middle;
        else high = middle - 1;
    }
    return low;
}

// The piece of a window of level 0.
DEVICE LongPiece& piece_of_window(const Job& job, uint32_t window) {
    return job.long_pieces[window_of(job, window).piece];
}

DEVICE uint32_t last_window(const LongPiece& piece) {
    return piece.first_window + num_windows(piece.end - piece.begin, STRIDE_0, OVERLAP_0) - 1;
}

// Sends a piece to level 2, once.
DEVICE void fail_piece(const Job& job, LongPiece& piece) {
    if (atomicAdd(&piece.failed, 1u)) return;
    uint64_t before = atomic_add(job.window_counts + COUNT_WHOLE, ONE_ABOVE + (piece.end - piece.begin));
    job.whole_pieces[before >> COUNT_SHIFT] = {piece.begin, piece.end, static_cast<uint32_t>(before)};
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
DEVICE_RARE void clear_starts(const Job& job, uint32_t begin, uint32_t end, uint32_t first, uint32_t step) {
    for (uint32_t word = begin / 64 + first; word * 64ull < end; word += step) {
        uint64_t mask = ~0ull;
        if (begin > word * 64ull) mask <<= begin % 64;
        if (end - word * 64ull < 64) mask &= (1ull << end % 64) - 1;
        if (begin < end) atomic_and(job.starts + word, ~mask);
    }
}
