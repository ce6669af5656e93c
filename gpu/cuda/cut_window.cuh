// Byte-pair encoding of a window of up to WINDOW_1 bytes by a warp, in rounds.
//
// A round merges all pairs of the lowest rank, of overlapping ones ("aaa") the leftmost first. Where
// the merges make no pair of lower rank that is what merging one after the other gives. Some ranks
// are late: what they give is part of a pair of lower rank. Of those a round merges the leftmost
// pair alone. Vocabularies trained as usual have none; Llama 3 has some.
//
//     ranks aa 0, aaaa 1      a a a a a b   ->   aa . aa . a b   ->   aa.aa. . . a b
//
// Each lane owns 32 places. What lies at the places of the others it learns by votes and shuffles,
// except the symbols, which all may read.
#pragma once
#include "columns.cuh"

constexpr uint32_t WINDOW_1 = 1024;

// A warp's window in shared memory; the places of a lane lie in different banks from all others'.
struct WarpColumns {
    uint32_t ranks[WINDOW_1];  // Of the pair that begins at a place; NO_RANK, also inside symbols.
    uint32_t symbols[WINDOW_1];

    DEVICE_METHOD uint32_t& rank(uint32_t place) { return ranks[place ^ place >> 5]; }
    DEVICE_METHOD uint32_t& symbol(uint32_t place) { return symbols[place ^ place >> 5]; }
};

// Whether the merge of this rank may make a pair of lower rank.
DEVICE bool is_late(const Job& job, uint32_t rank) {
    return __ldg(job.late_ranks + rank / 32) >> rank % 32 & 1;
}

// What a lane knows of its places 32 * lane + i; bit i stands for each.
struct LanePart {
    uint32_t alive;      // A symbol begins there.
    uint32_t lowest;     // The lowest rank of its pairs ...
    uint32_t lowest_at;  // ... and where these begin.
};

DEVICE uint32_t bits_above(uint32_t bit) { return 0xFFFFFFFEu << bit; }

// Finds a lane's lowest pairs again.
DEVICE void refresh(WarpColumns& columns, LanePart& part) {
    uint32_t first = (threadIdx.x & 31) * 32;
    part.lowest = NO_RANK;
    part.lowest_at = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t rank = columns.rank(first + i);
        if (rank < part.lowest) part.lowest_at = 0;
        if (rank <= part.lowest) part.lowest_at |= 1u << i;
        part.lowest = min_of(part.lowest, rank);
    }
}

// Fills the columns with bytes; `length` is at most WINDOW_1.
DEVICE LanePart begin_window(const Job& job, WarpColumns& columns, const uint8_t* text, uint32_t length) {
    uint32_t lane = threadIdx.x & 31;
    for (uint32_t place = lane; place < WINDOW_1; place += 32) {
        uint32_t rank = NO_RANK;
        if (place < length) columns.symbol(place) = text[place];
        if (place + 1 < length) rank = job.byte_pairs[text[place + 1] << 8 | text[place]];
        columns.rank(place) = rank;
    }
    __syncwarp();
    uint32_t mine = length > 32 * lane ? min_of(32, length - 32 * lane) : 0;
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
DEVICE uint32_t merge_pairs(WarpColumns& columns, LanePart& part, uint32_t pairs, uint32_t symbol) {
    uint32_t first = (threadIdx.x & 31) * 32, alive = part.alive, merged = 0;
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
DEVICE uint32_t rank_new_pairs(const Job& job, WarpColumns& columns, LanePart& part, uint32_t merged) {
    uint32_t lane = threadIdx.x & 31, first = lane * 32, alive = part.alive;
    uint32_t filled = __ballot_sync(ALL_LANES, alive != 0) & bits_above(lane);
    uint32_t begins_new = __ballot_sync(ALL_LANES, (merged & alive & (0 - alive)) != 0);
    uint32_t next_lane = filled ? lowest_bit(filled) : 0;
    uint32_t next = next_lane * 32 + __shfl_sync(ALL_LANES, alive ? lowest_bit(alive) : 0, next_lane);
    uint32_t changed = merged;
    for (uint32_t bits = merged; bits; bits &= bits - 1) {
        uint32_t before = alive & ((bits & (0 - bits)) - 1);
        if (before) changed |= 1u << highest_bit(before);
    }
    if (alive && filled && begins_new >> next_lane & 1) changed |= 1u << highest_bit(alive);
    for (uint32_t bits = changed; bits; bits &= bits - 1) {
        uint32_t bit = lowest_bit(bits), behind = alive & bits_above(bit), rank = NO_RANK;
        uint32_t other = behind ? first + lowest_bit(behind) : next;
        if (behind || filled) rank = rank_of(job, columns.symbol(first + bit), columns.symbol(other));
        columns.rank(first + bit) = rank;
    }
    return changed;
}

// Encodes `length` bytes (at most WINDOW_1) by a warp; lane i gets the bits of places 32 i onwards.
DEVICE uint32_t merge_window(const Job& job, WarpColumns& columns, const uint8_t* text, uint32_t length) {
    LanePart part = begin_window(job, columns, text, length);
    for (;;) {
        uint32_t rank = __reduce_min_sync(ALL_LANES, part.lowest), alive = part.alive;
        if (rank == NO_RANK) return part.alive;
        uint32_t pairs = part.lowest == rank ? part.lowest_at : 0;
        if (is_late(job, rank)) pairs = leftmost(pairs);
        uint32_t merged = merge_pairs(columns, part, pairs, FIRST_MERGED + rank);
        __syncwarp();
        uint32_t changed = rank_new_pairs(job, columns, part, merged);
        if (changed || alive != part.alive) refresh(columns, part);
        __syncwarp();
    }
}
