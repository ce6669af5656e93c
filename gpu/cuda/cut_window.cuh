// Byte-pair encoding of a window of up to 32 * PLACES bytes by a warp, in rounds.
//
// A round merges all pairs of the lowest rank, of overlapping ones ("aaa") the leftmost first. Where
// the merges make no pair of lower rank that is what merging one after the other gives. Some ranks
// are late: what they give is part of a pair of lower rank. Of those a round merges the leftmost
// pair alone. Vocabularies trained as usual have none; Llama 3 has some.
//
//     ranks aa 0, aaaa 1      a a a a a b   ->   aa . aa . a b   ->   aa.aa. . . a b
//
// Each lane owns PLACES places: 8, 16 or 32. What lies at the places of the others it learns by votes and
// shuffles, except the symbols, which all may read.
#pragma once
#include "merge.cuh"

constexpr uint32_t WINDOW_1 = 1024;
constexpr uint32_t NO_PAIR = 0xFFFFFFFF;

// A warp's window in shared memory; the places of a lane lie in different banks from all others'.
template <uint32_t PLACES> struct WarpColumns {
    uint32_t ranks[32 * PLACES];  // Of the pair that begins at a place; NO_RANK, also inside symbols.
    uint32_t symbols[32 * PLACES];

    DEVICE_METHOD uint32_t& rank(uint32_t place) { return ranks[place ^ place >> 5]; }
    DEVICE_METHOD uint32_t& symbol(uint32_t place) { return symbols[place ^ place >> 5]; }
};

// Whether the merge of this rank may make a pair of lower rank.
DEVICE bool is_late(const Job& job, uint32_t rank) {
    return __ldg(job.late_ranks + rank / 32) >> rank % 32 & 1;
}

// What a lane knows of its places PLACES * lane + i; bit i stands for each.
struct LanePart {
    uint32_t alive;      // A symbol begins there.
    uint32_t lowest;     // The lowest rank of its pairs ...
    uint32_t lowest_at;  // ... and where these begin.
};

DEVICE uint32_t bits_above(uint32_t bit) { return 0xFFFFFFFEu << bit; }

// Finds a lane's lowest pairs again.
template <uint32_t PLACES> DEVICE void refresh(WarpColumns<PLACES>& columns, LanePart& part) {
    uint32_t first = (threadIdx.x & 31) * PLACES;
    part.lowest = NO_RANK;
    part.lowest_at = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < PLACES; i++) {
        uint32_t rank = columns.rank(first + i);
        if (rank < part.lowest) part.lowest_at = 0;
        if (rank <= part.lowest) part.lowest_at |= 1u << i;
        part.lowest = min_of(part.lowest, rank);
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
            columns.rank(place + i) = place + i + 1 < length ? ranks[i] : NO_RANK;
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

// Whether a lane's first symbol is the second one of a merged pair that begins in a lane before.
//
// Of pairs without a gap every second one is merged, so that the number of those at the end of the
// lanes before decides. A lane of pairs only, or without symbols, hands on what is before it.
DEVICE bool is_first_taken(uint32_t alive, uint32_t pairs) {
    uint32_t before = (1u << (threadIdx.x & 31)) - 1, others = alive & ~pairs;
    uint32_t at_end = others ? pairs & bits_above(highest_bit(others)) : pairs;
    uint32_t odd = __ballot_sync(ALL_LANES, count_bits(at_end) & 1) & before;
    uint32_t gaps = __ballot_sync(ALL_LANES, others != 0) & before;
    if (gaps) odd &= 0xFFFFFFFFu << highest_bit(gaps);
    return count_bits(odd) & 1;
}

// Merges pairs of one rank that begin at these places of each lane; returns which of them it merged.
template <uint32_t PLACES>
DEVICE uint32_t merge_pairs(WarpColumns<PLACES>& columns, LanePart& part, uint32_t pairs, uint32_t symbol) {
    uint32_t first = (threadIdx.x & 31) * PLACES, alive = part.alive, merged = 0;
    bool first_taken = is_first_taken(alive, pairs);
    uint32_t taken = first_taken ? alive & (0 - alive) : 0;  // Second symbols of merged pairs.
    for (; pairs; pairs &= pairs - 1) {
        uint32_t bit = pairs & (0 - pairs), behind = alive & (0 - 2 * bit);
        if (taken & bit) continue;
        merged |= bit;
        taken |= behind & (0 - behind);
        columns.symbol(first + lowest_bit(bit)) = symbol;
    }
    part.alive = alive & ~taken;
    for (; taken; taken &= taken - 1) columns.rank(first + lowest_bit(taken)) = NO_RANK;
    return merged;
}

// Looks up the pairs that are new, those that begin with a merged symbol or in front of one; returns
// where they begin.
template <uint32_t PLACES>
DEVICE uint32_t rank_new_pairs(const Merging& merging, WarpColumns<PLACES>& columns, LanePart& part, uint32_t merged) {
    uint32_t lane = threadIdx.x & 31, first = lane * PLACES, alive = part.alive;
    uint32_t filled = __ballot_sync(ALL_LANES, alive != 0) & bits_above(lane);
    uint32_t begins_new = __ballot_sync(ALL_LANES, (merged & alive & (0 - alive)) != 0);
    uint32_t next_lane = filled ? lowest_bit(filled) : 0;
    uint32_t next = next_lane * PLACES + __shfl_sync(ALL_LANES, alive ? lowest_bit(alive) : 0, next_lane);
    uint32_t changed = merged;
    for (uint32_t bits = merged; bits; bits &= bits - 1) {
        uint32_t before = alive & ((bits & (0 - bits)) - 1);
        if (before) changed |= 1u << highest_bit(before);
    }
    if (alive && filled && begins_new >> next_lane & 1) changed |= 1u << highest_bit(alive);
    for (uint32_t bits = changed; bits;) {  // Two at a time.
        uint32_t places[2];
        Pair pairs[2];
        uint4 buckets[2];
        bool ask[2];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++, bits &= bits - 1) {
            uint32_t bit = bits ? lowest_bit(bits) : 0, behind = alive & bits_above(bit);
            places[i] = bits ? first + bit : NO_PAIR;
            uint32_t other = behind ? first + lowest_bit(behind) : next;
            pairs[i] = pair_of(merging.table, columns.symbol(first + bit), columns.symbol(other));
            ask[i] = bits && (behind || filled) && may_merge(merging.cache, pairs[i]);
            buckets[i] = load_bucket(merging.table, pairs[i], ask[i]);
        }
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (places[i] != NO_PAIR) columns.rank(places[i]) = rank_in(merging.table, pairs[i], buckets[i], ask[i]);
    }
    return changed;
}

// Encodes `length` bytes (at most 32 * PLACES) by a warp; lane i gets the bits of its places.
template <uint32_t PLACES>
DEVICE uint32_t merge_window(const Merging& merging, WarpColumns<PLACES>& columns, const uint8_t* text, uint32_t length) {
    LanePart part = begin_window(merging, columns, text, length);
    for (;;) {
        uint32_t rank = __reduce_min_sync(ALL_LANES, part.lowest), alive = part.alive;
        if (rank == NO_RANK) return part.alive;
        uint32_t pairs = part.lowest == rank ? part.lowest_at : 0;
        if (is_late(merging.job, rank)) pairs = leftmost(pairs);
        uint32_t merged = merge_pairs(columns, part, pairs, FIRST_MERGED + rank);
        __syncwarp();
        uint32_t changed = rank_new_pairs(merging, columns, part, merged);
        if (changed || alive != part.alive) refresh(columns, part);
        __syncwarp();
    }
}
