// Checks whether a text is UTF-8, and whether NFC leaves it as it is.
#pragma once

#include "characters.hpp"

namespace text {

// Returns whether the bytes are UTF-8: the shortest form, without surrogates, up to U+10FFFF.
inline bool is_utf8_by_characters(const uint8_t* at, const uint8_t* end) {
    while (at < end) {
        if (end - at >= 8) {
            uint64_t word;
            std::memcpy(&word, at, 8);
            if (!(word & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        if (*at < 0x80) {
            at++;
            continue;
        }
        int num_bytes = *at >= 0xF0 ? 4 : *at >= 0xE0 ? 3 : 2;
        if (*at < 0xC2 || *at > 0xF4 || end - at < num_bytes) return false;
        for (int i = 1; i < num_bytes; i++)
            if ((at[i] & 0xC0) != 0x80) return false;
        uint32_t code_point = read_character(at).code_point;
        if (num_bytes == 3 && (code_point < 0x800 || (code_point >= 0xD800 && code_point < 0xE000))) return false;
        if (num_bytes == 4 && (code_point < 0x10000 || code_point > 0x10FFFF)) return false;
        at += num_bytes;
    }
    return true;
}

using IsUtf8 = bool (*)(const uint8_t* at, const uint8_t* end);

#if defined(__x86_64__)

// Checks 32 bytes at once, each with the byte before it. Three tables, each by half a byte, give the faults that it may
// be part of; a fault is real if all three give it. Two continuations in a row are a fault, unless the first byte of a
// character of three or four bytes is in front of them (Keiser and Lemire, Validating UTF-8 in less than one
// instruction per byte, 2021).
__attribute__((target("avx2"))) inline bool is_utf8_avx2(const uint8_t* at, const uint8_t* end) {
    enum Fault : uint8_t {
        TOO_SHORT = 1, TOO_LONG = 2, OVERLONG_3 = 4, TOO_LARGE = 8, SURROGATE = 16, OVERLONG_2 = 32,
        OVERLONG_4 = 64,              // And too large, from U+140000 on.
        TWO_CONTINUATIONS = 128,
        ANY_LOW = TOO_SHORT | TOO_LONG | TWO_CONTINUATIONS,
        LARGE_LOW = ANY_LOW | TOO_LARGE | OVERLONG_4,
        CONTINUATION = TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS,
    };
    alignas(16) static constexpr uint8_t FIRST_HIGH[16] = {
        TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG,
        TWO_CONTINUATIONS, TWO_CONTINUATIONS, TWO_CONTINUATIONS, TWO_CONTINUATIONS,
        TOO_SHORT | OVERLONG_2, TOO_SHORT, TOO_SHORT | OVERLONG_3 | SURROGATE, TOO_SHORT | TOO_LARGE | OVERLONG_4};
    alignas(16) static constexpr uint8_t FIRST_LOW[16] = {
        ANY_LOW | OVERLONG_2 | OVERLONG_3 | OVERLONG_4, ANY_LOW | OVERLONG_2, ANY_LOW, ANY_LOW, ANY_LOW | TOO_LARGE,
        LARGE_LOW, LARGE_LOW, LARGE_LOW, LARGE_LOW, LARGE_LOW, LARGE_LOW, LARGE_LOW, LARGE_LOW,
        LARGE_LOW | SURROGATE, LARGE_LOW, LARGE_LOW};
    alignas(16) static constexpr uint8_t SECOND_HIGH[16] = {
        TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT,
        CONTINUATION | OVERLONG_3 | OVERLONG_4, CONTINUATION | OVERLONG_3 | TOO_LARGE,
        CONTINUATION | SURROGATE | TOO_LARGE, CONTINUATION | SURROGATE | TOO_LARGE,
        TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT};
    constexpr int WIDTH = 32;
    auto load = [&](const uint8_t* from) __attribute__((target("avx2"))) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    };
    auto look_up = [&](const uint8_t* table, __m256i index) __attribute__((target("avx2"))) {
        __m128i half = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(half), _mm256_and_si256(index, _mm256_set1_epi8(15)));
    };
    const uint8_t* first = at;   // Bytes in front of it are not of the text.
    while (at < end && at - first < 3) {
        const uint8_t* begin = at++;
        while (at < end && (*at & 0xC0) == 0x80) at++;
        if (!is_utf8_by_characters(begin, at)) return false;
    }
    __m256i faults = _mm256_setzero_si256();
    for (; end - at >= WIDTH; at += WIDTH) {
        const __m256i own = load(at), before = load(at - 1), second_before = load(at - 2), third_before = load(at - 3);
        const __m256i any = _mm256_or_si256(_mm256_or_si256(own, before), _mm256_or_si256(second_before, third_before));
        if (!_mm256_movemask_epi8(any)) continue;
        __m256i found = look_up(FIRST_HIGH, _mm256_srli_epi16(before, 4));
        found = _mm256_and_si256(found, look_up(FIRST_LOW, before));
        found = _mm256_and_si256(found, look_up(SECOND_HIGH, _mm256_srli_epi16(own, 4)));
        const __m256i third_of_3 = _mm256_subs_epu8(second_before, _mm256_set1_epi8(0xE0 - 0x80));
        const __m256i fourth_of_4 = _mm256_subs_epu8(third_before, _mm256_set1_epi8(0xF0 - 0x80));
        const __m256i is_third_or_fourth = _mm256_and_si256(_mm256_or_si256(third_of_3, fourth_of_4),
                                                            _mm256_set1_epi8(static_cast<char>(TWO_CONTINUATIONS)));
        faults = _mm256_or_si256(faults, _mm256_xor_si256(found, is_third_or_fourth));
    }
    if (!_mm256_testz_si256(faults, faults)) return false;
    if (at > first) at--;
    while (at > first && (*at & 0xC0) == 0x80) at--;   // To where the last checked character begins.
    return is_utf8_by_characters(at, end);
}

inline IsUtf8 choose_is_utf8() { return __builtin_cpu_supports("avx2") ? is_utf8_avx2 : is_utf8_by_characters; }

#else

inline IsUtf8 choose_is_utf8() { return is_utf8_by_characters; }

#endif

// What a character is to NFC, as gpu/text/nfc_check.py makes it.
struct ComposedTable {
    const uint16_t* pages;   // [0x1100]
    const uint16_t* kinds;   // [pages, 256]

    static constexpr uint32_t CLASS = 0xFF, CHANGES = 1 << 8, JOINS = 1 << 9, TAKES = 1 << 10;

    uint32_t operator[](uint32_t code_point) const {
        return kinds[static_cast<size_t>(pages[code_point >> 8]) << 8 | (code_point & 0xFF)];
    }

    // Returns whether NFC certainly leaves a text as it is; gpu/cuda/text/pretokenize/nfc_check.cuh says why.
    bool leaves(const uint8_t* at, const uint8_t* end) const {
        uint32_t before = 0;
        while (at < end) {
            Character character = read_character(at);
            uint32_t kind = (*this)[character.code_point];
            uint32_t last = before & CLASS, own = kind & CLASS;
            bool may_change = (kind & CHANGES) || (own && last > own) || ((kind & JOINS) && (last || before & TAKES));
            if (may_change) return false;
            before = kind;
            at += character.num_bytes;
        }
        return true;
    }
};

}  // namespace text
