// Special tokens in the text: leftmost, longest, without overlaps, each exactly one piece.
//
// A *candidate* is a place where some token matches. The first one counts, then the first one at or
// behind its end, and so on: an orbit. A tile's orbit depends on how many of its first bytes the
// tile before takes, so three steps, each for all tiles at once:
//
//     find     a tile's candidates; if its orbits take different numbers of bytes of the next tile,
//              a table of these numbers by what the tile before takes of it
//     enter    follows the tables over neighbouring tiles that need one
//     accept   the candidates on the tile's orbit
//
// Example, tokens "ab" "bc" "c": the text abcbc has the candidates 0 1 2 3 4 of 2 2 1 2 1 bytes;
// its orbit is 0 2 3. Orbits are followed by doubling, 1 2 4 ... candidates at a time, so that a text of
// nothing but tokens takes no longer than its logarithm.
#pragma once
#include "block.cuh"
#include "row_places.cuh"
#include "special_match.cuh"

constexpr uint32_t COUNT_FOUND = 0;        // special_counts[2]: tiles with candidates, by round.
constexpr uint32_t COUNT_VARYING = 2;      // special_counts[2]: those that need a table.
constexpr uint32_t COUNT_ACCEPTED = 4;     // Not 0 where any token was accepted.
constexpr uint32_t VARIES = 1u << 15;      // In special_exits: there is a table.
constexpr uint32_t ON_ORBIT = 1u << 30;    // In `matches`: it counts.
static_assert(MAX_SPECIAL <= BLOCK && MAX_SPECIAL <= TILE, "a thread an entry, no tile is skipped");

struct SpecialShared {
    uint32_t first[8];                     // Bits of first bytes.
    uint32_t matches[TILE];                // By number; see pack_match.
    union {
        uint32_t unlisted[TILE];           // The same by place.
        uint16_t jumps[2][TILE];           // By number: a candidate further on in its orbit.
    };
    uint16_t masks[BLOCK], before[BLOCK];  // Candidates of each 16 bytes, and how many before them.
    uint32_t scratch[BLOCK / 32 + 1];
    uint32_t exit;
};

// ORDINARY | ON_ORBIT | bytes - 1 << 21 | place in the tile.
DEVICE uint32_t pack_match(SpecialMatch match, uint32_t place) {
    return (match.token & ORDINARY) | (match.length - 1) << 21 | place;
}

DEVICE uint32_t place_of(uint32_t match) { return match & (TILE - 1); }
DEVICE uint32_t end_of(uint32_t match) { return place_of(match) + (match >> 21 & 0xFF) + 1; }

// Which of a thread's 16 bytes are a token's first one.
template <uint32_t ROUND>
DEVICE uint32_t first_bytes(const Job& job, const SpecialShared& shared, uint64_t begin) {
    if (begin >= job.num_bytes) return 0;
    uint4 vector = *reinterpret_cast<const uint4*>(job.text + begin);
    uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w}, found = 0;
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t byte = words[i / 4] >> (i % 4 * 8) & 0xFF;
        found |= (shared.first[byte / 32] >> byte % 32 & 1) << i;
    }
    if (ROUND) found |= static_cast<uint32_t>(job.special[begin / 64] >> begin % 64) & 0xFFFF;
    return job.num_bytes - begin < 16 ? found & ((1u << (job.num_bytes - begin)) - 1) : found;
}

// Lists a tile's candidates in order; returns how many there are. The whole block calls it.
template <uint32_t ROUND>
DEVICE uint32_t list_candidates(const Job& job, SpecialShared& shared, uint64_t tile_begin) {
    uint32_t begin = threadIdx.x * 16, total;
    uint32_t found = first_bytes<ROUND>(job, shared, tile_begin + begin), matched = 0;
    if (!__syncthreads_or(found)) return 0;
    for (; found; found &= found - 1) {
        uint32_t i = lowest_bit(found);
        SpecialMatch match = match_special<ROUND>(job, tile_begin + begin + i);
        if (!match.length) continue;
        matched |= 1u << i;
        shared.unlisted[begin + i] = pack_match(match, begin + i);
    }
    uint32_t number = sum_before(count_bits(matched), shared.scratch, total);
    shared.masks[threadIdx.x] = matched;
    shared.before[threadIdx.x] = number;
    for (; matched; matched &= matched - 1)
        shared.matches[number++] = shared.unlisted[begin + lowest_bit(matched)];
    __syncthreads();
    return total;
}

