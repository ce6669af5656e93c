// Byte-pair encoding of one window by a whole block, in the rounds of text/merge/merge_by_warp_rounds.cuh with a thread a symbol.
//
// For who waits for one window and nothing else. The symbols that are left lie side by side, so that the threads
// look at each, and at those beside it, at once. A round has three steps; what a step finds are bits of symbols:
//
//     ranks     7   3   9   5   5   5   8       limit 9
//     heads     1   1   .   1   .   .   .       lower than the pair in front
//     equal     .   .   .   .   1   1   .       the same as the pair in front, with which it is a chain
//     merged    .   1   .   1   .   1   .       every other one behind a head, but none in front of a lower pair
//     left      a  bc  de  fg  h                side by side again; new pairs are looked up
#pragma once
#include "text/split/window_result.cuh"

constexpr uint32_t BRIDGE_THREADS = 256;
constexpr uint32_t BRIDGE_BLOCKS = 1024 / BRIDGE_THREADS;  // Of a multiprocessor.
constexpr uint32_t BRIDGE_WARPS = BRIDGE_THREADS / 32;
constexpr uint32_t WALK_PLACE_BITS = 10;
static_assert(WINDOW_1 == 1 << WALK_PLACE_BITS, "a place of a window");

struct Symbols {  // Of a window, those that are left.
    uint32_t words[WINDOW_1];  // symbol << WALK_PLACE_BITS | place.
    uint32_t ranks[WINDOW_1];  // Of the pair that begins with each, bounded.
};

struct RoundShared {  // Of a block.
    Symbols symbols[2];
    uint32_t heads[WALK_WORDS], equal[WALK_WORDS], merged[WALK_WORDS];  // Bits of symbols.
    uint32_t lowest[BRIDGE_WARPS], bounds[BRIDGE_WARPS];  // Of the symbols of each warp.
};

// What all threads know of a round.
struct Round {
    uint32_t count;   // Of symbols.
    uint32_t lowest;  // Of their pairs' ranks, bounded.
    uint32_t limit;   // Pairs below it are merged, see text/merge/merge_by_warp_rounds.cuh.
};

// The word of bits of symbols that has a lane's number; zeros behind the last symbol.
DEVICE uint32_t bits_of_lane(const uint32_t* words, uint32_t count) {
    uint32_t lane = threadIdx.x & 31;
    return 32 * lane < count ? words[lane] : 0;
}

// Ends a step: what each thread found is there for all.
DEVICE Round next_round(RoundShared& shared, uint32_t count, uint32_t lowest, uint32_t bound) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    lowest = __reduce_min_sync(ALL_LANES, lowest);
    bound = __reduce_min_sync(ALL_LANES, bound);
    if (lane == 0) shared.lowest[warp] = lowest, shared.bounds[warp] = bound;
    __syncthreads();
    lowest = __reduce_min_sync(ALL_LANES, shared.lowest[lane % BRIDGE_WARPS]);
    bound = __reduce_min_sync(ALL_LANES, shared.bounds[lane % BRIDGE_WARPS]);
    return {count, lowest, limit_of(lowest, bound)};
}

// Fills the columns with bytes.
DEVICE Round begin_rounds(const Job& job, RoundShared& shared, const uint8_t* text, uint32_t length) {
    Symbols& symbols = shared.symbols[0];
    uint32_t lowest = NO_RANK, bound = HIGHEST;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < length; i += BRIDGE_THREADS) {
        uint32_t byte = text[i], rank = NO_RANK;
        if (i + 1 < length) rank = bounded(job, __ldg(job.byte_pairs + (byte | text[i + 1] << 8)));
        symbols.words[i] = byte << WALK_PLACE_BITS | i;
        symbols.ranks[i] = rank;
        lowest = min_of(lowest, rank);
        bound = min_of(bound, bound_of(rank));
    }
    return next_round(shared, length, lowest, bound);
}

// First step: which pairs are lower than the one in front of them, and which have the same rank.
DEVICE void find_chains(RoundShared& shared, const Symbols& symbols, const Round& round) {
    uint32_t lane = threadIdx.x & 31;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i - lane < round.count; i += BRIDGE_THREADS) {
        uint32_t rank = i < round.count ? symbols.ranks[i] : NO_RANK, before = i ? symbols.ranks[i - 1] : NO_RANK;
        uint32_t heads = __ballot_sync(ALL_LANES, rank < round.limit && rank < before);
        uint32_t equal = __ballot_sync(ALL_LANES, rank < round.limit && rank == before);
        if (lane == 0) shared.heads[i / 32] = heads, shared.equal[i / 32] = equal;
    }
    __syncthreads();
}

// Second step: which pairs are merged.
DEVICE void find_merged(RoundShared& shared, const Symbols& symbols, const Round& round) {
    uint32_t lane = threadIdx.x & 31, heads = bits_of_lane(shared.heads, round.count);
    uint32_t others = ~bits_of_lane(shared.equal, round.count), filled = __ballot_sync(ALL_LANES, others != 0);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i - lane < round.count; i += BRIDGE_THREADS) {
        uint32_t word = i / 32, up_to = __shfl_sync(ALL_LANES, others, word) & ~bits_above(lane);
        uint32_t before = filled & ((1u << word) - 1);  // The first symbol goes on with nothing.
        uint32_t begin = up_to || !before ? word : highest_bit(before);
        uint32_t bits = __shfl_sync(ALL_LANES, others, begin);
        uint32_t head = 32 * begin + highest_bit(up_to ? up_to : bits);
        bool leads = __shfl_sync(ALL_LANES, heads, begin) >> head % 32 & 1;
        bool merges = i < round.count && leads && (i - head) % 2 == 0;
        if (merges && i + 1 < round.count) merges = symbols.ranks[i + 1] >= symbols.ranks[i];
        uint32_t merged = __ballot_sync(ALL_LANES, merges);
        if (lane == 0) shared.merged[word] = merged;
    }
    __syncthreads();
}

