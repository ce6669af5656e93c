// Byte-pair encoding of a window of up to WINDOW_BYTES bytes by a warp, in rounds.
//
// Each round has a *bound*: merging any present pair gives no pair of a rank below the bound. So a round merges every
// pair below the bound that has a lower rank than the pairs on both sides, since nothing can change it before
// (docs/internals/text-bpe.md, Bounded rounds). Of overlapping pairs of one rank ("aaaa") every other one is merged,
// from the left; if a pair of lower rank is in front of them, they wait.
//
//     rank     7   3   9   5   5   5   8          bound 9: 3 is merged, and the first and third 5
//     text     a   b   c   d   e   e   e   f      the 7 and the 9 are gone then
//
// Some ranks are late: the symbol that their merge gives is in a pair of a lower rank. If the lowest rank is late, a
// round merges its pairs one after the other, and after each one the pairs of lower ranks that it gives
// (text/split/late_ranks.cuh).
//
// Invariant: between two rounds, merging on from the symbols that are left gives enc of the bytes.
#pragma once
#include "text/split/window_state.cuh"

namespace warptok::text {

// A *chain* is pairs of one rank, one directly behind the other, of which every other one is merged. What a lane knows
// of the last pair at its places:
constexpr uint32_t LAST_PASSED = 0;        // It stays,
constexpr uint32_t LAST_MERGED = 1;        // it is merged, so that the next one of its chain stays;
constexpr uint32_t LAST_WAITS = 2;         // it is in no chain that is merged in this round.

// The chains at a lane's places.
struct Chains {
    uint32_t merged;           // Every other one from where a chain begins.
    uint32_t beaten;           // A lower pair stands behind it.
    uint32_t open;             // Those that go on with a chain of a lane before,
    uint32_t is_open;          // and whether all of the lane's do.
    uint32_t state;            // LAST_*, if not all do.
};

// Finds the chains among the pairs of a lane; ranks of `limit` or more count as no pair. First come the heads of
// chains, which are merged; then the pairs that go on with a chain of a lane before (`open`); then those that follow
// the lane's own heads.
DEVICE Chains chains_of_lane(const WarpColumns& columns, const LanePart& part, const Neighbours& others,
                             uint32_t limit) {
    uint32_t alive = part.alive, first = alive & (0 - alive), lower = part.lower, equal = part.equal & ~first;
    if (!alive) return {0, 0, 0, 1, 0};
    uint32_t before = others.before == NO_PAIR ? NO_RANK : columns.ranks[others.before];
    uint32_t rank = columns.ranks[index_of(lowest_bit(alive))], last = highest_bit(alive);
    if (rank < before) lower |= first;
    if (rank == before && rank < limit) equal |= first;  // Else their chain waits.
    Chains chains = {0, before_of(alive, part.lower), 0, 0, 0};
    for (uint32_t bits = lower & ~chains.beaten; bits; bits &= bits - 1)
        if (columns.ranks[index_of(lowest_bit(bits))] < limit) chains.merged |= bits & (0 - bits);
    if (equal & first) {
        uint32_t others_than = alive & ~equal;
        chains.open = others_than ? equal & ((others_than & (0 - others_than)) - 1) : equal;
        chains.is_open = !others_than;
    }
    uint32_t chained = follow_chains(alive, equal & ~chains.open, chains.merged);
    chains.state = chains.merged >> last & 1 ? LAST_MERGED : chained >> last & 1 ? LAST_PASSED : LAST_WAITS;
    if (others.behind != NO_PAIR && columns.ranks[others.behind] < columns.ranks[index_of(last)])
        chains.beaten |= 1u << last;
    return chains;
}

// The pairs at a lane's places that a round merges: those lower than `limit` and than the pairs beside them. A chain
// that comes from a lane before is followed by counting: a lane whose pairs are all of the chain swaps merged and
// passed pairs if their number is odd.
//
//     lane        0       1       2
//     ranks       9 5 5   5 5 5   5 8        a chain of six, from the first 5 on
//     state       PASSED  is_open WAITS
//     taken       . 1 .   1 . 1   . .        lane 1 begins with a taken one, as lane 0 ends with one that stays;
//                                            lane 2 with one that stays: lane 1 has an odd number
DEVICE uint32_t pairs_of_round(const WarpColumns& columns, const LanePart& part, const Neighbours& others,
                               uint32_t limit) {
    Chains chains = chains_of_lane(columns, part, others, limit);
    if (__any_sync(ALL_LANES, chains.open != 0)) {
        uint32_t before = (1u << (threadIdx.x & 31)) - 1;
        uint32_t known = __ballot_sync(ALL_LANES, !chains.is_open) & before;
        uint32_t odd = __ballot_sync(ALL_LANES, chains.is_open && count_bits(chains.open) & 1) & before;
        uint32_t merged = __ballot_sync(ALL_LANES, chains.state == LAST_MERGED);
        uint32_t waits = __ballot_sync(ALL_LANES, chains.state == LAST_WAITS);
        if (known && chains.open && !(waits >> highest_bit(known) & 1)) {
            uint32_t last = highest_bit(known), is_merged = merged >> last ^ count_bits(odd & bits_above(last));
            uint32_t odd_open = odd_ones(chains.open);
            chains.merged |= is_merged & 1 ? chains.open & ~odd_open : odd_open;
        }
    }
    return chains.merged & ~chains.beaten;
}

// The symbols of a window's columns, for late_ranks.cuh.
struct ColumnSymbols {
    WarpColumns& columns;