// The number of the first candidate at or behind a place in the tile.
DEVICE uint32_t candidate_from(const SpecialShared& shared, uint32_t place) {
    uint32_t mask = shared.masks[place / 16] & ((1u << place % 16) - 1);
    return shared.before[place / 16] + count_bits(mask);
}

// Follows all orbits to the tile's end: the last candidate of each. What is reached from one that
// is ON_ORBIT gets that bit, too.
DEVICE const uint16_t* follow_orbits(SpecialShared& shared, uint32_t count) {
    uint16_t *jumps = shared.jumps[0], *others = shared.jumps[1];
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK) {
        uint32_t end = end_of(shared.matches[i]);
        uint32_t next = end < TILE ? candidate_from(shared, end) : count;
        jumps[i] = next < count ? next : i;
    }
    __syncthreads();
    for (uint32_t distance = 1; distance < count; distance *= 2) {
        for (uint32_t i = threadIdx.x; i < count; i += BLOCK) {
            uint32_t next = jumps[i];
            if (shared.matches[i] & ON_ORBIT) shared.matches[next] |= ON_ORBIT;
            others[i] = jumps[next];
        }
        __syncthreads();
        uint16_t* swapped = jumps;
        jumps = others;
        others = swapped;
    }
    return jumps;
}

// Bytes of the next tile that an orbit takes, entered at a place of this tile.
DEVICE uint32_t exit_of(const SpecialShared& shared, const uint16_t* last, uint32_t count,
                        uint32_t place) {
    uint32_t number = candidate_from(shared, place);
    if (number >= count) return 0;
    uint32_t end = end_of(shared.matches[last[number]]);
    return end > TILE ? end - TILE : 0;
}

// Writes what a tile with candidates takes of the next one.
DEVICE void write_exits(const Job& job, SpecialShared& shared, uint32_t tile, uint32_t count) {
    bool crosses = false, varies = false;
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK)
        crosses |= end_of(shared.matches[i]) > TILE;
    if (threadIdx.x == 0) shared.exit = 0;
    if (__syncthreads_or(crosses)) {
        const uint16_t* last = follow_orbits(shared, count);
        uint32_t exit = exit_of(shared, last, count, threadIdx.x);
        if (threadIdx.x == 0) shared.exit = exit;
        __syncthreads();
        varies = __syncthreads_or(exit != shared.exit);
        if (varies) job.special_function[tile * 256ull + threadIdx.x] = exit;
    }
    if (threadIdx.x == 0) job.special_exits[tile] = varies ? VARIES : shared.exit;
    if (threadIdx.x == 0 && varies) atomicAdd(job.special_counts + COUNT_VARYING, 1u);
}

template <uint32_t ROUND>
DEVICE void load_first_bytes(const Job& job, SpecialShared& shared) {
    if (threadIdx.x < 8) shared.first[threadIdx.x] = job.special_first[ROUND * 8 + threadIdx.x];
    __syncthreads();
}

template <uint32_t ROUND>
DEVICE void find_special_stage(const Job& job, SpecialShared& shared, uint32_t block,
                               uint32_t num_blocks) {
    load_first_bytes<ROUND>(job, shared);
    for (uint32_t tile = block; tile < num_tiles(job); tile += num_blocks) {
        uint32_t count = list_candidates<ROUND>(job, shared, static_cast<uint64_t>(tile) * TILE);
        if (!count) {
            if (threadIdx.x == 0) job.special_exits[tile] = 0;
            continue;
        }
        write_exits(job, shared, tile, count);
        if (threadIdx.x == 0)
            job.special_list[atomicAdd(job.special_counts + COUNT_FOUND + ROUND, 1u)] = tile;
        __syncthreads();
    }
}
