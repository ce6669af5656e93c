// Finds where the ids of rows of any length begin, and the first row of every tile of letters, before ids are written.
//
//     place_neighbours   k-mers of neighbouring letters: each row has k - 1 ids fewer than letters, so that no sums are
//                        needed
//     place_rows         all other k-mers, and batches in which a row has another number of ids
//
// A mark is the row of a tile's first letter. A row of very many tiles marks only its first tiles. Memory without a
// mark may hold anything, so a reader checks each mark.
//
// Example, tiles of 8 letters, rows of 5, 0, 12 and 2: the letters 0, 8 and 16 are those of the rows 0, 2 and 2.
#pragma once
#include "kmers/packed_tile.cuh"
#include "common/lookback_scan.cuh"

namespace warptok::kmers {

constexpr uint32_t MOST_MARKS = 64;        // Maximum number of marks; few rows are longer, so that a search is short.

static_assert(KmerTile<uint32_t, KmerStep::NEIGHBOURS>::OWN_LETTERS == LEAST_LETTERS,
              "there is memory for no more marks");

// Letters of a tile of the kernel that writes ids of this width. Where a batch has another one, marks are wrong.
DEVICE uint32_t marked_letters(const Job& job) {
    if (job.kmers.kmer_stride > 1) return KmerTile<uint32_t, KmerStep::STRIDED>::OWN_LETTERS;
    if (job.answer.id_bits == 8) return KmerTile<uint8_t, KmerStep::NEIGHBOURS>::OWN_LETTERS;
    if (job.answer.id_bits == 16) return KmerTile<uint16_t, KmerStep::NEIGHBOURS>::OWN_LETTERS;
    return KmerTile<uint32_t, KmerStep::NEIGHBOURS>::OWN_LETTERS;
}

DEVICE void mark_tiles(uint32_t* marks, uint32_t begin, uint32_t end, uint64_t row, const Divider& letters) {
    uint32_t tile = letters.quotient(begin);
    uint64_t letter = static_cast<uint64_t>(tile) * letters.number;
    if (letter < begin) tile++, letter += letters.number;
    for (uint32_t last = tile + MOST_MARKS; tile < last && letter < end; tile++, letter += letters.number)
        marks[tile] = static_cast<uint32_t>(row);
}

constexpr uint32_t ROWS_AT_ONCE = 4;       // Of a thread.

DEVICE void place_neighbours_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t num_rows = job.batch.num_rows, first = block * static_cast<uint64_t>(BLOCK) + threadIdx.x;
    uint64_t step = num_blocks * BLOCK;
    uint32_t shared = job.kmers.kmer_k - 1, least = shared + (job.kmers.keeps_remainder != 0);
    const int64_t* begins = job.rows.row_begins;
    int64_t* offsets = job.answer.id_offsets;
    uint32_t* marks = job.kmers.row_marks;
    RowFaults faults(job);
    Divider letters(marked_letters(job));
    bool can_wrap = job.kmers.can_wrap, adds_up = false;
    for (uint64_t from = first; from < num_rows; from += ROWS_AT_ONCE * step) {
        uint32_t row_begins[ROWS_AT_ONCE], row_ends[ROWS_AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < ROWS_AT_ONCE; i++) {
            uint64_t row = from + i * step < num_rows ? from + i * step : from;
            row_begins[i] = __ldg(begins + row), row_ends[i] = __ldg(begins + row + 1);
        }
#pragma unroll
        for (uint32_t i = 0; i < ROWS_AT_ONCE; i++) {
            uint64_t row = from + i * step;
            if (row >= num_rows) break;
            offsets[row] = row_begins[i] - row * shared;
            mark_tiles(marks, row_begins[i], row_ends[i], row, letters);
            faults.look_at(row);
            adds_up |= row_ends[i] - row_begins[i] < least || (can_wrap && is_circle(job, row));
        }
    }
    if (first == 0) {
        offsets[num_rows] = job.answer.status[STATUS_NUM_IDS] = begins[num_rows] - num_rows * shared;
        faults.finish();
    }
    if (adds_up && !(job.answer.status[STATUS_ROWS] & ROWS_ADD_UP))
        atomic_or(job.answer.status + STATUS_ROWS, ROWS_ADD_UP);
}

DEVICE void place_rows_stage(const Job& job, ScanShared& shared, uint32_t block) {
    bool is_placed = job.kmers.kmer_stride == 1 && !(job.answer.status[STATUS_ROWS] & ROWS_ADD_UP);
    if (is_placed || block >= scan_tiles(job.batch.num_rows)) return;
    RowLengths lengths(job);
    RowFaults faults(job);
    Divider letters(marked_letters(job));
    const int64_t* begins = job.rows.row_begins;
    uint32_t* marks = job.kmers.row_marks;
    uint64_t num_rows = job.batch.num_rows;
    int64_t* offsets = job.answer.id_offsets;
    scan<uint32_t>(job.kmers.place_states, num_rows, shared, [&](uint64_t row) { return lengths.ids_of(job, row); },
                   [&](uint64_t row, uint64_t before) {
                       offsets[row] = before;
                       if (row == num_rows) {
                           job.answer.status[STATUS_NUM_IDS] = before;
                           faults.finish();
                       } else {
                           mark_tiles(marks, __ldg(begins + row), __ldg(begins + row + 1), row, letters);
                           faults.look_at(row);
                       }
                   });
}

}  // namespace warptok::kmers
