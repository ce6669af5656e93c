// Post-processing: adds begin and end tokens (a vocabulary's prefix and suffix) to rows and truncates them to
// max_length. The options of each row are bits of row_flags (batch/rows.cuh) and row_max_length;
// gpu/batch/row_options.py writes them.
//
//     post_process_rows    which ids of each row are kept, and where the row begins in the answer
//     post_process_ids     the ids of the answer, four a thread
//     span_begins          how many bytes the ids before each one spell, where spans are requested
//     post_process_spans   begin and end byte in its row of each id of the answer
//
// Example, prefix 1, suffix 2: the row 7 8 9 becomes 1 7 8 9 2, with a max_length of 4 it becomes
// 1 7 8 2, or 1 8 9 2 where the left side is truncated.
//
// Invariant: the id at a place of the answer depends on that place alone, so that any number of threads may write it.
#pragma once
#include "decode/spell_ids.cuh"

constexpr uint32_t NO_LIMIT = 0xFFFFFFFF;
constexpr uint64_t NO_SOURCE = ~0ull;      // A begin or end token, which has no bytes in the text.

DEVICE uint64_t num_raw_ids(const Job& job) { return job.answer.id_offsets[job.batch.num_rows]; }

DEVICE uint32_t flags_of(const Job& job, uint64_t row) {
    return job.rows.row_flags ? job.rows.row_flags[row] : ROW_MATCH_SPECIAL | ROW_ADD_SPECIAL;
}

DEVICE bool is_refused(const Job& job, uint64_t row) {
    if (are_rows_right(job)) return false;
    if (job.rows.row_errors && job.rows.row_errors[row] != NO_BYTE) return true;
    return job.rows.row_refused && job.rows.row_refused[row] != NO_BYTE;
}

// How many ids a row of `size` ids has in the answer: `added` begin and end tokens stand around every piece_ids of its
// ids, and around the rest, which may be empty. With piece_ids of 510, 509 ids are one piece and 510 ids are two.
DEVICE uint64_t post_processed_size(const Job& job, uint64_t size, uint64_t added) {
    return size + (job.post_process.piece_ids ? size / job.post_process.piece_ids + 1 : 1) * added;
}

// The number of its own ids that a row may keep, so that they fit into `capacity` with the begin and end tokens of all
// pieces but the first.
DEVICE uint64_t kept_ids(const Job& job, uint64_t capacity, uint64_t added) {
    if (!job.post_process.piece_ids) return capacity;
    uint64_t piece_ids = job.post_process.piece_ids, whole = piece_ids + added, rest = capacity % whole;
    return capacity / whole * piece_ids + (rest < piece_ids ? rest : piece_ids - 1);
}

// Writes which ids of a row are kept; returns how many ids the row has in the answer: 0 where it is refused, or where
// its max_length is less than its begin and end tokens.
DEVICE uint64_t post_process_row(const Job& job, uint64_t row) {
    uint64_t size = job.answer.id_offsets[row + 1] - job.answer.id_offsets[row], kept = size;
    uint32_t flags = flags_of(job, row);
    uint64_t added = flags & ROW_ADD_SPECIAL ? job.post_process.num_prefix + job.post_process.num_suffix : 0;
    uint64_t limit = job.rows.row_max_length ? job.rows.row_max_length[row] : NO_LIMIT;
    bool faulty = is_refused(job, row), refused = faulty || limit < added;
    if (limit != NO_LIMIT && limit < post_processed_size(job, size, added)) kept = kept_ids(job, limit - added, added);
    if (kept > size) kept = size;
    if (refused) kept = 0;
    if (!faulty && kept < size) job.answer.status[STATUS_TRUNCATED] = 1;
    uint64_t first = flags & ROW_TRUNCATE_LEFT && !refused ? size - kept : 0;
    job.post_process.num_tokens[row] = refused ? 0 : post_processed_size(job, size, added);
    job.post_process.kept[2 * row] = first;
    job.post_process.kept[2 * row + 1] = first + kept;
    return refused ? 0 : post_processed_size(job, kept, added);
}

DEVICE void post_process_rows_stage(const Job& job, ScanShared& shared) {
    scan(job.post_process.post_process_states, job.batch.num_rows, shared,
         [&](uint64_t row) { return post_process_row(job, row); },
         [&](uint64_t row, uint64_t before) {
             job.post_process.post_processed_offsets[row] = before;
             if (row == job.batch.num_rows) job.answer.status[STATUS_NUM_POST_PROCESSED] = before;
         });
}

// A row of the answer.
struct PostProcessedRow {
    uint64_t number, begin, end;           // The row's number; its ids in the answer.
    uint64_t source, kept;                 // The first one of its own ids that are kept, and how many are.
    uint64_t num_prefix, num_suffix;       // 0 where the row gets no begin and end tokens.
};

