// Cuts the ids of each row into windows, as vocabularies/sequences/windows.py does, with the position and value of each
// id.
// (Windows of text, in which long pieces are encoded, are those of text/split/windows_common.cuh.)
//
// A thread writes four neighbouring cells of the rectangle of all windows, prefix columns included.
// Example, window 2, stride 2: the ids 5 6 7 become 5 6 and 7 pad, or in a circle 5 6 and 7 5.
#pragma once
#include "kmers/general/id_starts.cuh"

namespace warptok::kmers {

// Where the k-mers of a circle begin on the other strand, counted around the junction in the row as it was sent. Every
// k-mer of the row is one id.
DEVICE uint64_t other_strand_of_circle(const Job& job, uint64_t number, uint64_t length) {
    return (2 * length - circle_begin(job, number, length) - job.kmers.kmer_k) % length;
}

// Where an id's letters begin in the row as it was sent, where every row is one run of letters; not for the other strand
// of a circle.
DEVICE uint64_t plain_position(const Job& job, uint64_t row, uint64_t number) {
    uint64_t length = job.rows.row_begins[row + 1] - job.rows.row_begins[row];
    if (job.kmers.can_wrap && is_circle(job, row)) return circle_begin(job, number, length);
    uint64_t begin = number * job.kmers.kmer_stride, end = begin + job.kmers.kmer_k;
    if (end > length) {                    // Behind the k-mers.
        begin = covered_letters(job, length) + number - num_kmers(job, length);
        end = begin + 1;
    }
    bool is_reverse_complement = job.rows.row_flags && job.rows.row_flags[row] & ROW_REVERSE_COMPLEMENT;
    return is_reverse_complement ? length - end : begin;
}

// The windows of a row.
struct WindowedRow {
    uint64_t number, first_window, end_window, first_id, num_ids;
    bool wraps, is_other_strand;  // The other strand of a circle, every k-mer of which is one id.
};

DEVICE WindowedRow windowed_row(const Job& job, uint64_t row) {
    uint64_t first_id = job.answer.id_offsets[row], num_ids = job.answer.id_offsets[row + 1] - first_id;
    bool wraps = job.kmers.can_wrap && is_circle(job, row);
    bool is_reverse_complement = job.rows.row_flags && job.rows.row_flags[row] & ROW_REVERSE_COMPLEMENT;
    return {row,
            static_cast<uint64_t>(job.windows.window_rows[row]),
            static_cast<uint64_t>(job.windows.window_rows[row + 1]),
            first_id,
            num_ids,
            wraps,
            wraps && is_reverse_complement &&
                num_ids == static_cast<uint64_t>(job.rows.row_begins[row + 1] - job.rows.row_begins[row])};
}

// The contents of a cell.
struct WindowCell {
    uint32_t id, is_token;
    uint64_t position;
    float value;
};

DEVICE WindowCell window_cell(const Job& job, const WindowedRow& row, uint64_t window, uint32_t column) {
    if (column < job.windows.num_window_prefix)
        return {static_cast<uint32_t>(job.windows.window_prefix[column]), 1, 0, 0.0f};
    uint64_t token = (window - row.first_window) * job.windows.window_stride + column - job.windows.num_window_prefix;
    if (row.wraps) token %= row.num_ids;
    if (token >= row.num_ids) return {static_cast<uint32_t>(job.windows.window_pad), 0, 0, 0.0f};
    uint64_t place = row.first_id + token;
    uint64_t position = row.is_other_strand ? other_strand_of_circle(job, token, row.num_ids)
                        : job.kmers.own_spans ? job.kmers.own_spans[place].x
                                              : plain_position(job, row.number, token);
    float value = job.windows.channel ? job.windows.channel[job.rows.row_begins[row.number] + position] : 0.0f;
    return {static_cast<uint32_t>(job.answer.ids[place]), 1, position, value};
}

DEVICE void cut_windows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t columns = job.windows.num_window_prefix + job.windows.window_length;
    uint64_t windows = job.windows.window_rows[job.batch.num_rows];
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK * 4, total = windows * columns;
    for (uint64_t first = (static_cast<uint64_t>(block) * BLOCK + threadIdx.x) * 4; first < total; first += stride) {
        uint64_t window = first / columns;
        uint32_t column = static_cast<uint32_t>(first % columns);
        WindowedRow row = windowed_row(job, last_not_behind(job.windows.window_rows, job.batch.num_rows, window));
        WindowCell cells[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            cells[i] = {0, 0, 0, 0.0f};
            if (first + i >= total) continue;
            if (column == columns) column = 0, window++;
            if (window >= row.end_window)
                row = windowed_row(job, last_not_behind(job.windows.window_rows, job.batch.num_rows, window));
            if (column == 0)
                job.windows.window_starts[window] = (window - row.first_window) * job.windows.window_stride;
            cells[i] = window_cell(job, row, window, column++);
        }
        // The arrays have room for whole fours.
        reinterpret_cast<uint4*>(job.windows.window_ids)[first / 4] = {cells[0].id, cells[1].id, cells[2].id,
                                                                       cells[3].id};
        reinterpret_cast<uint32_t*>(job.windows.window_mask)[first / 4] =
            cells[0].is_token | cells[1].is_token << 8 | cells[2].is_token << 16 | cells[3].is_token << 24;
        ulonglong2* positions = reinterpret_cast<ulonglong2*>(job.windows.window_positions) + first / 2;
        positions[0] = {cells[0].position, cells[1].position};
        positions[1] = {cells[2].position, cells[3].position};
        if (job.windows.channel)
            for (uint32_t i = 0; i < 4; i++) job.windows.window_values[first + i] = cells[i].value;
    }
}

}  // namespace warptok::kmers
