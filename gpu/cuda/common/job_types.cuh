// The types of the arrays of a Job that hold neither numbers nor bits, and the constants of its status and counts.
#pragma once
#include "common/platform.cuh"

// A token of 1..12 bytes: the bytes, zeros behind them, length << 28 | id; see text/lookup/token_tables.cuh.
struct ShortEntry {
    uint32_t bytes[3], meta;
};

struct LongEntry {  // A token of 13..28 bytes: the bytes, zeros behind them, length << 27 | id.
    uint32_t bytes[7], meta;
};

struct LongPiece {  // A pretoken of more than MAX_PIECE bytes, which windows split.
    uint32_t begin, end;                   // Bytes of the batch.
    uint32_t first_window;                 // The number of its first window.
    uint32_t failed;                       // Not 0: two of its windows do not meet.
};

struct WholePiece {  // A long piece that has failed.
    uint32_t begin, end;                   // Bytes of the batch.
    uint32_t first;                        // Bytes of the whole pieces listed before it.
};

// The words of window_counts. Two of them hold two counts each, the second one above COUNT_SHIFT, so that one atomic
// operation changes and reads both.
constexpr uint32_t COUNT_WINDOWS = 0;      // Windows; above COUNT_SHIFT: long pieces.
constexpr uint32_t COUNT_WHOLE = 1;        // Bytes of whole pieces; above COUNT_SHIFT: whole pieces.
constexpr uint32_t COUNT_TICKETS = 2;      // Two words, the tickets of whole pieces, see common/grid_steps.cuh.
constexpr uint32_t COUNT_SHIFT = 40;
constexpr uint64_t ONE_ABOVE = 1ull << COUNT_SHIFT;

struct BaseWord {  // Sixteen letters, see dna/packed_text.cuh.
    uint32_t codes;                        // Two bits each, the first letter lowest.
    uint32_t flags;                        // Bit i: letter i is a stop; bit 16 + i: it is a gap.
};

// The words of a Job's status.
constexpr uint32_t STATUS_NUM_IDS = 0;     // Ids of the whole batch.
constexpr uint32_t STATUS_FAULT = 1;       // Not 0: a kernel met a state that cannot be; no id may be used.
constexpr uint32_t STATUS_TRUNCATED = 2;         // Not 0: max_length truncated a row.
constexpr uint32_t STATUS_NUM_POST_PROCESSED = 3;  // Ids of the answer, begin and end tokens included.
constexpr uint32_t STATUS_FALLBACK = 4;    // FALLBACK_*: what the first kernels leave to fallback kernels; 0: nothing.
constexpr uint32_t STATUS_NOT_UTF8 = 5;    // Not 0: a row is refused; in host_status only.
constexpr uint32_t STATUS_NOT_COVERED = 6;  // Not 0: a character that kernels do not know, or a text too slow for them.
constexpr uint32_t STATUS_ROWS = 7;        // Bits that plain kernels set:
constexpr uint32_t ROWS_ADD_UP = 1;        // the ids of rows have to be added up (kmers/row_offsets.cuh);
constexpr uint32_t ROWS_ARE_RIGHT = 2;     // no row is at fault, and row_errors and row_refused are not written.

// The bits of STATUS_FALLBACK depend on the family: those of k-mers are in kmers/letters.cuh, those of DNA in
// dna/windows/stitch.cuh and dna/parts/part.cuh, those of text here, since the kernels that report a batch set them.
namespace warptok::text {

constexpr uint32_t FALLBACK_RUNS = 1;      // Chunks are unresolved: map_tiles, enter_runs and redo_tiles read them.
constexpr uint32_t FALLBACK_PIECES = 2;    // Pieces are long and no tokens: windows and those behind it split them.

}  // namespace warptok::text
