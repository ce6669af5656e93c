// Finds the first byte of each row that is not UTF-8, as Python's bytes.decode names it.
//
// A byte is *bad* if it begins a character that is incomplete or not allowed, or if it continues a character (10xxxxxx)
// and no character before it reaches that far. A decoder stops at the first bad byte of a row.
//
//     E4 B8 AD | E4 B8 | 41 80      a character; one that its row's end cuts off; A and a stray byte
//                ^            ^
//
// Invariant: only whole characters stand before a row's first bad byte, so that it is the byte that Python names.
#pragma once
#include "batch/rows.cuh"

// Bits of 32 places: at begin + i a row begins or the batch ends. The hard bits of special tokens do no harm, as no
// whole character crosses one.
DEVICE uint32_t row_borders(const Job& job, uint64_t begin) {
    uint64_t word = begin / 64, shift = begin % 64, words = (job.batch.num_bytes + 63) / 64;
    uint64_t bits = word < words ? job.batch.hard[word] >> shift : 0;
    if (shift > 32 && word + 1 < words) bits |= job.batch.hard[word + 1] << (64 - shift);
    if (begin + 32 > job.batch.num_bytes)
        bits |= begin < job.batch.num_bytes ? ~0ull << (job.batch.num_bytes - begin) : ~0ull;
    return static_cast<uint32_t>(bits);
}

// Whether UTF-8 allows a character of two to four bytes, which no border splits.
DEVICE bool is_allowed(uint32_t bytes, uint32_t length) {
    uint32_t first = bytes & 0xFF, second = bytes >> 8 & 0xFF;
    if (first < 0xC2 || first > 0xF4) return false;
    if (first == 0xE0 && second < 0xA0) return false;   // Shorter ones spell the same.
    if (first == 0xED && second > 0x9F) return false;   // Surrogates.
    if (first == 0xF0 && second < 0x90) return false;
    if (first == 0xF4 && second > 0x8F) return false;   // Behind U+10FFFF.
    uint32_t rest = 0xFFFFFF00u >> (32 - 8 * length);
    return (bytes & 0xC0C0C000u & rest) == (0x80808000u & rest);
}

// Whether a byte is bad. `before` holds the three bytes before it, the nearest one highest; bit i of `borders` is the
// place i - 2 bytes behind it.
DEVICE bool is_bad(uint32_t before, uint32_t bytes, uint32_t borders) {
    uint32_t first = bytes & 0xFF;
    if (first < 0x80) return false;
    if (first < 0xC0) {
        if (!(borders & 4) && before >> 24 >= 0xC0) return false;
        if (!(borders & 6) && (before >> 16 & 0xFF) >= 0xE0) return false;
        return (borders & 7) || (before >> 8 & 0xFF) < 0xF0;
    }
    uint32_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    bool is_cut = borders >> 3 & ((1u << (length - 1)) - 1);
    return is_cut || !is_allowed(bytes, length);
}

// Notes the first bad byte of each row among sixteen bytes, which may lie in several rows. Bit i of `high` is set where
// byte i is not ASCII.
DEVICE void check_sixteen(const Job& job, uint64_t begin, uint32_t high) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(job.batch.text + begin);
    uint32_t borders = begin < 2 ? row_borders(job, 0) << 2 : row_borders(job, begin - 2), noted = 32;
    for (; high; high &= high - 1) {
        uint32_t i = lowest_bit(high), word = words[i / 4], shift = i % 4 * 8;
        if (begin + i >= job.batch.num_bytes) return;
        if (noted < i && !(borders >> (noted + 3) & ((1u << (i - noted)) - 1))) continue;  // It is the same row.
        uint32_t before = shift_right(begin + i >= 4 ? *(words + i / 4 - 1) : 0, word, shift);
        if (!is_bad(before, shift_right(word, words[i / 4 + 1], shift), borders >> i)) continue;
        uint64_t place = begin + i;
        note_fault(job.rows.row_errors, row_of(job, place), static_cast<uint32_t>(place));
        noted = i;
    }
}

// Sets row_errors of the rows that are not UTF-8; a thread looks at 16 bytes.
DEVICE void validate_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK * 16;
    uint64_t first = (static_cast<uint64_t>(block) * BLOCK + threadIdx.x) * 16;
    for (uint64_t begin = first; begin < job.batch.num_bytes; begin += stride) {
        uint4 vector = *reinterpret_cast<const uint4*>(job.batch.text + begin);
        const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
        uint32_t high = upper_bits(words);
        if (high) check_sixteen(job, begin, high);
    }
}
