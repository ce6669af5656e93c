// The ids at the start bits of starts.cuh, and, where anybody asked, the bytes that each stands for.
#pragma once
#include "frame.cuh"
#include "starts.cuh"

// An id, and the first and last letter that it stands for.
struct LetterId {
    uint32_t id;
    uint64_t first, last;
};

DEVICE LetterId circle_id(const Job& job, const uint32_t* table, const LetterRow& row, uint64_t letter) {
    uint64_t row_begin = job.letter_rows[row.number], length = row.end - row_begin;
    uint64_t begin = circle_begin(job, letter - row_begin, length), end = begin + job.kmer_k;
    uint32_t id = kmer_id(job, [&](uint64_t i) {
        return table[letter_at(job, row_begin + (begin + i) % length)];
    });
    return {id, row_begin + begin, row_begin + (end < length ? end : length) - 1};
}

DEVICE LetterId id_at(const Job& job, const uint32_t* table, const LetterRow& row, uint64_t letter) {
    uint32_t own = letter_at(job, letter), letter_class = class_of(table[own]), k = job.kmer_k;
    if (row.is_circle) return circle_id(job, table, row, letter);
    if (row.has_words) {
        Word word = word_at(job, letter, row.flags);
        if (word.special_id != NO_ID) return {word.special_id, letter, letter + word.letters - 1};
        if (word.letters != k) return {0, letter, letter};  // The row is refused.
    }
    if (letter_class == SPECIAL) {
        uint64_t place = job.letter_places[letter];
        uint32_t size = static_cast<uint32_t>(byte_behind(job, letter) - place);
        return {special_id(job, place, size), letter, letter};
    }
    if (letter_class == BASE && letters_to_break(job, letter, k) == k)
        return {kmer_id(job, [&](uint64_t i) { return table[letter_at(job, letter + i)]; }), letter, letter + k - 1};
    uint64_t last = letter;
    if (letter_class == OTHER && job.own_spans) last += letters_to_break(job, letter, NO_LIMIT) - 1;
    return {job.letter_ids[own], letter, last};
}

// Bytes of an id in its row as it was sent; a turned row counts from its end.
DEVICE uint2 own_span(const Job& job, const LetterRow& row, const LetterId& id) {
    uint64_t row_begin = job.row_begins[row.number], row_end = job.row_begins[row.number + 1];
    uint64_t begin = byte_of(job, id.first), end = byte_behind(job, id.last);
    uint32_t from = begin - row_begin, to = end - row_begin;
    if (!(row.flags & ROW_OTHER_STRAND)) return {from, to};
    uint32_t size = row_end - row_begin;
    return {size - to, size - from};
}

// A warp takes a tile, a lane the ids that begin in its word.
DEVICE void write_places_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    load_letters(job, table);
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32);
    uint64_t end = num_letters(job);
    for (uint64_t tile = block * (BLOCK / 32) + threadIdx.x / 32; tile < letter_tiles(job); tile += warps) {
        uint64_t first = tile * LETTER_TILE + lane * 64;
        uint64_t starts = first < end ? job.starts[first / 64] : 0;
        uint32_t count = count_bits(starts), inclusive = count;
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint32_t other = __shfl_up_sync(0xFFFFFFFF, inclusive, distance);
            if (lane >= distance) inclusive += other;
        }
        uint64_t place = job.letter_tile_ids[tile] + inclusive - count;
        if (!starts) continue;
        LetterRow row = letter_row(job, first);
        for (; starts; starts &= starts - 1, place++) {
            uint64_t letter = first + lowest_bit(starts);
            if (letter >= row.end) row = letter_row(job, letter);
            LetterId id = id_at(job, table, row, letter);
            job.ids[place] = id.id;
            if (job.own_spans) job.own_spans[place] = own_span(job, row, id);
        }
    }
}

// The spans of a framed answer: those of the ids, and (0, 0) for begin and end tokens.
DEVICE void frame_own_spans_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    walk_framed(
        job, block, num_blocks,
        [&](uint64_t place, uint32_t, const FramedRow& row) {
            uint64_t source = source_of(job, row, place);
            uint2 own = source == NO_SOURCE ? uint2{0, 0} : job.own_spans[source];
            reinterpret_cast<ulonglong2*>(job.spans)[place] = {own.x, own.y};
        },
        [](uint64_t, uint32_t) {});
}
