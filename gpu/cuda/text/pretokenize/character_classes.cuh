// Converts bytes of text to rows of an automaton's table (gpu/text/pretokenizer_automaton.py).
//
// An ASCII character is its own row. Of any other character the first byte becomes the row of its class, and the other
// bytes become ROW_INNER, which changes no state:
//
//     bytes   'a'  E4  B8  AD  ' '
//     rows     97 137 129 129   32
//
// Bytes that are no UTF-8 become some rows; none leads outside of the text and its padding.
#pragma once
#include "common/job.cuh"

namespace warptok::text {

constexpr uint32_t ROW_END = 128, ROW_INNER = 129, MAX_ROWS = ROW_END + 32;
constexpr uint32_t ONE_ROW = 1 << 15;      // In `pages`: the whole page is in the row of the low byte.

struct Reader {  // What every thread reads from.
    const uint8_t* text;
    uint64_t num_bytes;
    const uint64_t* hard;
    const uint32_t* entries;     // uint32[128 + classes][ROW_STRIDE], a copy in shared memory.
    const uint16_t* pages;       // See gpu/text/pretokenizer_automaton.py.
    const uint8_t* page_rows;
};

// The eight bits of a text's borders from `place` on, a multiple of 8.
DEVICE uint32_t hard_byte(const Reader& reader, uint64_t place) {
    return reinterpret_cast<const uint8_t*>(reader.hard)[place / 8];
}

DEVICE bool is_hard(const Reader& reader, uint64_t place) {
    return hard_byte(reader, place) >> (place % 8) & 1;
}

// The row of the character whose bytes a word begins with, the first lowest.
DEVICE uint32_t table_row(const Reader& reader, uint32_t bytes) {
    uint32_t first = bytes & 0xFF, second = bytes >> 8 & 0x3F, third = bytes >> 16 & 0x3F;
    if (first < 0x80) return first;
    uint32_t code_point = (first & 0x1F) << 6 | second;
    if (first >= 0xE0) code_point = (first & 0xF) << 12 | second << 6 | third;
    if (first >= 0xF0) {
        code_point = (first & 0x7) << 18 | second << 12 | third << 6 | (bytes >> 24 & 0x3F);
        code_point = min_of(code_point, 0x10FFFF);
    }
    uint32_t page = __ldg(reader.pages + (code_point >> 8));
    return page & ONE_ROW ? page & 0xFF : __ldg(reader.page_rows + (page << 8 | (code_point & 0xFF)));
}

DEVICE uint32_t table_row_at(const Reader& reader, uint64_t place) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(reader.text) + place / 4;
    return table_row(reader, shift_right(words[0], words[1], place % 4 * 8));
}

// Whether a byte begins no character.
DEVICE bool is_inner(const Reader& reader, uint64_t place) { return reader.text[place] >> 6 == 2; }

// The rows of the four bytes at a place, if they are known without looking any up.
DEVICE bool four_rows_at(const Reader& reader, uint64_t place, uint32_t& rows) {
    if (place % 4) return false;
    rows = *reinterpret_cast<const uint32_t*>(reader.text + place);
    return !(rows & 0x80808080);  // ASCII characters are their rows.
}

// Four bytes of text as rows; `next` are the four behind them.
DEVICE uint32_t to_rows(const Reader& reader, uint32_t word, uint32_t next) {
    uint32_t high = word & 0x80808080, firsts = high & word << 1;
    uint32_t inner = (high >> 7) * ROW_INNER, rows = (word & ~((high >> 7) * 0xFF)) | inner;
    for (; firsts; firsts &= firsts - 1) {
        uint32_t shift = lowest_bit(firsts) - 7;
        uint32_t row = table_row(reader, shift_right(word, next, shift));
        rows ^= (row ^ ROW_INNER) << shift;
    }
    return rows;
}

// The eight bytes at a place, a multiple of 8, as rows.
DEVICE uint2 eight_rows_at(const Reader& reader, uint64_t place) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(reader.text + place);
    uint2 eight = {words[0], words[1]};
    if ((eight.x | eight.y) & 0x80808080)
        eight = {to_rows(reader, eight.x, eight.y), to_rows(reader, eight.y, words[2])};
    return eight;
}

// A mask of the first `count` bytes of a word.
DEVICE uint32_t first_bytes(uint32_t count) { return count < 4 ? (1u << count * 8) - 1 : 0xFFFFFFFF; }

// The bits of the bytes of a word of rows that are ROW_INNER.
DEVICE uint32_t inner_bytes(uint32_t rows) {
    uint32_t other = rows ^ ROW_INNER * 0x01010101;
    uint32_t equal = ~(((other & 0x7F7F7F7F) + 0x7F7F7F7F) | other) & 0x80808080;
    return (equal >> 7) * 0x01020408 >> 24 & 0xF;
}

// Sixteen bytes as rows; those behind `length` are ROW_INNER. `next` are the four behind them.
DEVICE uint4 to_rows(const Reader& reader, uint4 words, uint32_t next, uint32_t length) {
#pragma unroll 1
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t rows = to_rows(reader, words.x, i < 3 ? words.y : next), inside = first_bytes(length);
        rows = (rows & inside) | (ROW_INNER * 0x01010101 & ~inside);
        words = {words.y, words.z, words.w, rows};
        length = length < 4 ? 0 : length - 4;
    }
    return words;
}

// The sixteen bytes at a place, a multiple of 16, as rows; only the first `length` are in the text.
DEVICE uint4 rows_at(const Reader& reader, uint64_t place, uint32_t length) {
    const uint4* vectors = reinterpret_cast<const uint4*>(reader.text + place);
    uint4 words = vectors[0];
    if (!((words.x | words.y | words.z | words.w) & 0x80808080) && length == 16) return words;
    return to_rows(reader, words, length == 16 ? vectors[1].x : 0, length);
}

// A reader of rows that lie in shared memory already; bytes further away are looked up as by Reader.
struct StagedReader : Reader {
    const uint8_t* rows;                   // Of the bytes from `first` to `end`, both multiples of 16.
    uint64_t first, end;

    DEVICE_METHOD const uint8_t* at(uint64_t place) const { return rows + (place - first); }
};

DEVICE bool is_inner(const StagedReader& reader, uint64_t place) {
    if (place >= reader.end) return is_inner(static_cast<const Reader&>(reader), place);
    return *reader.at(place) == ROW_INNER;
}

DEVICE uint32_t table_row_at(const StagedReader& reader, uint64_t place) {
    if (place >= reader.end) return table_row_at(static_cast<const Reader&>(reader), place);
    return *reader.at(place);
}

DEVICE bool four_rows_at(const StagedReader& reader, uint64_t place, uint32_t& rows) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(reader.at(place - place % 4));
    rows = shift_right(words[0], words[1], place % 4 * 8);
    return true;
}

DEVICE uint2 eight_rows_at(const StagedReader& reader, uint64_t place) {
    return *reinterpret_cast<const uint2*>(reader.at(place));
}

DEVICE uint4 rows_at(const StagedReader& reader, uint64_t place, uint32_t) {
    return *reinterpret_cast<const uint4*>(reader.at(place));
}

}  // namespace warptok::text
