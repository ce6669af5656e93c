// A round of whole pieces (text/split/whole_piece.cuh): the pairs of a part that are merged at once, by a block, a
// thread a symbol.
//
// The rules are those of text/split/window_rounds.cuh. A round has three steps; what a step finds are bits of
// symbols:
//
//     ranks     7   3   9   5   5   5   8       limit 9
//     heads     1   1   .   1   .   .   .       lower than the pair in front
//     equal     .   .   .   .   1   1   .       the same as the pair in front, with which it is a chain
//     merged    .   1   .   1   .   1   .       every other one behind a head, but none in front of a lower pair
//     left      a  bc  de  fg  h                side by side again; new pairs are looked up
//
// A tile is as many symbols as there are threads. The last 32 are only looked at, since what becomes of a pair follows
// from the two behind it; they begin the next tile. Behind the part's last symbol stand the first ones of the parts
// behind it.
//
//     part       . . . . . . . . . . . . . . . . . . . | . . .        three of the next parts
//     tile 0     |- - - - - - - - . .|
//     tile 1                     |- - - - - - - - . .|
//     tile 2                                     |- - - : - . .       merged, written behind tile 1's
//
// What stands in front of a tile is one pair (Before), the last one of the tile or of the parts before.
//
// Invariant: the pairs that a round merges share no symbol, and a symbol only moves to the front, inside of its part.
#pragma once
#include "text/split/window_state.cuh"
#include "text/split/windows_common.cuh"

namespace warptok::text {

constexpr uint32_t WHOLE_THREADS = 1024;
constexpr uint32_t WHOLE_WORDS = WHOLE_THREADS / 32;
constexpr uint32_t TILE_DONE = WHOLE_THREADS - 32;  // Symbols of a tile that are merged.
constexpr uint32_t MAX_PARTS = 256;
constexpr uint32_t NUM_FIRST = 3;                   // Symbols behind a part that it looks at.
constexpr uint32_t LAST_OF_PIECE = 1u << 31;        // Of a symbol: nothing merges across its end.
// Whether a pair of the lowest rank is loud (text/split/late_ranks.cuh).
constexpr uint32_t NOT_TESTED = 0, QUIET = 1, LOUD = 2;

struct WholePart {  // The values that a part publishes.
    uint32_t count;                  // Of its symbols. If it is 0, what follows says nothing, but `lowest` and `bound`.
    uint32_t lowest, bound;          // Of its pairs, bounded; each pair is its first symbol's.
    uint32_t last_symbol, last;      // Its last symbol, its last pair's rank.
    // The number of pairs at its end that have that rank; the rank in front of them if not all have it.
    uint32_t tail, front;
    uint32_t loud;
    uint32_t symbols[NUM_FIRST], ranks[NUM_FIRST];  // Of its first symbols.
};

struct WholeSymbols {
    uint32_t* symbols;     // Of all parts, LAST_OF_PIECE among their bits,
    uint32_t* places;      // the bytes of the batch that they begin with,
    uint32_t* ranks;       // and the ranks of their pairs, bounded.
    WholePart* parts[2];   // Double buffer: a step reads one and writes the other.
    uint32_t total, size;  // Bytes of all parts, of each but the last ones.
    uint32_t num_parts;

