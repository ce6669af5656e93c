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
// its orbit is 0 2 3. Orbits are followed by doubling, 1 2 4 ... candidates at a time, so that a
// text of nothing but tokens takes no longer than its logarithm.
//
// Invariant: which tokens of a tile are accepted depends on nothing of the tiles before it but how many of its bytes
// they take.
#pragma once
#include "common/block_reduce.cuh"
#include "batch/rows.cuh"
#include "special/trie.cuh"

constexpr uint32_t COUNT_FOUND = 0;        // special_counts[2]: tiles with candidates, by round.
constexpr uint32_t COUNT_VARYING = 2;      // special_counts[2]: those that need a table.
constexpr uint32_t COUNT_ACCEPTED = 4;     // Not 0 where any token was accepted.
constexpr uint32_t VARIES = 1u << 15;      // In special_exits: there is a table.
static_assert(MAX_SPECIAL <= BLOCK && MAX_SPECIAL <= TILE, "a thread an entry, no tile is skipped");

// A candidate: its place in the tile, how many further the next one of its orbit is - 1, its bytes
// - 1, and two flags.
constexpr uint32_t NEXT_SHIFT = 12, LENGTH_SHIFT = 20;
constexpr uint32_t ORDINARY = 1u << 28;    // special=False: found in plain text, too.
constexpr uint32_t ON_ORBIT = 1u << 29;    // It counts.

// An entry of special_list: a tile and how many candidates it has, the first ones of the tile's
// part of special_matches.
constexpr uint32_t LIST_COUNT_SHIFT = 32;

struct OrbitShared {
    uint32_t matches[TILE];                // By number.
    uint16_t jumps[TILE];                  // By number: one further on in its orbit.
    uint32_t entry;                        // The first one that counts.
};

struct SpecialShared {
    OrbitShared orbits;
    uint4 text[BLOCK + MAX_SPECIAL / 16 + 1];
    uint32_t first[16];                    // Bits of first bytes, of second ones.
    uint16_t masks[BLOCK], before[BLOCK];  // Candidates of each 16 bytes, and how many before them.
    uint32_t scratch[BLOCK / 32 + 1];
    uint32_t exit;
};

DEVICE uint32_t place_of(uint32_t match) { return match & (TILE - 1); }
DEVICE uint32_t bytes_of(uint32_t match) { return (match >> LENGTH_SHIFT & 0xFF) + 1; }
DEVICE uint32_t end_of(uint32_t match) { return place_of(match) + bytes_of(match); }
DEVICE uint32_t next_of(uint32_t match) { return (match >> NEXT_SHIFT & 0xFF) + 1; }

DEVICE uint4 load_sixteen(const Job& job, uint64_t begin) {
    if (begin >= job.batch.num_bytes) return {0, 0, 0, 0};
    return *reinterpret_cast<const uint4*>(job.batch.text + begin);
}

// Which of 16 bytes have a bit.
DEVICE uint32_t bytes_in(const uint32_t* bits, const uint32_t words[4]) {
    uint32_t found = 0;
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t byte = words[i / 4] >> (i % 4 * 8) & 0xFF;
        found |= (bits[byte / 32] >> byte % 32 & 1) << i;
    }
    return found;
}

// Which of a thread's 16 bytes are a token's first one, in front of one that may follow it.
template <uint32_t ROUND>
DEVICE uint32_t possible_begins(const Job& job, const uint32_t* first, uint64_t begin, uint4 vector) {
    if (begin >= job.batch.num_bytes) return 0;
    uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w}, found = bytes_in(first, words);
    if (found) {
        uint32_t next = job.batch.text[begin + 16];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) words[i] = shift_right(words[i], i < 3 ? words[i + 1] : next, 8);
        found &= bytes_in(first + 8, words);
    }
    if (ROUND) found |= static_cast<uint32_t>(job.special.special[begin / 64] >> begin % 64) & 0xFFFF;
    return job.batch.num_bytes - begin < 16 ? found & ((1u << (job.batch.num_bytes - begin)) - 1) : found;
}

