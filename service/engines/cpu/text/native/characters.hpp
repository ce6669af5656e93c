// The classes of characters, and masks of the classes of 64 bytes.
//
//     text        I t ' s _ 3   p m \n
//     letter      1 1 . 1 . .   1 1 .        a bit for each byte; a character's bytes all have its bit
//     quote       . . 1 . . .   . . .
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace text {

// Bits of a character's class, as service/engines/cpu/text/tables.py makes them.
enum Class : uint8_t {
    LETTER = 1,     // \p{L}
    DIGIT = 2,      // \p{N}
    SPACE = 4,      // \s
    MARK = 8,       // \p{M}
    UPPER = 16,     // \p{Lu} \p{Lt}
    LOWER = 32,     // \p{Ll}
    FOLDED = 64,    // Not ASCII, but equal to a letter of a contraction without regard to case.
};

struct Character {
    uint32_t code_point;
    int num_bytes;
};

// Reads a character of valid UTF-8. The attribute is for GCC 13, which would call it.
__attribute__((always_inline)) inline Character read_character(const uint8_t* at) {
    uint32_t lead = at[0];
    if (lead < 0x80) return {lead, 1};
    if (lead < 0xE0) return {(lead & 0x1F) << 6 | (at[1] & 0x3Fu), 2};
    if (lead < 0xF0) return {(lead & 0x0F) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu), 3};
    return {(lead & 0x07) << 18 | (at[1] & 0x3Fu) << 12 | (at[2] & 0x3Fu) << 6 | (at[3] & 0x3Fu), 4};
}

// A byte for each code point; equal pages of 256 code points are stored once.
struct CharacterTable {
    const uint16_t* pages;   // [0x1100]
    const uint8_t* values;   // [pages, 256]

    uint8_t operator[](uint32_t code_point) const {
        return values[static_cast<size_t>(pages[code_point >> 8]) << 8 | (code_point & 0xFF)];
    }
};

// Masks of 64 bytes: bit i is for byte i. Bytes that are not ASCII have a bit in `high` alone.
struct AsciiMasks {
    uint64_t letter, upper, digit, space, blank, line, quote, slash, high;
};

using MakeMasks = void (*)(const uint8_t* at, AsciiMasks& masks);

inline void make_masks_anywhere(const uint8_t* at, AsciiMasks& masks) {
    masks = {};
    for (int i = 0; i < 64; i++) {
        uint64_t bit = uint64_t{1} << i;
        uint8_t c = at[i];
        auto is = [&](bool flag) { return flag ? bit : 0; };
        masks.letter |= is(static_cast<uint8_t>((c | 0x20) - 'a') < 26);
        masks.upper |= is(static_cast<uint8_t>(c - 'A') < 26);
        masks.digit |= is(static_cast<uint8_t>(c - '0') < 10);
        masks.space |= is(c == ' ' || static_cast<uint8_t>(c - 9) < 5);
        masks.blank |= is(c == ' ');
        masks.line |= is(c == '\n' || c == '\r');
        masks.quote |= is(c == '\'');
        masks.slash |= is(c == '/');
        masks.high |= is(c >= 0x80);
    }
}

#if defined(__x86_64__)

// Every x86-64 processor has SSE2. Adding 128 - n to an unsigned byte compares as signed with n.
inline void make_masks_sse2(const uint8_t* at, AsciiMasks& masks) {
    masks = {};
    for (int part = 0; part < 4; part++) {
        const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * part));
        auto put = [&](uint64_t& mask, __m128i found) {
            mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(found))) << (16 * part);
        };
        auto within = [](__m128i value, int first, int count) {
            __m128i moved = _mm_sub_epi8(value, _mm_set1_epi8(static_cast<char>(first + 128)));
            return _mm_cmplt_epi8(moved, _mm_set1_epi8(static_cast<char>(count - 128)));
        };
        auto equal = [&](int value) { return _mm_cmpeq_epi8(c, _mm_set1_epi8(static_cast<char>(value))); };
        put(masks.letter, within(_mm_or_si128(c, _mm_set1_epi8(0x20)), 'a', 26));
        put(masks.upper, within(c, 'A', 26));
        put(masks.digit, within(c, '0', 10));
        put(masks.space, _mm_or_si128(equal(' '), within(c, 9, 5)));
        put(masks.blank, equal(' '));
        put(masks.line, _mm_or_si128(equal('\n'), equal('\r')));
        put(masks.quote, equal('\''));
        put(masks.slash, equal('/'));
        put(masks.high, c);
    }
}

__attribute__((target("avx2"))) inline void make_masks_avx2(const uint8_t* at, AsciiMasks& masks) {
    masks = {};
    for (int part = 0; part < 2; part++) {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32 * part));
        const __m256i lowest = _mm256_set1_epi8(-128);
        auto put = [&](uint64_t& mask, __m256i found) __attribute__((target("avx2"))) {
            mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(found))) << (32 * part);
        };
        auto within = [&](__m256i value, int first, int count) __attribute__((target("avx2"))) {
            __m256i moved = _mm256_add_epi8(_mm256_sub_epi8(value, _mm256_set1_epi8(static_cast<char>(first))), lowest);
            return _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(count - 128)), moved);
        };
        auto equal = [&](int value) __attribute__((target("avx2"))) {
            return _mm256_cmpeq_epi8(c, _mm256_set1_epi8(static_cast<char>(value)));
        };
        put(masks.letter, within(_mm256_or_si256(c, _mm256_set1_epi8(0x20)), 'a', 26));
        put(masks.upper, within(c, 'A', 26));
        put(masks.digit, within(c, '0', 10));
        put(masks.space, _mm256_or_si256(equal(' '), within(c, 9, 5)));
        put(masks.blank, equal(' '));
        put(masks.line, _mm256_or_si256(equal('\n'), equal('\r')));
        put(masks.quote, equal('\''));
        put(masks.slash, equal('/'));
        put(masks.high, c);
    }
}

inline MakeMasks choose_make_masks() { return __builtin_cpu_supports("avx2") ? make_masks_avx2 : make_masks_sse2; }

#else

inline MakeMasks choose_make_masks() { return make_masks_anywhere; }

#endif

}  // namespace text
