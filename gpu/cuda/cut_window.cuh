// Byte-pair encoding of a window of up to 32 * PLACES bytes by a warp, in rounds.
//
// A round knows a *bound*: no merge of the pairs that are there makes a pair of a lower rank. So of the
// pairs below the bound those are merged that are lower than the pairs on both sides of them, since none
// of them can change before (gpu/README.md, Bounded rounds). Of overlapping pairs of one rank ("aaaa")
// every other one is merged, from the left; where a lower one stands in front of them, they wait.
//
//     rank     7   3   9   5   5   5   8          bound 9: 3 is merged, and the first and third 5
//     text     a   b   c   d   e   e   e   f      the 7 and the 9 are gone then
//
// Some ranks are late: what they give is part of a pair of lower rank. Where the lowest rank is late a
// round merges its leftmost pair alone. Vocabularies trained as usual have none; Llama 3 has some.
//
// Each lane owns PLACES places: 8, 16 or 32. What lies at the places of the others it learns by votes and
// shuffles, except symbols and ranks, which all may read.
#pragma once
#include "merge.cuh"

constexpr uint32_t WINDOW_1 = 1024;
constexpr uint32_t NO_PAIR = 0xFFFFFFFF;

// A rank and how far above it the bound of its merge lies, as gpu/tables.py writes it: 0 where the rank is
// late, else a number of 5 bits times a power of two, rounded down. NO_RANK stays as it is.
constexpr uint32_t BOUND_BITS = 10, LATE = 0, HIGHEST = (1 << (32 - BOUND_BITS)) - 1;

DEVICE uint32_t bounded(const Job& job, uint32_t rank) {
    return rank == NO_RANK ? NO_RANK : rank << BOUND_BITS | __ldg(job.rank_bounds + rank);
}

DEVICE uint32_t rank_of_bounded(uint32_t word) { return word >> BOUND_BITS; }

DEVICE bool is_late(uint32_t word) { return word % (1 << BOUND_BITS) == LATE; }

// The lowest rank that a pair with what this one gives can have; not above HIGHEST.
DEVICE uint32_t bound_of(uint32_t word) {
    uint32_t code = word % (1 << BOUND_BITS), power = code / 32;
    uint32_t distance = power ? (32 + code % 32) << min_of(power - 1, 17) : code;
    return min_of((word >> BOUND_BITS) + distance, HIGHEST);
}

// A warp's window in shared memory; the places of a lane lie in different banks from all others'.
template <uint32_t PLACES> struct WarpColumns {
    uint32_t ranks[32 * PLACES];  // Of the pair that begins at a place, bounded; NO_RANK, also inside symbols.
    uint32_t symbols[32 * PLACES];

    DEVICE_METHOD uint32_t& rank(uint32_t place) { return ranks[place ^ place >> 5]; }
    DEVICE_METHOD uint32_t& symbol(uint32_t place) { return symbols[place ^ place >> 5]; }
};

// What a lane knows of its places PLACES * lane + i; bit i stands for each.
struct LanePart {
    uint32_t alive;   // A symbol begins there.
    uint32_t lowest;  // Of its pairs, bounded.
    uint32_t bound;   // The lowest of its pairs' bounds.
};

DEVICE uint32_t bits_above(uint32_t bit) { return 0xFFFFFFFEu << bit; }

// Finds a lane's lowest rank and bound again.
template <uint32_t PLACES> DEVICE void refresh(WarpColumns<PLACES>& columns, LanePart& part) {
    uint32_t first = (threadIdx.x & 31) * PLACES;
    part.lowest = NO_RANK;
    part.bound = HIGHEST;
    for (uint32_t bits = part.alive; bits; bits &= bits - 1) {
        uint32_t rank = columns.rank(first + lowest_bit(bits));
        part.lowest = min_of(part.lowest, rank);
        part.bound = min_of(part.bound, bound_of(rank));
    }
}

// Fills the columns with bytes; `length` is at most 32 * PLACES. The ranks of eight pairs are on their way
// together.
template <uint32_t PLACES>
DEVICE LanePart begin_window(const Merging& merging, WarpColumns<PLACES>& columns, const uint8_t* text,
                             uint32_t length) {
    uint32_t lane = threadIdx.x & 31;
    for (uint32_t place = lane * PLACES; place < (lane + 1) * PLACES; place += 8) {
        uint32_t ranks[8] = {};
        FiveBytes bytes[2] = {};
#pragma unroll
        for (uint32_t i = 0; i < 8; i += 4)
            if (place + i < length) {
                bytes[i / 4] = five_bytes(text, place + i);
                ranks_of_bytes(merging.byte_pairs, merging.cache, bytes[i / 4], ranks + i);
            }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            columns.symbol(place + i) = byte_of(bytes[i / 4].four, i % 4);
            columns.rank(place + i) = bounded(merging.job, place + i + 1 < length ? ranks[i] : NO_RANK);
        }
    }
    __syncwarp();
    uint32_t mine = length > PLACES * lane ? min_of(PLACES, length - PLACES * lane) : 0;
    LanePart part = {mine == 32 ? 0xFFFFFFFFu : (1u << mine) - 1, NO_RANK, 0};
    refresh(columns, part);
    return part;
}

