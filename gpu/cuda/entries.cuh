// What the arrays of a Job are made of, where that is neither numbers nor bits.
#pragma once
#include "shim.cuh"

struct ShortEntry {  // A token of 1..12 bytes: the bytes, zeros behind them, length << 28 | id; see tokens.cuh.
    uint32_t bytes[3], meta;
};

struct LongEntry {  // A token of 13..28 bytes: the bytes, zeros behind them, length << 27 | id.
    uint32_t bytes[7], meta;
};

struct LongPiece {  // A pretoken that is cut before it is looked up.
    uint32_t begin, end, first_window, failed;
};

struct WholePiece {  // One that windows and bridges did not cut; `first`: bytes of those listed before it.
    uint32_t begin, end, first;
};

// The words of window_counts. Three of them hold two counts each, the second one above COUNT_SHIFT, so that one atomic
// operation changes and reads both.
constexpr uint32_t COUNT_WINDOWS = 0;      // Windows of level 0; above: pieces that they are of.
constexpr uint32_t COUNT_SEAMS = 1;        // Windows that do not meet the next one; above: bridges that lead past some.
constexpr uint32_t COUNT_WHOLE = 2;        // Bytes of pieces of level 2; above: these pieces.
constexpr uint32_t COUNT_PARTS = 3;        // Parts of bridges (cut_parts.cuh), also those that had no room.
constexpr uint32_t COUNT_TICKETS = 4;      // Of level 2, two words, see steps.cuh.
constexpr uint32_t COUNT_LOST = 6;         // Bridges that lead nowhere.
constexpr uint32_t COUNT_SHIFT = 40;
constexpr uint64_t ONE_ABOVE = 1ull << COUNT_SHIFT;

struct BaseWord {  // Sixteen letters, see dna_text.cuh.
    uint32_t codes, flags;
};

struct SeamBits {  // Of 32 windows of level 0, see cut_seams.cuh.
    uint32_t fails, runs, firsts, live;
};
