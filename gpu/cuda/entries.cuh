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

struct BaseWord {  // Sixteen letters, see dna_text.cuh.
    uint32_t codes, flags;
};

struct SeamBits {  // Of 32 windows of level 0, see cut_seams.cuh.
    uint32_t fails, runs, firsts, live;
};
