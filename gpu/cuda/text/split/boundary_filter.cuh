// Finds borders that no token of the vocabulary can cross, by the characters on either side.
//
// No merge crosses such a border, so it is a boundary of the encoding, and both sides are encoded apart
// (docs/internals/text-bpe.md, Certain boundaries).
//
// The filter has a bit for the hash of every two neighbouring characters of a token. If one of the two is incomplete in
// the token, the byte of it next to the other character stands for it. `byte_borders` has a bit for the two bytes
// between two incomplete characters, and for every two neighbouring ASCII characters. A superfluous bit only means that
// the text is not split at a border.
//
// Invariant: where a bit is clear no token has what it stands for; where it is set one may.
#pragma once
#include "common/hash.cuh"
#include "common/job.cuh"

namespace warptok::text {

constexpr uint32_t BORDER_BITS = 18;
constexpr uint32_t BORDER_WORDS = 1 << (BORDER_BITS - 5);
constexpr uint32_t BYTE_BORDER_WORDS = 65536 / 32;

// The filter, or copies of it in shared memory.
struct Filter {
    const uint32_t *borders, *byte_borders;
    uint32_t seed;
};

DEVICE bool has_bit(const uint32_t* words, uint32_t bit) { return words[bit >> 5] >> (bit & 31) & 1; }

DEVICE bool may_lie_across(const Filter& filter, uint32_t left, uint32_t right) {
    return has_bit(filter.borders, mixed(hash_pair(left, right, filter.seed)) >> (32 - BORDER_BITS));
}

// The character whose last byte is the top byte of `bytes`, its bytes from the top down, zeros below.
DEVICE uint32_t character_before(uint32_t bytes) {
    if (!(bytes & 0x80000000)) return bytes & 0xFF000000;
    if ((bytes & 0x00C00000) == 0x00C00000) return bytes & 0xFFFF0000;
    if ((bytes & 0x0000C000) == 0x0000C000) return bytes & 0xFFFFFF00;
    return bytes;
}

// The character whose first byte is the lowest byte of `bytes`, zeros above.
DEVICE uint32_t character_at(uint32_t bytes) {
    if (!(bytes & 0x80)) return bytes & 0xFF;
    if ((bytes & 0xE0) == 0xC0) return bytes & 0xFFFF;
    return (bytes & 0xF0) == 0xE0 ? bytes & 0xFFFFFF : bytes;
}

// Whether the border in front of a byte is certain; before and behind are the 4 bytes on either side of
// it, in the order of memory. All four bits are loaded at once, so that their latencies overlap.
DEVICE bool is_certain(const Filter& filter, uint32_t before, uint32_t behind) {
    uint32_t left = character_before(before), right = character_at(behind);
    uint32_t last = before & 0xFF000000, first = behind & 0xFF;
    return !(has_bit(filter.byte_borders, last >> 16 | first) | may_lie_across(filter, left, right) |
             may_lie_across(filter, left, first) | may_lie_across(filter, last, right));
}

}  // namespace warptok::text
