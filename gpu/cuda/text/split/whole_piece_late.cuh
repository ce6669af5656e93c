// Late ranks of whole pieces (text/split/late_ranks.cuh): whether one of the lowest rank's pairs is loud, and how they
// grow then.
#pragma once
#include "text/split/whole_piece_round.cuh"
#include "text/split/late_ranks.cuh"

namespace warptok::text {

// Whether one of the pairs that a part would merge now is loud; the whole block calls it.
DEVICE_NOINLINE bool has_loud_pair(const Job& job, WholeShared& shared, const WholeSymbols& all,
                                   const WholeRound& round, uint32_t number) {
    bool loud = false;
#pragma unroll 1
    for (uint32_t tile = 0; tile * TILE_DONE < shared.parts[number].count; tile++) {
        Held held = find_merged(shared, all, round, number, tile);
        const uint32_t* symbols = shared.symbols[tile % 2];
        bool is_own = threadIdx.x < TILE_DONE && tile * TILE_DONE + threadIdx.x < shared.parts[number].count;
        if (is_own && shared.merged[threadIdx.x / 32] >> threadIdx.x % 32 & 1) {
            uint32_t before = threadIdx.x ? symbols[threadIdx.x - 1] : shared.before[tile % 2].symbol;
            uint32_t behind = symbols[threadIdx.x + 2];
            if (before & LAST_OF_PIECE) before = NO_PAIR;
            behind = symbols[threadIdx.x + 1] & LAST_OF_PIECE ? NO_PAIR : behind & ~LAST_OF_PIECE;
            loud |= is_loud(job, rank_of_bounded(round.lowest), before, behind);
        }
        note_before(shared, held, tile);
    }
    return __syncthreads_or(loud);
}

// The symbols of all parts while one thread goes through them. Those in front of `next` are a stack; each is at its old
// place or further in front in its part.
struct WholeStack {
    const WholeSymbols& all;
    WholePart* parts;       // `count`: symbols of a part that are left, up to the one that is read.
    uint32_t part, read;    // The next symbol: the part that it is of, and its number there.
    uint32_t unread;        // Symbols of that part that were there to read.
    uint32_t top;           // The part of the last symbol that is left, if there is one.

    DEVICE_METHOD uint32_t next() const { return all.begin_of(part) + read; }
    DEVICE_METHOD bool is_empty() const { return parts[top].count == 0; }
    DEVICE_METHOD uint32_t last() const { return all.begin_of(top) + parts[top].count - 1; }

    // Moves on to the next symbol that was not read; returns false where there is none.
    DEVICE_METHOD bool find_next() {
        while (read == unread) {
            if (part + 1 == all.num_parts) return false;
            unread = parts[++part].count;
            parts[part].count = read = 0;
        }
        return true;
    }

    DEVICE_METHOD void put(uint32_t number, uint32_t symbol, uint32_t place, uint32_t rank) {
        top = number;
        uint32_t to = all.begin_of(top) + parts[top].count++;
        all.symbols[to] = symbol;
        all.places[to] = place;
        all.ranks[to] = rank;
    }

    DEVICE_METHOD void drop() {
        parts[top].count--;
        while (top && !parts[top].count) top--;
    }
};

// Merges all pairs of a late rank and lets the merged symbols grow, by one thread; `count` of each part becomes the
// number of its symbols that are left.
DEVICE_NOINLINE void grow_whole(const Job& job, WholeShared& shared, const WholeSymbols& all, uint32_t rank) {
    WholeStack stack = {all, shared.parts, 0, 0, shared.parts[0].count, 0};
    shared.parts[0].count = 0;
    while (stack.find_next()) {
        uint32_t part = stack.part, symbol = all.symbols[stack.next()], place = all.places[stack.next()];
        uint32_t own = all.ranks[stack.next()], before = NO_RANK,
                 behind = own == NO_RANK ? NO_RANK : rank_of_bounded(own);
        bool grows = behind == rank;
        stack.read++;
        for (uint32_t lowest = behind; lowest <= rank; lowest = min_of(before, behind)) {
            if (before == lowest) {
                place = all.places[stack.last()];
                part = stack.top;
                stack.drop();
            } else if (stack.find_next()) symbol = all.symbols[stack.next()], stack.read++;
            symbol = (symbol & LAST_OF_PIECE) | (FIRST_MERGED + lowest);
            before = behind = NO_RANK;
            if (!stack.is_empty() && !(all.symbols[stack.last()] & LAST_OF_PIECE))
                before = rank_of(job, all.symbols[stack.last()], symbol & ~LAST_OF_PIECE);
            if (!(symbol & LAST_OF_PIECE) && stack.find_next())
                behind = rank_of(job, symbol, all.symbols[stack.next()] & ~LAST_OF_PIECE);
        }
        if (grows) {
            own = bounded(job, behind);
            if (!stack.is_empty()) all.ranks[stack.last()] = bounded(job, before);
        }
        stack.put(part, symbol, place, own);
    }
}

}  // namespace warptok::text
