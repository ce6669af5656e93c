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

// The place of the set bit of a word that has `number` others below it.
DEVICE uint32_t nth_bit(uint64_t word, uint32_t number) {
    uint32_t place = 0;
#pragma unroll
    for (uint32_t half = 32; half; half /= 2) {
        uint64_t mask = (1ull << half) - 1;
        uint32_t below = count_bits(word & mask);
        if (number < below) continue;
        number -= below;
        word >>= half;
        place += half;
    }
    return place;
}

// A warp takes a tile, 32 neighbouring ids at a time: each lane finds the word that its id begins in by
// the running sums of the words' bits, which the lanes hold, and the bit in it.
DEVICE void write_starts_of_tile(const Job& job, const uint32_t* table, uint64_t tile) {
    uint64_t first = tile * LETTER_TILE, own = first + (threadIdx.x & 31) * 64;
    uint64_t starts = own < num_letters(job) ? job.starts[own / 64] : 0;
    uint32_t sums = sum_of_counts(count_bits(starts)), total = __shfl_sync(0xFFFFFFFF, sums, 31);
    for (uint32_t round = 0; round < total; round += 32) {
        uint32_t wanted = round + (threadIdx.x & 31), owner = 0;
        for (uint32_t step = 16; step; step /= 2)
            if (__shfl_sync(0xFFFFFFFF, sums, owner + step - 1) <= wanted) owner += step;
        uint32_t before = __shfl_sync(0xFFFFFFFF, sums, (owner + 31) & 31);
        uint64_t word = __shfl_sync(0xFFFFFFFF, starts, owner);
        if (wanted >= total) continue;
        uint64_t letter = first + owner * 64 + nth_bit(word, wanted - (owner ? before : 0));
        LetterRow row = letter_row(job, letter);
        LetterId id = id_at(job, table, row, letter);
        uint64_t place = job.letter_tile_ids[tile] + wanted;
        job.ids[place] = id.id;
        if (job.own_spans) job.own_spans[place] = own_span(job, row, id);
    }
}

DEVICE void write_places_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    load_letters(job, table);
    uint32_t warps = num_blocks * (BLOCK / 32);
    for (uint64_t tile = block * (BLOCK / 32) + threadIdx.x / 32; tile < letter_tiles(job); tile += warps)
        write_starts_of_tile(job, table, tile);
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
