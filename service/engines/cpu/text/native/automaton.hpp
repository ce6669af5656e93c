// Finds one pretoken by the automaton that the kernels use (gpu/text/pretokenizer_rules.py), a character at a time.
//
// It handles every rule, every character and the end of a text, so it finds the pretokens that the masks of windows.hpp
// cannot find.
//
//     reads   a      \n     blank          blank          a
//     does    START  START  MARK                          COMMIT, START_PREV
//     ends    "a"    ...    "\n" ends at the marked place, when the last character is read
#pragma once

#include "characters.hpp"

namespace text {

// Entries of gpu.text.pretokenizer_automaton.
constexpr int ROW_STRIDE = 33, STATE_SHIFT = 2, ROW_END = 128;
constexpr uint32_t STATE = 31, START = 1u << 7, START_PREV = 1u << 15, MARKED = 1u << 23, COMMIT = 1u << 31;

struct Automaton {
    const uint32_t* entries;   // [rows, ROW_STRIDE]
    CharacterTable rows;       // The row of each code point.

    // Returns where the pretoken ends that begins at `begin`; the text ends at `end`.
    const uint8_t* find_end(const uint8_t* begin, const uint8_t* end) const {
        uint32_t state = 0;
        const uint8_t *before = begin, *marked = begin;
        for (const uint8_t* at = begin; at < end;) {
            Character character = read_character(at);
            uint32_t row = character.num_bytes == 1 ? character.code_point : rows[character.code_point];
            uint32_t entry = entries[row * ROW_STRIDE + state];
            if ((entry & COMMIT) && marked > begin) return marked;
            if ((entry & START_PREV) && before > begin) return before;
            if ((entry & START) && at > begin) return at;
            if (entry & MARKED) marked = at;
            state = entry >> STATE_SHIFT & STATE;
            before = at;
            at += character.num_bytes;
        }
        uint32_t entry = entries[ROW_END * ROW_STRIDE + state];
        if ((entry & COMMIT) && marked > begin) return marked;
        if ((entry & START_PREV) && before > begin) return before;
        return end;
    }
};

}  // namespace text