// Matches at the places `found` of a thread's 16 bytes, kept in jumps by place; which are some.
template <uint32_t ROUND>
DEVICE uint32_t match_sixteen(const Job& job, SpecialShared& shared, uint64_t tile_begin,
                              uint32_t found) {
    const uint32_t* text = reinterpret_cast<const uint32_t*>(shared.text);
    uint32_t matched = 0;
    for (; found; found &= found - 1) {
        uint32_t i = lowest_bit(found), place = threadIdx.x * 16 + i;
        SpecialMatch match = match_special<ROUND>(job, tile_begin, text, place);
        if (!match.length) continue;
        matched |= 1u << i;
        shared.orbits.jumps[place] = (match.length - 1) | match.ordinary << 8;
    }
    return matched;
}

// The number of the first candidate at or behind a place in the tile.
DEVICE uint32_t candidate_from(const SpecialShared& shared, uint32_t place) {
    uint32_t mask = shared.masks[place / 16] & ((1u << place % 16) - 1);
    return shared.before[place / 16] + count_bits(mask);
}

// Lists a tile's candidates in order; returns how many there are. The whole block calls it.
template <uint32_t ROUND>
DEVICE uint32_t list_candidates(const Job& job, SpecialShared& shared, uint64_t tile_begin) {
    uint64_t begin = tile_begin + threadIdx.x * 16;
    uint4 vector = load_sixteen(job, begin);
    uint32_t found = possible_begins<ROUND>(job, shared.first, begin, vector), total;
    if (!__syncthreads_or(found)) return 0;
    shared.text[threadIdx.x] = vector;
    if (threadIdx.x <= MAX_SPECIAL / 16)
        shared.text[BLOCK + threadIdx.x] = load_sixteen(job, begin + TILE);
    __syncthreads();
    uint32_t matched = match_sixteen<ROUND>(job, shared, tile_begin, found);
    uint32_t number = sum_before(count_bits(matched), shared.scratch, total);
    shared.masks[threadIdx.x] = matched;
    shared.before[threadIdx.x] = number;
    __syncthreads();
    for (; matched; matched &= matched - 1, number++) {
        uint32_t place = threadIdx.x * 16 + lowest_bit(matched), kept = shared.orbits.jumps[place];
        uint32_t match = place | (kept & 0xFF) << LENGTH_SHIFT | (kept & 0x100 ? ORDINARY : 0);
        uint32_t next = end_of(match) < TILE ? candidate_from(shared, end_of(match)) : total;
        shared.orbits.matches[number] = match | (next - number - 1) << NEXT_SHIFT;
    }
    __syncthreads();
    return total;
}

// Follows all orbits to the tile's end: jumps leads to the last candidate of each. What is reached
// from one that is ON_ORBIT gets that bit, too. The whole block calls it; a step reads all, waits, and writes all.
//
//     candidate      0 1 2 3 4        the next one of each: 2 3 3 4, none
//     jumps          2 3 3 4 4        at first; 2 gets ON_ORBIT, as 0 has it
//                    3 4 4 4 4        3 and 4 get it, from 0 and from 2: the orbit of 0 is 0 2 3 4
//                    4 4 4 4 4        of each the last one
DEVICE void follow_orbits(OrbitShared& shared, uint32_t count) {
    constexpr uint32_t ITEMS = TILE / BLOCK, MARKS = 1u << 31;
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK) {
        uint32_t next = i + next_of(shared.matches[i]);
        shared.jumps[i] = next < count ? next : i;
    }
    __syncthreads();
    for (uint32_t distance = 1; distance < count; distance *= 2) {
        uint32_t moves[ITEMS];             // To the next one, and from there on.
#pragma unroll
        for (uint32_t k = 0; k < ITEMS; k++) {
            uint32_t i = threadIdx.x + k * BLOCK;
            if (i >= count) break;
            uint32_t next = shared.jumps[i];
            moves[k] = next << 16 | shared.jumps[next] | (shared.matches[i] & ON_ORBIT ? MARKS : 0);
        }
        __syncthreads();
#pragma unroll
        for (uint32_t k = 0; k < ITEMS; k++) {
            uint32_t i = threadIdx.x + k * BLOCK;
            if (i >= count) break;
            if (moves[k] & MARKS) atomicOr(&shared.matches[moves[k] >> 16 & (TILE - 1)], ON_ORBIT);
            shared.jumps[i] = moves[k] & (TILE - 1);
        }
        __syncthreads();
    }
}

