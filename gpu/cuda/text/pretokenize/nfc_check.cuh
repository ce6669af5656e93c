// Whether NFC leaves a text as it is. The kernels do not compose: where they cannot prove that nothing changes, the
// CPU encodes the batch.
//
// A text stays as it is if no character of it is one that NFC always changes, the combining marks behind one another
// stand in the order of their classes, and nothing joins the character before it (UAX 15, "Detecting Normalization
// Forms"). A character that may join is checked with the one before it: if that one may be joined, has parts itself, or
// is a mark, the text does not pass.
//
//     e  U+0301    e may be joined by a mark, and U+0301 joins: does not pass (it becomes U+00E9)
//     U+0921 U+093C    the nukta joins other letters, but not this one: passes
//
// Special tokens need no exception: the last character of one before a character can only make the text pass less
// often.
//
// Invariant: a text that passes is in NFC; one that is in NFC may not pass, and the CPU encodes it.
#pragma once
#include "batch/rows.cuh"

namespace warptok::text {

constexpr uint32_t COMPOSED_CLASS = 0xFF;      // The combining class; 0: the character begins anew.
constexpr uint32_t COMPOSED_CHANGES = 1 << 8;  // Whatever is around it.
constexpr uint32_t COMPOSED_JOINS = 1 << 9;    // Some character before it.
constexpr uint32_t COMPOSED_TAKES = 1 << 10;   // Some character behind it, or it has parts.

// The kind of a character for NFC (gpu/text/nfc_check.py); 0 where it is none.
DEVICE uint32_t kind_of_character(const Job& job, uint32_t character) {
    if (character > 0x10FFFF) return 0;
    return job.pretokenizer.composed_rows[job.pretokenizer.composed_pages[character >> 8] << 8 | (character & 0xFF)];
}

// Whether NFC may change the later of two neighbours, or what is made of both.
DEVICE bool may_change(uint32_t before, uint32_t kind) {
    if (kind & COMPOSED_CHANGES) return true;
    uint32_t last = before & COMPOSED_CLASS, own = kind & COMPOSED_CLASS;
    if (own && last > own) return true;
    return kind & COMPOSED_JOINS && (last || before & COMPOSED_TAKES);
}

// The character that begins at a place, of a text with three more readable bytes.
DEVICE uint32_t character_from(const uint8_t* text) {
    uint32_t first = text[0];
    if (first < 0x80) return first;
    if (first < 0xE0) return (first & 0x1F) << 6 | (text[1] & 0x3F);
    uint32_t three = (first & 0xF) << 12 | (text[1] & 0x3F) << 6 | (text[2] & 0x3F);
    return first < 0xF0 ? three : (three & 0x7FFF) << 6 | (text[3] & 0x3F);
}

// The kind for NFC of the character before a place.
DEVICE uint32_t kind_before(const Job& job, uint64_t place) {
    if (place == 0) return 0;
    uint64_t begin = place - 1;
    while (begin > 0 && place - begin < 4 && (job.batch.text[begin] & 0xC0) == 0x80) begin--;
    return kind_of_character(job, character_from(job.batch.text + begin));
}

// Whether NFC may change the character of several bytes that begins at a place.
DEVICE bool may_change_at(const Job& job, uint64_t place) {
    if (!(job.pretokenizer.composed_leads >> (job.batch.text[place] & 63) & 1)) return false;
    uint32_t kind = kind_of_character(job, character_from(job.batch.text + place));
    if (!(kind & ~COMPOSED_TAKES) || !may_change(kind_before(job, place), kind)) return false;
    bool begins_row = static_cast<uint64_t>(job.rows.row_begins[row_of(job, place)]) == place;
    return !begins_row || kind & COMPOSED_CHANGES;
}

// Sets STATUS_NOT_COVERED where NFC may change a text; a thread looks at 16 bytes.
DEVICE void check_composed_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK * 16;
    uint64_t from = (static_cast<uint64_t>(block) * BLOCK + threadIdx.x) * 16;
    for (uint64_t begin = from; begin < job.batch.num_bytes; begin += stride) {
        uint4 vector = *reinterpret_cast<const uint4*>(job.batch.text + begin);
        // The top bit of a byte is left where the next one is set, too: a character of several bytes begins.
        const uint32_t words[4] = {vector.x & vector.x << 1, vector.y & vector.y << 1, vector.z & vector.z << 1,
                                   vector.w & vector.w << 1};
        for (uint32_t first = upper_bits(words); first; first &= first - 1) {
            uint64_t place = begin + lowest_bit(first);
            if (place < job.batch.num_bytes && may_change_at(job, place)) job.answer.status[STATUS_NOT_COVERED] = 1;
        }
    }
}

}  // namespace warptok::text
