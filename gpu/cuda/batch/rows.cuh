// Rows: their options, the row of a place, and faults.
//
// Example, rows that begin at 0 4 4 9: place 4 is in row 2, as row 1 is empty; the first row that does not begin before
// place 5 is row 3.
#pragma once
#include "common/job.cuh"

// Bits of row_flags. In a row with neither of the first two only those added tokens are matched that do not count as
// special. Where row_flags is a null pointer, all rows match special tokens and get begin and end tokens.
constexpr uint32_t ROW_MATCH_SPECIAL = 1;
constexpr uint32_t ROW_REFUSE_SPECIAL = 2;
constexpr uint32_t ROW_ADD_SPECIAL = 4;    // Begin and end tokens are put around the ids.
constexpr uint32_t ROW_TRUNCATE_LEFT = 8;  // max_length truncates the row at its begin.
constexpr uint32_t ROW_REVERSE_COMPLEMENT = 16;  // The row's reverse complement is encoded (batch/augment_rows.cuh).
constexpr uint32_t ROW_CIRCLE = 32;        // The row is a circle, so that k-mers wrap around its end.

// The number of the last of `count` ascending values that is not behind a place; the first value is not.
DEVICE uint64_t last_not_behind(const int64_t* values, uint64_t count, uint64_t place) {
    uint64_t low = 0, high = count - 1;
    while (low < high) {
        uint64_t middle = (low + high + 1) / 2;
        if (static_cast<uint64_t>(values[middle]) <= place) low = middle;
        else high = middle - 1;
    }
    return low;
}

// The number of the first of `count` ascending values that is not before a place; `count` where all
// are before it.
DEVICE uint64_t first_not_before(const int64_t* values, uint64_t count, uint64_t place) {
    uint64_t low = 0, high = count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (static_cast<uint64_t>(values[middle]) < place) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The same, by a whole warp, each step of which narrows the search to one of 32 sections.
DEVICE uint64_t first_not_before_by_warp(const int64_t* values, uint64_t count, uint64_t place) {
    uint64_t low = 0, high = count, lane = threadIdx.x & 31;
    while (low < high) {
        uint64_t size = (high - low + 31) / 32, last = low + (lane + 1) * size - 1;
        bool before = last < high && static_cast<uint64_t>(values[last]) < place;
        low += count_bits(__ballot_sync(ALL_LANES, before)) * size;
        if (low + size - 1 < high) high = low + size - 1;
    }
    return high;
}

// The number of the first row that does not begin before a place of the text; a warp calls it. The mean length of rows
// gives a guess: where rows have about one length, two reads among 1,024 rows around it find the row.
DEVICE uint64_t first_row_not_before(const Job& job, uint64_t place) {
    constexpr uint32_t EACH = 32, NEAR = 32 * EACH;
    uint64_t num_rows = job.batch.num_rows, lane = threadIdx.x & 31;
    if (num_rows > NEAR) {
        float share = static_cast<float>(place) / static_cast<float>(job.batch.num_bytes);
        uint64_t guess = static_cast<uint64_t>(share * static_cast<float>(num_rows)),
                 base = guess < NEAR / 2 ? 0 : guess - NEAR / 2;
        if (base > num_rows - NEAR) base = num_rows - NEAR;
        bool before = static_cast<uint64_t>(job.rows.row_begins[base + EACH * lane + EACH - 1]) < place;
        uint32_t count = count_bits(__ballot_sync(ALL_LANES, before));
        base += EACH * count;
        if (0 < count && count < 32)
            return base + count_bits(__ballot_sync(ALL_LANES,
                                                   static_cast<uint64_t>(job.rows.row_begins[base + lane]) < place));
    }
    return first_not_before_by_warp(job.rows.row_begins, num_rows, place);
}

// The row of a place of the text before num_bytes.
DEVICE uint64_t row_of(const Job& job, uint64_t place) {
    return last_not_behind(job.rows.row_begins, job.batch.num_rows, place);
}

// The row of a place that is in row `row` or behind it, where rows begin at `begins`. Mostly it is this row or one of
// the next; else it is searched for.
DEVICE uint64_t row_from(const int64_t* begins, uint64_t num_rows, uint64_t row, uint64_t place) {
    constexpr uint32_t NEXT = 4;
    for (uint32_t i = 0; i < NEXT; i++, row++)
        if (place < static_cast<uint64_t>(begins[row + 1])) return row;
    return row + last_not_behind(begins + row, num_rows - row, place);
}

// Whether a row is a circle. A null pointer of row_flags: all rows are what `wraps` says.
DEVICE bool is_circle(const Job& job, uint64_t row) {
    return job.rows.row_flags ? job.rows.row_flags[row] & ROW_CIRCLE : job.kmers.wraps != 0;
}

// Whether a row was augmented though it is not ASCII.
DEVICE bool is_no_sequence(const Job& job, uint64_t row) {
    return job.augmentation.sent_text && job.augmentation.row_not_ascii[row];
}

// Notes a fault of a row at a place of the batch; the fault at the first place counts. Most later ones cost only a
// read.
DEVICE void note_fault(uint32_t* faults, uint64_t row, uint32_t place) {
    if (faults[row] > place) atomicMin(faults + row, place);
}

// Whether plain kernels found that no row is at fault, so that no faults are written.
DEVICE bool are_rows_right(const Job& job) { return (job.answer.status[STATUS_ROWS] & ROWS_ARE_RIGHT) != 0; }

// Marks all rows as not at fault; runs before the kernels that find faults.
DEVICE void clear_faults_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t row = block * static_cast<uint64_t>(BLOCK) + threadIdx.x; row < job.batch.num_rows;
         row += stride) {
        job.rows.row_errors[row] = NO_BYTE;
        if (job.rows.row_refused) job.rows.row_refused[row] = NO_BYTE;
    }
}