// Of all lanes' pairs the leftmost alone.
DEVICE uint32_t leftmost(uint32_t pairs) {
    uint32_t filled = __ballot_sync(ALL_LANES, pairs != 0);
    return filled && lowest_bit(filled) == (threadIdx.x & 31) ? pairs & (0 - pairs) : 0;
}

// The symbols of other lanes that are next to this one's: the last one before, the first one behind.
struct Neighbours {
    uint32_t before, behind;  // Places; NO_PAIR where there are none.
    uint32_t lane_before;
};

template <uint32_t PLACES> DEVICE Neighbours neighbours_of(uint32_t alive) {
    uint32_t lane = threadIdx.x & 31, filled = __ballot_sync(ALL_LANES, alive != 0);
    uint32_t before = filled & ((1u << lane) - 1), behind = filled & bits_above(lane);
    uint32_t lane_before = before ? highest_bit(before) : 0, lane_behind = behind ? lowest_bit(behind) : 0;
    uint32_t last = __shfl_sync(ALL_LANES, alive ? highest_bit(alive) : 0, lane_before);
    uint32_t first = __shfl_sync(ALL_LANES, alive ? lowest_bit(alive) : 0, lane_behind);
    return {before ? lane_before * PLACES + last : NO_PAIR, behind ? lane_behind * PLACES + first : NO_PAIR, lane_before};
}

// The pairs of one rank, one directly behind the other, as a lane sees those at its places.
struct Chains {
    uint32_t taken;            // Merged: every other one from where a chain begins.
    uint32_t beaten;           // A lower pair stands behind it.
    uint32_t open;             // Those that go on with a chain of a lane before,
    uint32_t open_odd;         // and the first, third ... of these.
    uint32_t is_open, number;  // Whether all of the lane's do; how many.
    uint32_t state;            // Of the last one, if not: 1 it is taken, 2 its chain waits.
};

// Goes through the places of a lane; pairs of `limit` or more are none.
template <uint32_t PLACES>
DEVICE Chains chains_of_lane(WarpColumns<PLACES>& columns, uint32_t alive, const Neighbours& others, uint32_t limit) {
    uint32_t first = (threadIdx.x & 31) * PLACES, bit_before = 0;
    uint32_t before = others.before == NO_PAIR ? NO_RANK : columns.rank(others.before);
    Chains chains = {0, 0, 0, 0, 1, 0, 0};
    for (uint32_t bits = alive; bits; bits &= bits - 1) {
        uint32_t bit = bits & (0 - bits), rank = columns.rank(first + lowest_bit(bit));
        if (rank < before) chains.beaten |= bit_before;
        if (rank >= limit || rank != before) {
            chains.is_open = 0;
            chains.state = rank >= limit ? 0 : rank < before ? 1 : 2;
        } else if (chains.is_open) {
            chains.open |= bit;
            if (!(chains.number++ & 1)) chains.open_odd |= bit;
        } else if (chains.state < 2) {
            chains.state ^= 1;
        }
        if (!chains.is_open && chains.state == 1) chains.taken |= bit;
        before = rank, bit_before = bit;
    }
    if (others.behind != NO_PAIR && columns.rank(others.behind) < before) chains.beaten |= bit_before;
    return chains;
}

// The pairs at a lane's places that a round merges: lower than `limit` and than those beside them.
template <uint32_t PLACES>
DEVICE uint32_t pairs_of_round(WarpColumns<PLACES>& columns, uint32_t alive, const Neighbours& others, uint32_t limit) {
    Chains chains = chains_of_lane(columns, alive, others, limit);
    uint32_t before = (1u << (threadIdx.x & 31)) - 1;
    uint32_t known = __ballot_sync(ALL_LANES, !chains.is_open) & before;
    uint32_t odd = __ballot_sync(ALL_LANES, chains.is_open && chains.number & 1) & before;
    uint32_t taken = __ballot_sync(ALL_LANES, chains.state == 1), waits = __ballot_sync(ALL_LANES, chains.state == 2);
    if (known && !(waits >> highest_bit(known) & 1)) {
        uint32_t last = highest_bit(known), is_taken = taken >> last ^ count_bits(odd & bits_above(last));
        chains.taken |= is_taken & 1 ? chains.open & ~chains.open_odd : chains.open_odd;
    }
    return chains.taken & ~chains.beaten;
}

