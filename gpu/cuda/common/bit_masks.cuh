// The places of a lane as bits of a word: the next one, the one before, every other one.
//
// Only some places are `alive`. What lies in between is ones where an addition is to run through:
//
//     alive          . . 1 . . 1 1 . 1        bits      . . . . . 1 . . 1      from the highest on
//     ~alive         1 1 0 1 1 0 0 1 0      + bits << 1 . . . . 1 . . 1 .
//     sum & alive    . . 1 . . . 1 . .        which stand behind them
#pragma once
#include "common/platform.cuh"

// The next one of `alive` behind each of `bits`, which are some of them: a carry runs up to it.
DEVICE uint32_t behind_of(uint32_t alive, uint32_t bits) { return (~alive + (bits << 1)) & alive; }

// The one in front of each.
DEVICE uint32_t before_of(uint32_t alive, uint32_t bits) {
    return reversed_bits(behind_of(reversed_bits(alive), reversed_bits(bits)));
}

// The first, third ... of bits.
DEVICE uint32_t odd_ones(uint32_t bits) {
    uint32_t parity = bits;  // Of how many there are up to a bit.
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) parity ^= parity << distance;
    return bits & parity;
}

// Of pairs that go on with a chain (`equal`) takes every other one, behind the first, which is taken; returns
// all pairs of these chains. A carry runs through a chain from its second pair on.
DEVICE uint32_t follow_chains(uint32_t alive, uint32_t equal, uint32_t& merged) {
    uint32_t odd = odd_ones(alive), passed = equal | ~alive;
    uint32_t behind_odd = equal & ~(passed + (behind_of(alive, merged & odd) & equal));
    uint32_t behind_even = equal & ~(passed + (behind_of(alive, merged & ~odd) & equal));
    merged |= (behind_odd & odd) | (behind_even & ~odd);
    return merged | behind_odd | behind_even;
}

// The upper bits of bytes that are not 0; other bits are of no meaning.
DEVICE uint32_t nonzero_bytes(uint32_t word) { return ((word & 0x7F7F7F7F) + 0x7F7F7F7F) | word; }
