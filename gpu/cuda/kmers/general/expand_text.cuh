// Rewrites a text that is not plain ASCII into letters.
//
//     begin_letters     sets start bits where characters begin; clear_special leaves one bit for each special token
//     expand_letters    writes the letters of each start, and to letter_places the byte that each letter begins with
//     place_letters     finds the first letter of each row
//
// Most characters become one letter; upper case may make several letters of one character. Example: the text "Aß[MASK]"
// has the letters A S S and SPECIAL_LETTER, which begin at the bytes 0 1 1 and 3.
#pragma once
#include "kmers/letters.cuh"
#include "special/accept.cuh"

namespace warptok::kmers {

constexpr uint32_t MAX_WIDE = 3;           // Letters of one character.

// The letters of a character that is not ASCII: its number, the number of its letters, and these, two in each word.
DEVICE uint4 wide_letters_of(const Job& job, uint32_t character) {
    const uint4* entries = reinterpret_cast<const uint4*>(job.kmers.wide_letters);
    uint32_t low = 0, high = job.kmers.num_wide;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (entries[middle].x < character) low = middle + 1;
        else high = middle;
    }
    if (low < job.kmers.num_wide && entries[low].x == character) return entries[low];
    return {character, 1, OTHER_LETTER, 0};
}

DEVICE uint32_t bytes_of_character(uint32_t first) {
    return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// The number of the character at a place, which is one that UTF-8 allows.
DEVICE uint32_t character_number(const uint8_t* bytes, uint32_t size) {
    uint32_t number = bytes[0] & (0x7F >> size);
    for (uint32_t i = 1; i < size; i++) number = number << 6 | (bytes[i] & 0x3F);
    return number;
}

// The letters of the character at a place: its number, the number of its letters, and these, two in each word.
DEVICE uint4 letters_at(const Job& job, uint64_t place) {
    uint32_t first = job.batch.text[place];
    if (begins_special(job, place)) return {0, 1, SPECIAL_LETTER, 0};
    if (first < 0x80) return {first, 1, first, 0};
    uint32_t size = bytes_of_character(first);
    for (uint32_t i = 1; i < size; i++)    // In a row that is not UTF-8 the character may be cut off.
        if ((job.batch.text[place + i] & 0xC0) != 0x80) return {first, 1, OTHER_LETTER, 0};
    uint4 wide = wide_letters_of(job, character_number(job.batch.text + place, size));
    if (wide.y > size) {                   // There is no room for them; such a row has no answer.
        job.answer.status[STATUS_NOT_COVERED] = 1;
        wide.y = size;
    }
    return wide;
}

// A thread writes the start bits of 64 bytes.
DEVICE void begin_letters_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t words = (job.batch.num_bytes + 63) / 64, stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t word = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; word < words; word += stride) {
        const uint32_t* text = reinterpret_cast<const uint32_t*>(job.batch.text + word * 64);
        uint64_t inside = 0;
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t four = text[i] >> 7 & ~(text[i] >> 6) & 0x01010101;  // 10xxxxxx.
            inside |= static_cast<uint64_t>((four * 0x10204080u) >> 28) << 4 * i;
        }
        uint64_t rest = job.batch.num_bytes - word * 64;
        job.text.starts[word] = ~inside & (rest < 64 ? (1ull << rest) - 1 : ~0ull);
    }
}

DEVICE bool begins_letters(const Job& job, uint64_t place) {
    return job.text.starts[place / 64] >> place % 64 & 1;
}

DEVICE void expand_letters_stage(const Job& job, ScanShared& shared) {
    scan(job.kmers.letter_states, job.batch.num_bytes, shared,
         [&](uint64_t place) -> uint64_t { return begins_letters(job, place) ? letters_at(job, place).y : 0; },
         [&](uint64_t place, uint64_t before) {
             if (place == job.batch.num_bytes) job.kmers.letter_rows[job.batch.num_rows] = before;
             if (place == job.batch.num_bytes || !begins_letters(job, place)) return;
             uint4 letters = letters_at(job, place);
             uint32_t each[MAX_WIDE] = {letters.z & 0xFFFF, letters.z >> 16, letters.w};
             for (uint32_t i = 0; i < letters.y; i++) {
                 job.kmers.letters[before + i] = each[i];
                 job.kmers.letter_places[before + i] = place;
             }
         });
}

// The entry behind the last row, the number of letters, is there already.
DEVICE void place_letters_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t row = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; row < job.batch.num_rows; row += stride) {
        uint64_t low = 0, high = job.kmers.letter_rows[job.batch.num_rows], place = job.rows.row_begins[row];
        while (low < high) {
            uint64_t middle = (low + high) / 2;
            if (job.kmers.letter_places[middle] < place) low = middle + 1;
            else high = middle;
        }
        job.kmers.letter_rows[row] = low;
    }
}

}  // namespace warptok::kmers
