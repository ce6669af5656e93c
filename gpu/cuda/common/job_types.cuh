// What the arrays of a Job are made of, where that is neither numbers nor bits.
#pragma once
#include "common/platform.cuh"

// A token of 1..12 bytes: the bytes, zeros behind them, length << 28 | id; see text/lookup/token_tables.cuh.
struct ShortEntry {
    uint32_t bytes[3], meta;
};

struct LongEntry {  // A token of 13..28 bytes: the bytes, zeros behind them, length << 27 | id.
    uint32_t bytes[7], meta;
};

struct LongPiece {  // A pretoken that is cut before it is looked up.
    uint32_t begin, end, first_window, failed;
};

struct WholePiece {  // One that windows did not split; `first`: bytes of those listed before it.
    uint32_t begin, end, first;
};

// The words of window_counts. Two of them hold two counts each, the second one above COUNT_SHIFT, so that one atomic
// operation changes and reads both.
constexpr uint32_t COUNT_WINDOWS = 0;      // Windows; above: pieces that they are of.
constexpr uint32_t COUNT_WHOLE = 1;        // Bytes of pieces that are merged whole; above: these pieces.
constexpr uint32_t COUNT_TICKETS = 2;      // Of whole pieces, two words, see common/grid_steps.cuh.
constexpr uint32_t COUNT_SHIFT = 40;
constexpr uint64_t ONE_ABOVE = 1ull << COUNT_SHIFT;

struct BaseWord {  // Sixteen letters, see dna/packed_text.cuh.
    uint32_t codes, flags;
};

// The words of a Job's status.
constexpr uint32_t STATUS_NUM_IDS = 0;     // Ids of the whole batch.
constexpr uint32_t STATUS_FAULT = 1;       // Not 0: a kernel met what cannot be; no id may be used.
constexpr uint32_t STATUS_CUT = 2;         // Not 0: max_length cut a row.
constexpr uint32_t STATUS_NUM_FRAMED = 3;  // Ids of the answer, begin and end tokens included.
constexpr uint32_t STATUS_FALLBACK = 4;    // FALLBACK_*: what the first kernels leave to fallback kernels; 0: nothing.
constexpr uint32_t STATUS_NOT_UTF8 = 5;    // Not 0: a row is refused; in host_status only.
// Not 0: a character that the kernels do not know, or a text that would take them too long.
constexpr uint32_t STATUS_NOT_COVERED = 6;
constexpr uint32_t STATUS_ROWS = 7;        // What plain kernels know of all rows:
constexpr uint32_t ROWS_ADD_UP = 1;        // ids of rows have to be added up (kmers/row_offsets.cuh),
constexpr uint32_t ROWS_ARE_RIGHT = 2;     // none is at fault, and no kernel has written row_errors and row_refused.

// The bits of STATUS_FALLBACK depend on the family: those of k-mers are in kmers/letters.cuh, those of DNA in
// dna/windows/stitch.cuh and dna/parts/part.cuh, those of text here, since the kernels that report a batch set them.
namespace warptok::text {

constexpr uint32_t FALLBACK_RUNS = 1;      // Chunks are unresolved: map_tiles, enter_runs and redo_tiles read them.
constexpr uint32_t FALLBACK_PIECES = 2;    // Pieces are long and no tokens: windows and those behind it split them.

}  // namespace warptok::text
