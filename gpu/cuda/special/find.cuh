// Finds special tokens in the text: leftmost, longest, without overlaps, each exactly one piece.
//
// A *candidate* is a place where some token matches; its token is the longest one there. The first candidate counts,
// then the first one at or behind its end, and so on: these are an *orbit*. Which orbit of a tile counts depends on how
// many of its first bytes the last token of the tile before covers. So there are three steps, each for all tiles at
// once:
//
//     find     lists a tile's candidates. Where its orbits cover different numbers of bytes of the next tile, writes a
//              table of these numbers by how many bytes the tile before covers of this one
//     enter    follows the tables over neighbouring tiles that have one
//     accept   accepts the candidates on the tile's orbit
//
// Example, tokens "ab" "bc" "c": the text abcbc has the candidates 0 1 2 3 4 of 2 2 1 2 1 bytes; its orbit is 0 2 3.
// Orbits are followed by doubling, 1 2 4 ... candidates at a time, so that a tile full of tokens takes a number of
// steps that is the logarithm of theirs.
//
// Invariant: which tokens of a tile are accepted depends on the tiles before it only by how many of its bytes they
// cover.
#pragma once
#include "common/block_reduce.cuh"
#include "batch/rows.cuh"
#include "special/trie.cuh"

// Words of special_counts.
constexpr uint32_t COUNT_FOUND = 0;        // Two words, one for each round: tiles with candidates.
constexpr uint32_t COUNT_VARYING = 2;      // Two words, one for each round: tiles with a table.
constexpr uint32_t COUNT_ACCEPTED = 4;     // Not 0: a token was accepted.
constexpr uint32_t VARIES = 1u << 15;      // Of special_exits: there is a table.
static_assert(MAX_SPECIAL <= BLOCK && MAX_SPECIAL <= TILE, "a thread an entry, no tile is skipped");

// A candidate is one word: its place in the tile | (next - number - 1) << NEXT_SHIFT | (bytes - 1) << LENGTH_SHIFT |
// flags, where `next` is the number of the next candidate of its orbit.
constexpr uint32_t NEXT_SHIFT = 12, LENGTH_SHIFT = 20;
constexpr uint32_t ORDINARY = 1u << 28;    // special=False: the token is matched in plain text, too.
constexpr uint32_t ON_ORBIT = 1u << 29;    // The candidate counts.

// An entry of special_list: a tile | how many candidates it has << LIST_COUNT_SHIFT. They are the first entries of the
// tile's row of special_matches.
constexpr uint32_t LIST_COUNT_SHIFT = 32;

struct OrbitShared {
    uint32_t matches[TILE];                // The tile's candidates, by number.
    uint16_t jumps[TILE];                  // By number: a candidate further on in the same orbit.
    uint32_t entry;                        // The number of the first candidate that counts.
};

struct SpecialShared {
    OrbitShared orbits;
    uint4 text[BLOCK + MAX_SPECIAL / 16 + 1];  // The tile's bytes, and those behind it that a token may reach.
    uint32_t first[16];                    // special_first of the round.
    uint16_t masks[BLOCK], before[BLOCK];  // Bits of the candidates among each 16 bytes, and how many are before them.
    uint32_t scratch[BLOCK / 32 + 1];
    uint32_t exit;                         // Bytes of the next tile that an orbit of this one covers.
};

DEVICE uint32_t place_of(uint32_t match) { return match & (TILE - 1); }
DEVICE uint32_t bytes_of(uint32_t match) { return (match >> LENGTH_SHIFT & 0xFF) + 1; }
DEVICE uint32_t end_of(uint32_t match) { return place_of(match) + bytes_of(match); }
DEVICE uint32_t next_of(uint32_t match) { return (match >> NEXT_SHIFT & 0xFF) + 1; }

DEVICE uint4 load_sixteen(const Job& job, uint64_t begin) {
    if (begin >= job.batch.num_bytes) return {0, 0, 0, 0};
    return *reinterpret_cast<const uint4*>(job.batch.text + begin);
}

// Bits of 16 bytes: the byte's bit in `bits` is set.
DEVICE uint32_t bytes_in(const uint32_t* bits, const uint32_t words[4]) {
    uint32_t found = 0;
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t byte = words[i / 4] >> (i % 4 * 8) & 0xFF;
        found |= (bits[byte / 32] >> byte % 32 & 1) << i;
    }
    return found;
}

// Bits of a thread's 16 bytes at which a token may begin, by its first two bytes.
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

// Looks for a token at each of the places `found` of a thread's 16 bytes. Returns bits of those that have one, whose
// lengths lie in `jumps`, by place.
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

// Follows all orbits to the tile's end, so that `jumps` leads to the last candidate of each. A candidate that is
// reached from one that is ON_ORBIT gets that bit, too. The whole block calls it; each step reads all, waits, and
// writes all.
//
//     candidate      0 1 2 3 4        the next one of each: 2 3 3 4, none
//     jumps          2 3 3 4 4        at first; 2 gets ON_ORBIT, as 0 has it
//                    3 4 4 4 4        3 and 4 get it, from 0 and from 2: the orbit of 0 is 0 2 3 4
//                    4 4 4 4 4        the last one of each
DEVICE void follow_orbits(OrbitShared& shared, uint32_t count) {
    constexpr uint32_t ITEMS = TILE / BLOCK, MARKS = 1u << 31;
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK) {
        uint32_t next = i + next_of(shared.matches[i]);
        shared.jumps[i] = next < count ? next : i;
    }
    __syncthreads();
    for (uint32_t distance = 1; distance < count; distance *= 2) {
        uint32_t moves[ITEMS];             // jumps[i] << 16 | jumps[jumps[i]], for the thread's candidates.
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

// Bytes of the next tile that an orbit covers whose last candidate is this one.
DEVICE uint32_t exit_of(uint32_t match) { return end_of(match) > TILE ? end_of(match) - TILE : 0; }

// Writes how many bytes of the next tile a tile with candidates covers. Without overlaps all its orbits cover the same.
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

// Writes a tile's candidates for the steps that follow.
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
