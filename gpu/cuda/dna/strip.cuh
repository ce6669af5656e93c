// Changes which letters are gaps, between pack_letters and the walk: an accepted special token becomes one gap, and
// white space at the ends of a stretch loses its ids. A stretch is a row, or a part of it between special tokens.
//
//     text      _ A C _ [SEP] _ G        '_' is white space
//     starts    1 . . 1   1   1 .        of gaps, after pack_special
//     starts    . . . .   1   . .        after strip_ends
#pragma once
#include "dna/packed_text.cuh"
#include "special/find.cuh"

namespace warptok::dna {

constexpr uint32_t STRIP_LEFT = 1, STRIP_RIGHT = 2;  // Of `strips`.

// A mask of the bits from `at % size` on of a word of `size` bits, up to the end of a stretch.
DEVICE uint64_t bits_of_stretch(uint64_t at, uint64_t end, uint32_t size) {
    uint64_t first = at % size, last = min_of(end - (at - first), static_cast<uint64_t>(size));
    return (~0ull >> (64 - last)) & ~0ull << first;
}

// Makes the letters `begin` to `end - 1` one gap without an id.
DEVICE void make_gap(const Job& job, uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at < end; at = (at / 16 + 1) * 16)
        atomicOr(&job.dna.base_words[at / 16].flags, static_cast<uint32_t>(bits_of_stretch(at, end, 16)) * 0x10001u);
    for (uint64_t at = begin; at < end; at = (at / 64 + 1) * 64) {
        uint64_t inside = bits_of_stretch(at, end, 64);
        atomic_or(job.dna.certain + at / 64, inside);
        atomic_and(job.text.starts + at / 64, ~inside);
    }
}

// Makes each accepted special token one gap, so that it is one piece.
DEVICE void pack_special_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    if (!job.special.special_counts[COUNT_ACCEPTED]) return;
    uint64_t words = (job.batch.num_bytes + 63) / 64, stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t word = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; word < words; word += stride) {
        for (uint64_t bits = job.special.special[word]; bits; bits &= bits - 1) {
            uint64_t begin = word * 64 + lowest_bit(bits);
            make_gap(job, begin, begin + border_behind(job, begin, special_limit(job, begin)));
            atomic_or(job.text.starts + word, 1ull << begin % 64);
        }
    }
}

DEVICE bool is_stripped(const Job& job, uint64_t place) {
    uint32_t character = character_at(job.batch.text + place);
    return is_among(job.dna.stripped_letters, job.dna.num_stripped, character);
}

DEVICE bool continues_character(const Job& job, uint64_t place) { return job.batch.text[place] >> 6 == 2; }

DEVICE bool is_special(const Job& job, uint64_t place) {
    return job.special.special_counts[COUNT_ACCEPTED] && begins_special(job, place);
}

// Removes the ids of the white space at the begin of a stretch.
DEVICE void strip_left(const Job& job, uint64_t begin) {
    uint64_t at = begin;
    while (at < job.batch.num_bytes && is_stripped(job, at) && !is_special(job, at)) {
        atomic_and(job.text.starts + at / 64, ~(1ull << at % 64));
        do at++;
        while (at < job.batch.num_bytes && continues_character(job, at));
        if (at < job.batch.num_bytes && bit_of(job.batch.hard, at)) break;
    }
}

// Removes the ids of the white space at the end of a stretch.
DEVICE void strip_right(const Job& job, uint64_t end) {
    while (end) {
        uint64_t at = end - 1;
        while (at && continues_character(job, at) && !bit_of(job.batch.hard, at)) at--;
        if (!is_stripped(job, at) || is_special(job, at)) break;
        atomic_and(job.text.starts + at / 64, ~(1ull << at % 64));
        if (bit_of(job.batch.hard, at)) break;
        end = at;
    }
}

// Strips all stretches.
DEVICE void strip_ends_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK, words = (job.batch.num_bytes + 63) / 64;
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    for (uint64_t row = first; row < job.batch.num_rows; row += stride) {
        uint64_t begin = job.rows.row_begins[row], end = job.rows.row_begins[row + 1];
        if (begin < end && job.dna.strips & STRIP_LEFT) strip_left(job, begin);
        if (begin < end && job.dna.strips & STRIP_RIGHT) strip_right(job, end);
    }
    if (!job.special.special_counts[COUNT_ACCEPTED]) return;
    for (uint64_t word = first; word < words; word += stride) {
        for (uint64_t bits = job.special.special[word]; bits; bits &= bits - 1) {
            uint64_t begin = word * 64 + lowest_bit(bits);
            if (job.dna.strips & STRIP_RIGHT) strip_right(job, begin);
            if (job.dna.strips & STRIP_LEFT)
                strip_left(job, begin + border_behind(job, begin, special_limit(job, begin)));
        }
    }
}

}  // namespace warptok::dna
