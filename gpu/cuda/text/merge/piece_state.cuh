// The state of the pieces that a warp merges, in shared memory; LANES lanes share a piece.
//
// Each lane has room for 16 places, so that a piece has 16 * LANES. At every place where a symbol
// begins lie two words:
//
//     word   symbol | its bytes << WORD_BITS; the same at the symbol's last place
//     key    rank << PLACE_BITS | place of the pair with the symbol behind it, or NO_KEY
//
// The lowest key is that of the pair to merge next: the lowest rank, and the leftmost of equal ranks. The lengths lead
// to a symbol's neighbours; the symbol behind it reads the word at its last place:
//
//     place     0    1    2    3    4          ab = merge of rank 7 (symbol 263)
//     word    263/2  /2  263/2 /2  c/1         places 1 and 3 matter by their lengths only
//     key     abab        -         -
//
// The keys of a piece are contiguous, but their groups of four are permuted so that all lanes of a warp read four keys
// each without bank conflicts. Words of the same place of all pieces are side by side.
#pragma once
#include "text/merge/pair_ranks.cuh"

namespace warptok::text {

constexpr uint32_t NO_KEY = 0xFFFFFFFF;
constexpr uint32_t PLACE_BITS = 8;
constexpr uint32_t WORD_BITS = 22;  // One more than a symbol's, so that words can be added.
constexpr uint32_t WARP_PLACES = 32 * 16;

struct Columns {
    alignas(16) uint32_t keys[WARP_PLACES];
    uint32_t words[WARP_PLACES];
};

DEVICE uint32_t key_of(uint32_t rank, uint32_t place) {
    return rank == NO_RANK ? NO_KEY : rank << PLACE_BITS | place;
}

DEVICE uint32_t length_of(uint32_t word) { return word >> WORD_BITS; }
DEVICE uint32_t symbol_of(uint32_t word) { return word & ((1u << WORD_BITS) - 1); }

// The columns of one piece, as one of its lanes sees them. Lanes own groups of four places in turn: group f is that of
// lane f % LANES, in its slot f / LANES.
template <uint32_t LANES> struct Group {
    static constexpr uint32_t GROUPS = 32 / LANES;  // Pieces of a warp.
    uint32_t *keys, *words;
    uint32_t number, member;  // Of the group in the warp, of the lane in the group.
    uint32_t first_key;       // Where the piece's keys begin, and how its fours are permuted, joined.

    DEVICE_METHOD explicit Group(Columns& columns)
        : keys(columns.keys), number(threadIdx.x % 32 / LANES), member(threadIdx.x % LANES) {
        constexpr uint32_t FOURS = LANES < 2 ? 4 : 8;  // Of a piece in 32 banks; two pieces of a lane.
        words = columns.words + number;
        first_key = number * 16 * LANES + number * LANES / (8 / FOURS) % FOURS * 4;
    }

    DEVICE_METHOD uint32_t first_of(uint32_t slot) const { return 4 * (slot * LANES + member); }
    // This lane's keys of the four places from first_of(slot) on.
    DEVICE_METHOD uint4& four_keys(uint32_t slot) {
        return *reinterpret_cast<uint4*>(keys + (first_of(slot) ^ first_key));
    }
    DEVICE_METHOD uint32_t& key(uint32_t place) { return keys[place ^ first_key]; }
    DEVICE_METHOD uint32_t& word(uint32_t place) { return words[place * GROUPS]; }
};

// The bytes of a text from a place on, a multiple of 4.
DEVICE FiveBytes five_bytes(const uint8_t* text, uint32_t place) {
    uint64_t address = reinterpret_cast<uint64_t>(text);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~3ull) + place / 4;
    uint32_t shift = (address & 3) * 8, low = __ldg(aligned), high = __ldg(aligned + 1);
    return {shift_right(low, high, shift), high >> shift & 0xFF};
}

// The lowest key of a lane's own places.
template <uint32_t LANES, uint32_t SLOTS> DEVICE uint32_t lowest_of_lane(Group<LANES>& group) {
    uint32_t lowest = NO_KEY;
#pragma unroll
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        uint4 four = group.four_keys(slot);
        lowest = min_of(lowest, min_of(min_of(four.x, four.y), min_of(four.z, four.w)));
    }
    return lowest;
}

// The lowest key of a group's lanes; all of them get it.
template <uint32_t LANES> DEVICE uint32_t lowest_of_group(uint32_t lowest) {
#pragma unroll
    for (uint32_t distance = 1; distance < LANES; distance *= 2)
        lowest = min_of(lowest, __shfl_xor_sync(ALL_LANES, lowest, distance));
    return lowest;
}

}  // namespace warptok::text