// A block's symbols as late ranks see them.
struct ListedSymbols {
    Symbols& symbols;

    DEVICE_METHOD uint32_t symbol(uint32_t i) const { return symbols.words[i] >> WALK_PLACE_BITS; }
    DEVICE_METHOD void put_rank(uint32_t i, uint32_t rank) const { symbols.ranks[i] = rank; }
    DEVICE_METHOD void put(uint32_t i, uint32_t symbol, uint32_t rank) const {
        symbols.words[i] = symbol << WALK_PLACE_BITS | symbols.words[i] % (1 << WALK_PLACE_BITS);
        put_rank(i, rank);
    }
};

// Whether one of the merged pairs, which are of a late rank, is loud.
DEVICE bool any_loud(const Job& job, const RoundShared& shared, const Symbols& symbols, const Round& round) {
    bool loud = false;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < round.count; i += BRIDGE_THREADS) {
        if (!(shared.merged[i / 32] >> i % 32 & 1)) continue;
        uint32_t before = i ? symbols.words[i - 1] >> WALK_PLACE_BITS : NO_PAIR;
        uint32_t behind = i + 2 < round.count ? symbols.words[i + 2] >> WALK_PLACE_BITS : NO_PAIR;
        loud |= is_loud(job, rank_of_bounded(round.lowest), before, behind);
    }
    return __syncthreads_or(loud);
}

// Merges the pairs of a late rank, the lowest, one by one if one of them is loud; then none is left to be merged at
// once. Returns the symbols that are gone, a word a lane.
DEVICE_RARE uint32_t merge_late(const Job& job, RoundShared& shared, Symbols& symbols, const Round& round) {
    uint32_t lane = threadIdx.x & 31;
    if (!any_loud(job, shared, symbols, round)) return 0;
    if (threadIdx.x < 32) {
        uint32_t all = bits_below(round.count), waiting = all & (shared.heads[lane] | shared.equal[lane]);
        uint32_t alive = grow_pairs(job, ListedSymbols{symbols}, all, waiting, rank_of_bounded(round.lowest));
        shared.merged[lane] = 0;
        shared.heads[lane] = all & ~alive;
    }
    __syncthreads();
    return shared.heads[lane];
}

DEVICE uint32_t merged_symbol(const Symbols& symbols, uint32_t i, bool is_merged) {
    return is_merged ? FIRST_MERGED + rank_of_bounded(symbols.ranks[i]) : symbols.words[i] >> WALK_PLACE_BITS;
}

// Third step: the symbols that are left, side by side, and the ranks of new pairs.
DEVICE Round merge_round(const Job& job, RoundShared& shared, Symbols& from, Symbols& to, const Round& round) {
    uint32_t lane = threadIdx.x & 31, grown = is_late(round.lowest) ? merge_late(job, shared, from, round) : 0;
    uint32_t merged = bits_of_lane(shared.merged, round.count);
    uint32_t carried = __shfl_up_sync(ALL_LANES, merged, 1) >> 31, next = __shfl_down_sync(ALL_LANES, merged, 1);
    uint32_t gone = merged << 1 | (lane ? carried : 0) | grown;  // None is behind the last word.
    uint32_t gone_up_to = sum_of_lanes(count_bits(gone)), lowest = NO_RANK, bound = HIGHEST;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i - lane < round.count; i += BRIDGE_THREADS) {
        uint32_t word = i / 32, own = __shfl_sync(ALL_LANES, gone, word);
        uint32_t moved = __shfl_sync(ALL_LANES, gone_up_to, word) - count_bits(own >> lane);
        uint32_t behind = __shfl_sync(ALL_LANES, next, word);
        uint32_t here = shift_right(__shfl_sync(ALL_LANES, merged, word), behind, lane);  // Bit 0: this one.
        if (i >= round.count || own >> lane & 1) continue;
        uint32_t symbol = merged_symbol(from, i, here & 1), rank = from.ranks[i], other = i + 1 + (here & 1);
        if (here & 3) {
            rank = NO_RANK;
            if (other < round.count)
                rank = bounded(job, rank_of(job, symbol, merged_symbol(from, other, here >> (other - i) & 1)));
        }
        to.words[i - moved] = symbol << WALK_PLACE_BITS | from.words[i] % (1 << WALK_PLACE_BITS);
        to.ranks[i - moved] = rank;
        lowest = min_of(lowest, rank);
        bound = min_of(bound, bound_of(rank));
    }
    return next_round(shared, round.count - __shfl_sync(ALL_LANES, gone_up_to, 31), lowest, bound);
}

// Encodes a window; the whole block calls it.
DEVICE void encode_by_block(const Job& job, RoundShared& shared, Borders& borders, uint32_t begin, uint32_t length) {
    Round round = begin_rounds(job, shared, job.text + begin, length);
    uint32_t current = 0;
    for (; round.lowest != NO_RANK; current = !current) {
        find_chains(shared, shared.symbols[current], round);
        find_merged(shared, shared.symbols[current], round);
        round = merge_round(job, shared, shared.symbols[current], shared.symbols[!current], round);
    }
    if (threadIdx.x < WALK_WORDS + 2) borders.words[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i <= round.count; i += BRIDGE_THREADS) {
        uint32_t place = i < round.count ? shared.symbols[current].words[i] % (1 << WALK_PLACE_BITS) : length;
        atomicOr(&borders.words[place / 32], 1u << place % 32);
    }
    __syncthreads();
}