    DEVICE_METHOD uint32_t begin_of(uint32_t number) const { return number * size; }
};

DEVICE WholeSymbols whole_symbols(const Job& job, uint32_t total, uint32_t num_parts) {
    WholePart* parts = reinterpret_cast<WholePart*>(job.text.misses[0]);
    uint32_t size = ((total + num_parts - 1) / num_parts + 31) / 32 * 32;
    return {job.text.records, job.text.merged_ids, job.text.merged_ids + total, {parts, parts + num_parts}, total, size,
            num_parts};
}

// The pair in front of a tile.
struct Before {
    uint32_t symbol, rank;
    uint32_t number;  // Of its chain, which is pairs of one rank one behind the other.
    bool leads;       // The chain is lower than what is in front of it and below the limit,
    bool is_merged;   // and this pair of it is merged, so that its second symbol is gone.
};

struct WholeShared {  // Of a block.
    WholePart parts[MAX_PARTS];
    uint32_t symbols[2][WHOLE_THREADS], ranks[2][WHOLE_THREADS];  // Of a tile, double buffered.
    uint32_t heads[WHOLE_WORDS], equal[WHOLE_WORDS], merged[WHOLE_WORDS];  // Bits of its symbols.
    Before before[2];
    uint32_t ahead_symbols[NUM_FIRST], ahead_ranks[NUM_FIRST];  // Behind the part.
    uint32_t lowest, bound, last_break;
    uint64_t ticket;
};

// The figures of a round, which the threads of all parts know.
struct WholeRound {
    uint32_t lowest, limit;  // The lowest of all ranks; pairs below the limit are merged. Both bounded.
    uint32_t loud;
};

// The pair in front of a part. Its chain may go through several parts.
DEVICE Before before_part(const WholePart* parts, uint32_t number, uint32_t limit) {
    Before before = {LAST_OF_PIECE, NO_RANK, 0, false, false};
    uint32_t length = 0, front = NO_RANK;
    for (uint32_t i = number; i-- > 0;) {
        const WholePart& part = parts[i];
        if (!part.count) continue;
        if (!length) before.symbol = part.last_symbol, before.rank = part.last;
        front = part.last;
        if (front != before.rank) break;
        length += part.tail;
        front = part.front;
        if (part.tail < part.count) break;
        front = NO_RANK;
    }
    before.leads = before.rank < limit && before.rank < front;
    before.number = length - 1;
    before.is_merged = before.leads && before.number % 2 == 0 && parts[number].ranks[0] >= before.rank;
    return before;
}

// Reads the first symbols behind a part, from one part or from several.
DEVICE void look_behind_part(WholeShared& shared, uint32_t number, uint32_t num_parts) {
    uint32_t found = 0;
    for (uint32_t i = number + 1; i < num_parts && found < NUM_FIRST; i++) {
        const WholePart& part = shared.parts[i];
        for (uint32_t j = 0; j < part.count && j < NUM_FIRST && found < NUM_FIRST; j++, found++)
            shared.ahead_symbols[found] = part.symbols[j], shared.ahead_ranks[found] = part.ranks[j];
    }
    for (; found < NUM_FIRST; found++)
        shared.ahead_symbols[found] = LAST_OF_PIECE, shared.ahead_ranks[found] = NO_RANK;
}

// Begins a round: reads the published values of all parts, and the symbols of other parts that this part needs.
DEVICE WholeRound begin_round(WholeShared& shared, const WholeSymbols& all, uint32_t step, uint32_t number) {
    constexpr uint32_t WORDS = sizeof(WholePart) / 4;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(all.parts[step % 2]);
    for (uint32_t i = threadIdx.x; i < all.num_parts * WORDS; i += WHOLE_THREADS)
        reinterpret_cast<uint32_t*>(shared.parts)[i] = words[i];
    __syncthreads();
    uint32_t lowest = NO_RANK, bound = HIGHEST, quiet = LOUD;
    for (uint32_t i = threadIdx.x & 31; i < all.num_parts; i += 32) {
        lowest = min_of(lowest, shared.parts[i].lowest);
        bound = min_of(bound, shared.parts[i].bound);
        quiet = min_of(quiet, LOUD - shared.parts[i].loud);
    }
    lowest = __reduce_min_sync(ALL_LANES, lowest);
    bound = __reduce_min_sync(ALL_LANES, bound);
    WholeRound round = {lowest, limit_of(lowest, bound), LOUD - __reduce_min_sync(ALL_LANES, quiet)};
    if (threadIdx.x == 0) shared.before[0] = before_part(shared.parts, number, round.limit);
    if (threadIdx.x == 32) look_behind_part(shared, number, all.num_parts);
    __syncthreads();
    return round;
}

// The symbol of a tile that a thread holds.
struct Held {
    uint32_t symbol, rank;  // Also in shared memory, `tile` % 2.
    uint32_t place;
    uint32_t number;        // Of its pair's chain.
    bool leads;             // As in Before.
};

// Finds the pairs of a tile that are merged, bits of `merged`, and whether they are the tile's last ones.
DEVICE Held find_merged(WholeShared& shared, const WholeSymbols& all, const WholeRound& round, uint32_t number,
                        uint32_t tile) {
    uint32_t lane = threadIdx.x & 31, word = threadIdx.x / 32, i = tile * TILE_DONE + threadIdx.x;
    uint32_t count = shared.parts[number].count, at = all.begin_of(number) + i;
    Held held = {LAST_OF_PIECE, NO_RANK, 0, 0, false};
    if (i < count) held.symbol = all.symbols[at], held.rank = all.ranks[at], held.place = all.places[at];
    else if (i - count < NUM_FIRST)
        held.symbol = shared.ahead_symbols[i - count], held.rank = shared.ahead_ranks[i - count];
    uint32_t* ranks = shared.ranks[tile % 2];
    shared.symbols[tile % 2][threadIdx.x] = held.symbol;
    ranks[threadIdx.x] = held.rank;
    __syncthreads();
    const Before& before = shared.before[tile % 2];
    uint32_t rank = held.rank, rank_before = threadIdx.x ? ranks[threadIdx.x - 1] : before.rank;
    uint32_t heads = __ballot_sync(ALL_LANES, rank < round.limit && rank < rank_before);
    uint32_t equal = __ballot_sync(ALL_LANES, rank == rank_before);
    if (lane == 0) shared.heads[word] = heads, shared.equal[word] = equal;
    __syncthreads();
    heads = shared.heads[lane];
    uint32_t others = ~shared.equal[lane], filled = __ballot_sync(ALL_LANES, others != 0) & ((1u << word) - 1);
    uint32_t up_to = __shfl_sync(ALL_LANES, others, word) & ~bits_above(lane);
    uint32_t begin = up_to || !filled ? word : highest_bit(filled), bits = __shfl_sync(ALL_LANES, others, begin);
    uint32_t head = 32 * begin + highest_bit(up_to ? up_to : bits | 1);
    held.leads = __shfl_sync(ALL_LANES, heads, begin) >> head % 32 & 1;
    held.number = threadIdx.x - head;
    if (!up_to && !filled) held.leads = before.leads, held.number = before.number + 1 + threadIdx.x;
    bool merges = held.leads && held.number % 2 == 0 && threadIdx.x + 1 < WHOLE_THREADS;
    if (merges) merges = ranks[threadIdx.x + 1] >= rank;
    uint32_t merged = __ballot_sync(ALL_LANES, merges);
    if (lane == 0) shared.merged[word] = merged;
    __syncthreads();
    return held;
}

// Notes the last pair of a tile, for the next tile.
DEVICE void note_before(WholeShared& shared, const Held& held, uint32_t tile) {
    if (threadIdx.x != TILE_DONE - 1) return;
    bool is_merged = shared.merged[threadIdx.x / 32] >> threadIdx.x % 32 & 1;
    shared.before[(tile + 1) % 2] = {held.symbol, held.rank, held.number, held.leads, is_merged};
}

// A symbol of a tile, or what its pair becomes.
DEVICE uint32_t merged_of_tile(const WholeShared& shared, uint32_t tile, uint32_t i, bool is_merged) {
    uint32_t symbol = shared.symbols[tile % 2][i];
    if (!is_merged) return symbol;
    uint32_t last = shared.symbols[tile % 2][i + 1] & LAST_OF_PIECE;
    return last | (FIRST_MERGED + rank_of_bounded(shared.ranks[tile % 2][i]));
}

// Writes the symbols that are left of a tile, `gone` places in front of where they were; returns how many are gone up
// to its end. Of the tile's symbols only those are read here which are in shared memory: others may have been written
// by now.
DEVICE uint32_t merge_tile(const Job& job, const WholeShared& shared, const WholeSymbols& all, const Held& held,
                           uint32_t number, uint32_t tile, uint32_t gone) {
    uint32_t lane = threadIdx.x & 31, word = threadIdx.x / 32, left = shared.parts[number].count - tile * TILE_DONE;
    uint32_t end = min_of(left, TILE_DONE), merged = shared.merged[lane];
    uint32_t carried = __shfl_up_sync(ALL_LANES, merged, 1) >> 31, next = __shfl_down_sync(ALL_LANES, merged, 1);
    if (lane == 0) carried = shared.before[tile % 2].is_merged;
    uint32_t removed = merged << 1 | carried, removed_up_to = sum_of_lanes(count_bits(removed));
    uint32_t own = __shfl_sync(ALL_LANES, removed, word);
    uint32_t moved = gone + __shfl_sync(ALL_LANES, removed_up_to, word) - count_bits(own >> lane);
    next = __shfl_sync(ALL_LANES, next, word);
    uint32_t here = shift_right(__shfl_sync(ALL_LANES, merged, word), next, lane);  // Bit 0: this one.
    if (threadIdx.x < end && !(own >> lane & 1)) {
        uint32_t i = threadIdx.x, to = all.begin_of(number) + tile * TILE_DONE + i - moved;
        uint32_t symbol = merged_of_tile(shared, tile, i, here & 1), rank = held.rank, other = i + 1 + (here & 1);
        if (here & 3) {
            rank = NO_RANK;
            if (!(symbol & LAST_OF_PIECE)) {
                uint32_t behind = merged_of_tile(shared, tile, other, here >> (other - i) & 1);
                rank = bounded(job, rank_of(job, symbol, behind & ~LAST_OF_PIECE));
            }
        }
        all.symbols[to] = symbol;
        all.places[to] = held.place;
        all.ranks[to] = rank;
    }
    uint32_t behind = __shfl_sync(ALL_LANES, removed, end / 32) >> end % 32;
    return gone + __shfl_sync(ALL_LANES, removed_up_to, end / 32) - count_bits(behind);
}

// Merges a part's pairs of the round; returns how many symbols are left. The whole block calls it.
DEVICE uint32_t merge_part(const Job& job, WholeShared& shared, const WholeSymbols& all, const WholeRound& round,
                           uint32_t number) {
    uint32_t count = shared.parts[number].count, gone = 0;
#pragma unroll 1
    for (uint32_t tile = 0; tile * TILE_DONE < count; tile++) {
        Held held = find_merged(shared, all, round, number, tile);
        gone = merge_tile(job, shared, all, held, number, tile, gone);
        note_before(shared, held, tile);
    }
    __syncthreads();
    return count - gone;
}

// Publishes the values of a part that has `count` symbols; the whole block calls it.
DEVICE void describe(WholeShared& shared, const WholeSymbols& all, WholePart& part, uint32_t number, uint32_t count) {
    const uint32_t *symbols = all.symbols + all.begin_of(number), *ranks = all.ranks + all.begin_of(number);
    if (threadIdx.x == 0) shared.lowest = NO_RANK, shared.bound = HIGHEST, shared.last_break = 0;
    __syncthreads();
    uint32_t lowest = NO_RANK, bound = HIGHEST, last_break = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < count; i += WHOLE_THREADS) {
        uint32_t rank = ranks[i];
        lowest = min_of(lowest, rank);
        bound = min_of(bound, bound_of(rank));
        if (i && rank != ranks[i - 1]) last_break = i;
    }
    lowest = __reduce_min_sync(ALL_LANES, lowest);
    bound = __reduce_min_sync(ALL_LANES, bound);
    last_break = ~__reduce_min_sync(ALL_LANES, ~last_break);
    if ((threadIdx.x & 31) == 0) {
        atomicMin(&shared.lowest, lowest);
        atomicMin(&shared.bound, bound);
        atomicMax(&shared.last_break, last_break);
    }
    __syncthreads();
    if (threadIdx.x < NUM_FIRST && threadIdx.x < count)
        part.symbols[threadIdx.x] = symbols[threadIdx.x], part.ranks[threadIdx.x] = ranks[threadIdx.x];
    if (threadIdx.x) return;
    part.count = count;
    part.lowest = shared.lowest;
    part.bound = shared.bound;
    part.loud = NOT_TESTED;
    if (!count) return;
    part.last_symbol = symbols[count - 1];
    part.last = ranks[count - 1];
    part.tail = count - shared.last_break;
    part.front = shared.last_break ? ranks[shared.last_break - 1] : NO_RANK;
}

}  // namespace warptok::text