// Whether any two of a tile's candidates overlap.
DEVICE bool any_overlap(const OrbitShared& shared, uint32_t count) {
    bool overlap = false;
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK) overlap |= next_of(shared.matches[i]) > 1;
    return __syncthreads_or(overlap);
}

// Bytes of the next tile that the orbit takes on which a candidate is the last one.
DEVICE uint32_t exit_of(uint32_t match) { return end_of(match) > TILE ? end_of(match) - TILE : 0; }

// Writes what a tile with candidates takes of the next one. Without overlaps all orbits end alike.
template <uint32_t ROUND>
DEVICE void write_exits(const Job& job, SpecialShared& shared, uint32_t tile, uint32_t count) {
    OrbitShared& orbits = shared.orbits;
    bool crosses = false, varies = false;
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK)
        crosses |= exit_of(orbits.matches[i]) != 0;
    if (threadIdx.x == 0) shared.exit = exit_of(orbits.matches[count - 1]);
    if (__syncthreads_or(crosses) && any_overlap(orbits, count)) {
        follow_orbits(orbits, count);
        uint32_t entry = candidate_from(shared, threadIdx.x);
        uint32_t exit = entry < count ? exit_of(orbits.matches[orbits.jumps[entry]]) : 0;
        if (threadIdx.x == 0) shared.exit = exit;
        __syncthreads();
        varies = __syncthreads_or(exit != shared.exit);
        if (varies) job.special.special_function[tile * 256ull + threadIdx.x] = exit;
    }
    if (threadIdx.x == 0) job.special.special_exits[tile] = varies ? VARIES : shared.exit;
    if (threadIdx.x == 0 && varies) atomicAdd(job.special.special_counts + COUNT_VARYING + ROUND, 1u);
}

// Hands a tile's candidates on to the steps that follow.
template <uint32_t ROUND>
DEVICE void write_candidates(const Job& job, const SpecialShared& shared, uint32_t tile,
                             uint32_t count) {
    uint32_t* to = job.special.special_matches + static_cast<uint64_t>(tile) * TILE;
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK) to[i] = shared.orbits.matches[i];
    if (threadIdx.x) return;
    uint32_t number = atomicAdd(job.special.special_counts + COUNT_FOUND + ROUND, 1u);
    job.special.special_list[number] = static_cast<uint64_t>(count) << LIST_COUNT_SHIFT | tile;
}

template <uint32_t ROUND>
DEVICE void find_special_stage(const Job& job, SpecialShared& shared, uint32_t block,
                               uint32_t num_blocks) {
    if (threadIdx.x < 16) shared.first[threadIdx.x] = job.special.special_first[ROUND * 16 + threadIdx.x];
    __syncthreads();
    for (uint32_t tile = block; tile < num_tiles(job); tile += num_blocks) {
        uint32_t count = list_candidates<ROUND>(job, shared, static_cast<uint64_t>(tile) * TILE);
        if (count) {
            write_candidates<ROUND>(job, shared, tile, count);
            write_exits<ROUND>(job, shared, tile, count);
            __syncthreads();
        } else if (threadIdx.x == 0) {
            job.special.special_exits[tile] = 0;
        }
    }
}