    static DEVICE_METHOD uint32_t index(uint32_t place) { return 32 * (place % 32) + place / 32; }
    DEVICE_METHOD uint32_t symbol(uint32_t place) const { return columns.symbols[index(place)]; }
    DEVICE_METHOD void put_rank(uint32_t place, uint32_t rank) const { columns.ranks[index(place)] = rank; }
    DEVICE_METHOD void put(uint32_t place, uint32_t symbol, uint32_t rank) const {
        columns.symbols[index(place)] = symbol;
        put_rank(place, rank);
    }
};

// Whether one of the pairs of a late rank, at these places of each lane, is loud.
DEVICE bool any_loud(const Job& job, const WarpColumns& columns, uint32_t alive, const Neighbours& others,
                     uint32_t pairs, uint32_t rank) {
    uint32_t rest = alive & (alive - 1), second = rest ? index_of(lowest_bit(rest)) : others.behind;
    second = __shfl_sync(ALL_LANES, second, others.lane_behind);  // Of the next lane.
    bool loud = false;
    for (uint32_t bits = pairs; bits && !loud; bits &= bits - 1) {
        uint32_t place = lowest_bit(bits), below = alive & (bits ^ (bits - 1)) >> 1, above = alive & bits_above(place);
        uint32_t last = above & (above - 1);  // Those behind the pair.
        uint32_t before = below ? index_of(highest_bit(below)) : others.before;
        uint32_t behind = !above ? second : last ? index_of(lowest_bit(last)) : others.behind;
        before = before == NO_PAIR ? NO_PAIR : columns.symbols[before];
        behind = behind == NO_PAIR ? NO_PAIR : columns.symbols[behind];
        loud = is_loud(job, rank, before, behind);
    }
    return __any_sync(ALL_LANES, loud);
}

// Merges the pairs of the lowest rank, which is late: one by one if one of them is loud, else all at once. Returns the
// places that are left; `pairs` are those that the round may merge at once.
DEVICE_NOINLINE uint32_t merge_late(const Job& job, WarpColumns& columns, uint32_t alive, Neighbours others,
                                uint32_t pairs, uint32_t lowest) {
    uint32_t rank = rank_of_bounded(lowest), waiting = 0;
    if (!any_loud(job, columns, alive, others, pairs, rank)) return alive;
    for (uint32_t bits = alive; bits; bits &= bits - 1)
        if (columns.ranks[index_of(lowest_bit(bits))] == lowest) waiting |= bits & (0 - bits);
    return grow_pairs(job, ColumnSymbols{columns}, alive, waiting, rank);
}

// Merges the pairs that begin at these places of each lane.
DEVICE void merge_pairs(WarpColumns& columns, LanePart& part, const Neighbours& others, uint32_t pairs) {
    uint32_t alive = part.alive, removed = behind_of(alive, pairs);  // Second symbols of merged pairs.
    uint32_t to_next = __ballot_sync(ALL_LANES, alive && pairs >> highest_bit(alive) & 1);
    if (others.before != NO_PAIR && to_next >> others.lane_before & 1) removed |= alive & (0 - alive);
    for (; pairs; pairs &= pairs - 1) {
        uint32_t index = index_of(lowest_bit(pairs));
        columns.symbols[index] = FIRST_MERGED + rank_of_bounded(columns.ranks[index]);
    }
    part.alive = alive & ~removed;
}

// The lane that has item `number` of all lanes' items, of which there are `up_to` up to each lane; 31 if none has.
DEVICE uint32_t lane_of_item(uint32_t up_to, uint32_t number) {
    uint32_t lane = 0;
#pragma unroll
    for (uint32_t step = 16; step; step /= 2)
        if (__shfl_sync(ALL_LANES, up_to, lane + step - 1) <= number) lane += step;
    return lane;
}

// Looks up the new pairs, which begin with a merged symbol or in front of one; returns where they begin. The lanes
// share the look-ups evenly, whichever lane's places they are at:
//
//     lane           0     1     2     3
//     new pairs      a b   .     c     d e f
//     looked up      a     b     c     d          then e and f
DEVICE uint32_t rank_new_pairs(const Merging& merging, WarpColumns& columns, const LanePart& part,
                               const Neighbours& others, uint32_t merged) {
    uint32_t alive = part.alive, begins_new = __ballot_sync(ALL_LANES, (merged & alive & (0 - alive)) != 0);
    uint32_t changed = merged | before_of(alive, merged);
    if (alive && others.behind != NO_PAIR && begins_new >> others.lane_behind & 1) changed |= 1u << highest_bit(alive);
    uint32_t count = count_bits(changed), up_to = sum_of_lanes(count), total = __shfl_sync(ALL_LANES, up_to, 31);
    for (uint32_t number = threadIdx.x & 31; number - (threadIdx.x & 31) < total; number += 32) {
        uint32_t owner = lane_of_item(up_to, number), bits = __shfl_sync(ALL_LANES, changed, owner);
        uint32_t passed = number - __shfl_sync(ALL_LANES, up_to - count, owner);
        uint32_t its_alive = __shfl_sync(ALL_LANES, alive, owner),
                 behind = __shfl_sync(ALL_LANES, others.behind, owner);
        if (number >= total) continue;
#pragma unroll 1
        for (; passed; passed--) bits &= bits - 1;
        uint32_t place = lowest_bit(bits), left = 32 * place + owner, above = its_alive & bits_above(place);
        uint32_t right = above ? 32 * lowest_bit(above) + owner : behind;
        bool is_needed = right != NO_PAIR;
        Pair pair = pair_of(merging.table, columns.symbols[left], columns.symbols[is_needed ? right : left]);
        is_needed = is_needed && may_merge(merging.filter, pair);
        uint32_t rank = rank_in(merging.table, pair, load_bucket(merging.table, pair, is_needed), is_needed);
        columns.ranks[left] = bounded(merging.job, rank);
    }
    return changed;
}

// Encodes `length` bytes by a warp; each lane has `places` of them, 8 or 16. Returns to each lane the bits of its
// places.
DEVICE uint32_t merge_window(const Merging& merging, WarpColumns& columns, const uint8_t* text, uint32_t length,
                             uint32_t places) {
    LanePart part = begin_window(merging, columns, text, length, places);
    Neighbours others = neighbours_of(part);
    for (;;) {
        uint32_t lowest = __reduce_min_sync(ALL_LANES, part.lowest), alive = part.alive;
        if (lowest == NO_RANK) return part.alive;
        uint32_t limit = limit_of(lowest, __reduce_min_sync(ALL_LANES, part.bound));
        uint32_t pairs = pairs_of_round(columns, part, others, limit);
        if (is_late(lowest)) {
            part.alive = merge_late(merging.job, columns, alive, others, pairs, lowest);
            if (__any_sync(ALL_LANES, part.alive != alive)) pairs = 0;  // All are merged.
        }
        __syncwarp();
        merge_pairs(columns, part, others, pairs);
        others = neighbours_of(part);
        __syncwarp();
        uint32_t changed = rank_new_pairs(merging, columns, part, others, pairs);
        __syncwarp();
        if (changed || alive != part.alive || is_late(lowest)) refresh(columns, part, places);
        __syncwarp();
    }
}

}  // namespace warptok::text
