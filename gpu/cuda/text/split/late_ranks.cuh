// Late ranks: a rank is late if the symbol that its merge gives may be in a pair of a lower rank.
//
// Where the lowest rank of all pairs is late, its pairs are merged from left to right. A pair is *loud* if its merge
// gives a pair of a lower rank. That one is the next to be merged, and so on: a symbol *grows* as long as a pair on
// either side of it has the rank or a lower one, the lower first. Then the next pair on the right follows, as nothing
// else has changed (docs/internals/text-bpe.md, Late ranks). Where no pair is loud all are merged at once.
//
//     ranks      ab 2   cab 0   abc 1
//     text       x  a  b  y  a  b  c  c  a  b  c   the lowest rank is 2
//     grown      x  ab    y  abc      cab      c   cab comes before abc
//
// Vocabularies trained as usual have no late ranks; Llama 3 has some.
//
// Invariant: when the next pair of a late rank is merged, no pair has a lower rank, and none in front of it has the
// rank.
#pragma once
#include "text/merge/pair_ranks.cuh"

namespace warptok::text {

constexpr uint32_t NO_PAIR = 0xFFFFFFFF;

// A rank and how far above it the bound of its merge lies, as gpu/text/bpe_tables.py writes it: 0 where the rank is
// late, else 5 bits and a power of two that they are times, rounded down. NO_RANK stays as it is.
constexpr uint32_t BOUND_BITS = 10, LATE = 0, HIGHEST = (1 << (32 - BOUND_BITS)) - 1;

DEVICE uint32_t bounded(const Job& job, uint32_t rank) {
    return rank == NO_RANK ? NO_RANK : rank << BOUND_BITS | __ldg(job.text.rank_bounds + rank);
}

DEVICE uint32_t rank_of_bounded(uint32_t word) { return word >> BOUND_BITS; }

DEVICE bool is_late(uint32_t word) { return word % (1 << BOUND_BITS) == LATE; }

// The lowest rank that a pair with the merged symbol can have; a value above HIGHEST where there is none.
DEVICE uint32_t bound_of(uint32_t word) {
    return (word >> BOUND_BITS) + ((word % 32) << (word / 32 % 32));  // Below 2^32.
}

// The limit of a round: it merges the pairs whose bounded ranks are below it, given the lowest rank and bound.
DEVICE uint32_t limit_of(uint32_t lowest, uint32_t bound) {
    return bound > rank_of_bounded(lowest) ? min_of(bound, HIGHEST) << BOUND_BITS : lowest + 1;
}

// Whether merging a pair of a rank to `merged` gives a pair of a lower one: with the symbols `before` and `behind`
// it, NO_PAIR where there are none, or with its like, as its neighbour may be such a pair.
DEVICE bool is_loud(const Job& job, uint32_t rank, uint32_t before, uint32_t behind) {
    uint32_t merged = FIRST_MERGED + rank;
    if (rank_of(job, merged, merged) < rank) return true;
    if (before != NO_PAIR && rank_of(job, before, merged) < rank) return true;
    return behind != NO_PAIR && rank_of(job, merged, behind) < rank;
}

// The place of `alive` behind and in front of a place, NO_PAIR where there is none: bit b of lane l is place
// 32 * l + b. The whole warp calls it.
DEVICE uint32_t place_behind(uint32_t alive, uint32_t place) {
    uint32_t filled = __ballot_sync(ALL_LANES, alive != 0), lane = place / 32;
    uint32_t own = __shfl_sync(ALL_LANES, alive, lane) & 0xFFFFFFFEu << place % 32;
    if (own) return 32 * lane + lowest_bit(own);
    filled &= 0xFFFFFFFEu << lane;
    lane = filled ? lowest_bit(filled) : 0;
    own = __shfl_sync(ALL_LANES, alive, lane);
    return filled ? 32 * lane + lowest_bit(own) : NO_PAIR;
}

DEVICE uint32_t place_before(uint32_t alive, uint32_t place) {
    uint32_t filled = __ballot_sync(ALL_LANES, alive != 0), lane = place / 32;
    uint32_t own = __shfl_sync(ALL_LANES, alive, lane) & ((1u << place % 32) - 1);
    if (own) return 32 * lane + highest_bit(own);
    filled &= (1u << lane) - 1;
    lane = filled ? highest_bit(filled) : 0;
    own = __shfl_sync(ALL_LANES, alive, lane);
    return filled ? 32 * lane + highest_bit(own) : NO_PAIR;
}

// Clears the bit of a place.
DEVICE uint32_t without_place(uint32_t bits, uint32_t place) {
    return (threadIdx.x & 31) == place / 32 ? bits & ~(1u << place % 32) : bits;
}

// A symbol that grows, at the place `first`; ranks of the pairs with its neighbours.
struct Growing {
    uint32_t symbol, first, before, behind;
    uint32_t rank_before, rank_behind;
};

// Looks up the two pairs of a growing symbol, a lane each.
template <class Symbols> DEVICE void rank_neighbours(const Job& job, const Symbols& symbols, Growing& grown) {
    uint32_t lane = threadIdx.x & 31, place = lane ? grown.behind : grown.before, rank = NO_RANK;
    if (lane < 2 && place != NO_PAIR) {
        uint32_t other = symbols.symbol(place);
        rank = rank_of(job, lane ? grown.symbol : other, lane ? other : grown.symbol);
    }
    grown.rank_before = __shfl_sync(ALL_LANES, rank, 0);
    grown.rank_behind = __shfl_sync(ALL_LANES, rank, 1);
}

// Merges the pairs of a late rank at the places `waiting`, lets the merged symbols grow, and returns the places that
// are left. The whole warp calls it. `alive` has the places of all symbols.
template <class Symbols>
DEVICE uint32_t grow_pairs(const Job& job, const Symbols& symbols, uint32_t alive, uint32_t waiting, uint32_t rank) {
    while (uint32_t filled = __ballot_sync(ALL_LANES, waiting != 0)) {
        uint32_t owner = lowest_bit(filled), own = __shfl_sync(ALL_LANES, waiting, owner);
        Growing grown = {FIRST_MERGED + rank, 32 * owner + lowest_bit(own), 0, 0, 0, 0};
        alive = without_place(alive, place_behind(alive, grown.first));
        waiting = without_place(waiting, grown.first);
        grown.before = place_before(alive, grown.first);
        grown.behind = place_behind(alive, grown.first);
        for (;;) {
            rank_neighbours(job, symbols, grown);
            uint32_t lowest = min_of(grown.rank_before, grown.rank_behind);
            if (lowest > rank) break;
            grown.symbol = FIRST_MERGED + lowest;
            if (grown.rank_before == lowest) {  // Of equal ones the leftmost.
                alive = without_place(alive, grown.first);
                grown.first = grown.before;
                grown.before = place_before(alive, grown.first);
            } else {
                alive = without_place(alive, grown.behind);
                grown.behind = place_behind(alive, grown.first);
            }
        }
        __syncwarp();  // All have read what stood there.
        if ((threadIdx.x & 31) == 0) {
            symbols.put(grown.first, grown.symbol, bounded(job, grown.rank_behind));
            if (grown.before != NO_PAIR) symbols.put_rank(grown.before, bounded(job, grown.rank_before));
        }
        waiting &= alive;
        __syncwarp();
    }
    return alive;
}

}  // namespace warptok::text
