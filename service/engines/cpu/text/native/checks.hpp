// Checks whether a text is UTF-8, and whether NFC leaves it as it is.
#pragma once

#include "characters.hpp"

namespace text {

// Returns whether the bytes are UTF-8: the shortest form, without surrogates, up to U+10FFFF.
inline bool is_utf8(const uint8_t* at, const uint8_t* end) {
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
