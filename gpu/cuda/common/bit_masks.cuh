// Finds neighbours among the set bits of a word: the next bit, the bit before, and every other bit of a chain.
//
// Only the bits of `alive` count. An addition finds the next one: the bits in between are set to ones, so that a carry
// runs through them.
//
//     alive          . . 1 . . 1 1 . 1        bits      . . . . . 1 . . 1      from the highest on
//     ~alive         1 1 0 1 1 0 0 1 0      + bits << 1 . . . . 1 . . 1 .
//     sum & alive    . . 1 . . . 1 . .        the next ones
#pragma once
#include "common/platform.cuh"

// The next bit of `alive` behind each of `bits`, which are some of them.
DEVICE uint32_t behind_of(uint32_t alive, uint32_t bits) { return (~alive + (bits << 1)) & alive; }

// The bit of `alive` in front of each of `bits`.
DEVICE uint32_t before_of(uint32_t alive, uint32_t bits) {
    return reversed_bits(behind_of(reversed_bits(alive), reversed_bits(bits)));
}

// The first, third, fifth ... of the set bits.
DEVICE uint32_t odd_ones(uint32_t bits) {
    uint32_t parity = bits;  // Whether the number of bits up to each place is odd.
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) parity ^= parity << distance;
    return bits & parity;
}

// Follows chains of pairs. `merged` has the first pair of each chain, `equal` the pairs that continue one. Adds every
// other pair of each chain to `merged`, and returns all pairs of these chains. A carry runs through each chain from its
// second pair on; chains that begin at odd and at even bits are followed apart.
DEVICE uint32_t follow_chains(uint32_t alive, uint32_t equal, uint32_t& merged) {
    uint32_t odd = odd_ones(alive), passed = equal | ~alive;
    uint32_t behind_odd = equal & ~(passed + (behind_of(alive, merged & odd) & equal));
    uint32_t behind_even = equal & ~(passed + (behind_of(alive, merged & ~odd) & equal));
    merged |= (behind_odd & odd) | (behind_even & ~odd);
    return merged | behind_odd | behind_even;
}

// The upper bit of each byte that is not 0; other bits mean nothing.
DEVICE uint32_t nonzero_bytes(uint32_t word) { return ((word & 0x7F7F7F7F) + 0x7F7F7F7F) | word; }