// Merges the pairs that begin at these places of each lane.
template <uint32_t PLACES>
DEVICE void merge_pairs(WarpColumns<PLACES>& columns, LanePart& part, const Neighbours& others, uint32_t pairs) {
    uint32_t first = (threadIdx.x & 31) * PLACES, alive = part.alive, taken = 0;  // Second symbols of merged pairs.
    uint32_t to_next = __ballot_sync(ALL_LANES, alive && pairs >> highest_bit(alive) & 1);
    if (others.before != NO_PAIR && to_next >> others.lane_before & 1) taken = alive & (0 - alive);
    for (; pairs; pairs &= pairs - 1) {
        uint32_t place = first + lowest_bit(pairs), behind = alive & bits_above(lowest_bit(pairs));
        taken |= behind & (0 - behind);
        columns.symbol(place) = FIRST_MERGED + rank_of_bounded(columns.rank(place));
    }
    part.alive = alive & ~taken;
    for (; taken; taken &= taken - 1) columns.rank(first + lowest_bit(taken)) = NO_RANK;
}

// Looks up the pairs that are new, those that begin with a merged symbol or in front of one; returns
// where they begin.
template <uint32_t PLACES>
DEVICE uint32_t rank_new_pairs(const Merging& merging, WarpColumns<PLACES>& columns, const LanePart& part, uint32_t merged) {
    constexpr uint32_t AT_ONCE = 2;
    uint32_t first = (threadIdx.x & 31) * PLACES, alive = part.alive;
    uint32_t begins_new = __ballot_sync(ALL_LANES, (merged & alive & (0 - alive)) != 0);
    uint32_t next = neighbours_of<PLACES>(alive).behind, changed = merged;
    for (uint32_t bits = merged; bits; bits &= bits - 1) {
        uint32_t before = alive & ((bits & (0 - bits)) - 1);
        if (before) changed |= 1u << highest_bit(before);
    }
    if (alive && next != NO_PAIR && begins_new >> next / PLACES & 1) changed |= 1u << highest_bit(alive);
    for (uint32_t bits = changed; bits;) {
        uint32_t places[AT_ONCE];
        Pair pairs[AT_ONCE];
        uint4 buckets[AT_ONCE];
        bool ask[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++, bits &= bits - 1) {
            uint32_t bit = bits ? lowest_bit(bits) : 0, behind = alive & bits_above(bit);
            places[i] = bits ? first + bit : NO_PAIR;
            uint32_t other = behind ? first + lowest_bit(behind) : next;
            ask[i] = bits && other != NO_PAIR;
            pairs[i] = pair_of(merging.table, columns.symbol(first + bit), columns.symbol(ask[i] ? other : first));
            ask[i] = ask[i] && may_merge(merging.cache, pairs[i]);
            buckets[i] = load_bucket(merging.table, pairs[i], ask[i]);
        }
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (places[i] == NO_PAIR) continue;
            columns.rank(places[i]) = bounded(merging.job, rank_in(merging.table, pairs[i], buckets[i], ask[i]));
        }
    }
    return changed;
}

// Encodes `length` bytes (at most 32 * PLACES) by a warp; lane i gets the bits of its places.
template <uint32_t PLACES>
DEVICE uint32_t merge_window(const Merging& merging, WarpColumns<PLACES>& columns, const uint8_t* text, uint32_t length) {
    LanePart part = begin_window(merging, columns, text, length);
    for (;;) {
        uint32_t lowest = __reduce_min_sync(ALL_LANES, part.lowest), alive = part.alive, limit = lowest + 1;
        if (lowest == NO_RANK) return part.alive;
        uint32_t bound = __reduce_min_sync(ALL_LANES, part.bound);
        if (bound > rank_of_bounded(lowest)) limit = bound << BOUND_BITS;
        Neighbours others = neighbours_of<PLACES>(alive);
        uint32_t pairs = pairs_of_round(columns, alive, others, limit);
        if (is_late(lowest)) pairs = leftmost(pairs);
        __syncwarp();
        merge_pairs(columns, part, others, pairs);
        __syncwarp();
        uint32_t changed = rank_new_pairs(merging, columns, part, pairs);
        __syncwarp();
        if (changed || alive != part.alive) refresh(columns, part);
        __syncwarp();
    }
}