DEVICE PostProcessedRow post_processed_row(const Job& job, uint64_t row) {
    const int64_t* offsets = job.post_process.post_processed_offsets;
    uint64_t begin = offsets[row], end = offsets[row + 1];
    uint64_t first = job.post_process.kept[2 * row], kept = job.post_process.kept[2 * row + 1] - first;
    bool adds = flags_of(job, row) & ROW_ADD_SPECIAL;
    uint64_t num_prefix = adds ? job.post_process.num_prefix : 0, num_suffix = adds ? job.post_process.num_suffix : 0;
    return {row, begin, end, job.answer.id_offsets[row] + first, kept, num_prefix, num_suffix};
}

DEVICE PostProcessedRow post_processed_row_of(const Job& job, uint64_t place) {
    return post_processed_row(job, last_not_behind(job.post_process.post_processed_offsets, job.batch.num_rows, place));
}

// The row of the place behind a row's end. There may be many empty rows between.
DEVICE PostProcessedRow next_post_processed_row(const Job& job, const PostProcessedRow& row) {
    PostProcessedRow next = post_processed_row(job, row.number + 1);
    return next.begin < next.end ? next : post_processed_row_of(job, row.end);
}

// Calls put(place, i, row) for the places of the answer, four neighbours a thread, i = 0 .. 3, and end(first, count)
// after each four.
template <class Put, class End>
DEVICE void walk_post_processed(const Job& job, uint32_t block, uint32_t num_blocks, Put put, End end) {
    uint64_t total = job.post_process.post_processed_offsets[job.batch.num_rows];
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK * 4;
    for (uint64_t first = (static_cast<uint64_t>(block) * BLOCK + threadIdx.x) * 4; first < total;
         first += stride) {
        PostProcessedRow row = post_processed_row_of(job, first);
        uint32_t count = total - first < 4 ? static_cast<uint32_t>(total - first) : 4;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (i >= count) continue;
            if (first + i == row.end) row = next_post_processed_row(job, row);
            put(first + i, i, row);
        }
        end(first, count);
    }
}

// A piece of a row, around which begin and end tokens stand, as one of its places sees it.
struct PostProcessedPiece {
    uint64_t number;                       // The number of the place in the piece.
    uint64_t source, kept;                 // As in PostProcessedRow, of the piece's ids.
};

DEVICE PostProcessedPiece piece_of(const Job& job, const PostProcessedRow& row, uint64_t place) {
    if (!job.post_process.piece_ids) return {place - row.begin, row.source, row.kept};
    uint64_t whole = job.post_process.piece_ids + row.num_prefix + row.num_suffix, piece = (place - row.begin) / whole;
    uint64_t first = piece * job.post_process.piece_ids, rest = row.kept - first;
    uint64_t kept = rest < job.post_process.piece_ids ? rest : job.post_process.piece_ids;
    return {(place - row.begin) % whole, row.source + first, kept};
}

// The number of the batch's id that stands at a place of the answer; NO_SOURCE for begin and end tokens.
DEVICE uint64_t source_of(const Job& job, const PostProcessedRow& row, uint64_t place) {
    PostProcessedPiece piece = piece_of(job, row, place);
    uint64_t own = piece.number - row.num_prefix;  // Wraps at a begin token.
    return own < piece.kept ? piece.source + own : NO_SOURCE;
}

DEVICE uint32_t post_processed_id(const Job& job, const PostProcessedRow& row, uint64_t place) {
    PostProcessedPiece piece = piece_of(job, row, place);
    uint64_t own = piece.number - row.num_prefix;
    if (own < piece.kept) return job.answer.ids[piece.source + own];
    if (piece.number < row.num_prefix) return job.post_process.prefix[piece.number];
    return job.post_process.suffix[own - piece.kept];
}

DEVICE void post_process_ids_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t ids[4];
    walk_post_processed(
        job, block, num_blocks,
        [&](uint64_t place, uint32_t i, const PostProcessedRow& row) {
            ids[i] = post_processed_id(job, row, place);
        },
        [&](uint64_t place, uint32_t count) {
            int32_t* to = job.post_process.post_processed_ids + place;
            if (count == 4) *reinterpret_cast<uint4*>(to) = {ids[0], ids[1], ids[2], ids[3]};
            else for (uint32_t i = 0; i < count; i++) to[i] = ids[i];
        });
}

DEVICE void span_begins_stage(const Job& job, ScanShared& shared) {
    scan(job.post_process.span_states, num_raw_ids(job), shared,
         [&](uint64_t place) { return token_meta(job, job.answer.ids[place]) & LENGTH_BITS; },
         [&](uint64_t place, uint64_t before) { job.post_process.span_begins[place] = before; });
}

DEVICE void post_process_spans_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    walk_post_processed(
        job, block, num_blocks,
        [&](uint64_t place, uint32_t, const PostProcessedRow& row) {
            uint64_t source = source_of(job, row, place);
            ulonglong2 span = {0, 0};
            if (source != NO_SOURCE) {
                const uint32_t* begins = job.post_process.span_begins;
                uint32_t row_begin = begins[job.answer.id_offsets[row.number]];
                span = {begins[source] - row_begin, begins[source + 1] - row_begin};
            }
            reinterpret_cast<ulonglong2*>(job.post_process.spans)[place] = span;
        },
        [](uint64_t, uint32_t) {});
}
