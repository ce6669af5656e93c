// The pretokenizer's first pass over all tiles of a batch; job.pretokenizer.bad_tiles[0] is 0 before it. What it does
// not resolve is left to the slow way (text/pretokenize/tile_maps.cuh).
//
// Invariant: a good tile's start bits and the state behind it are right; every other tile is bad, and bad_tiles is not
// 0.
#pragma once
#include "common/block_reduce.cuh"
#include "text/pretokenize/automaton.cuh"

namespace warptok::text {

// Of half_states: the state behind a half tile, with these flags.
constexpr uint32_t UNRESOLVED = 0x80, NO_STARTS = 0x40, STATE_MASK = 31;

DEVICE uint32_t state_of(uint32_t entry) { return (entry & STATE_BITS) >> STATE_SHIFT; }

// Whether the rule has pending places at all; kept in an entry that no state uses.
DEVICE bool has_marks(const uint32_t* entries) { return entries[ROW_STRIDE - 1] != 0; }

struct PretokenizeShared {
    alignas(16) uint32_t entries[MAX_ROWS * ROW_STRIDE];
};

// Copies the automaton to shared memory; the whole block of THREADS calls it.
template <uint32_t THREADS = BLOCK> DEVICE void load_entries(const Job& job, PretokenizeShared& shared) {
    uint32_t count = (ROW_END + static_cast<uint32_t>(job.pretokenizer.num_classes)) * ROW_STRIDE, fours = count / 4;
    const uint4* from = reinterpret_cast<const uint4*>(job.pretokenizer.entries);
    uint4* to = reinterpret_cast<uint4*>(shared.entries);
    for (uint32_t i = threadIdx.x; i < fours; i += THREADS) to[i] = __ldg(from + i);
    uint32_t rest = 4 * fours + threadIdx.x;
    if (rest < count) shared.entries[rest] = __ldg(job.pretokenizer.entries + rest);
}

DEVICE Reader reader_of(const Job& job, const PretokenizeShared& shared) {
    return {job.batch.text, job.batch.num_bytes,          job.batch.hard,
            shared.entries, job.pretokenizer.class_pages, job.pretokenizer.class_table};
}

template <uint32_t THREADS = BLOCK> DEVICE Reader make_reader(const Job& job, PretokenizeShared& shared) {
    load_entries<THREADS>(job, shared);
    __syncthreads();
    return reader_of(job, shared);
}

// The state behind half a tile, or behind a part of one, with flags. The warp calls it, and lane 31 gets the answer.
DEVICE uint32_t half_state(const Job& job, const Chunk& chunk, uint64_t end) {
    bool unresolved = __any_sync(ALL_LANES, !chunk.resolved);
    // The end of the data is near enough to be read up to.
    bool empty = __all_sync(ALL_LANES, !chunk.starts) && end <= job.batch.num_bytes;
    return state_of(chunk.entry) | (unresolved ? UNRESOLVED : 0) | (empty ? NO_STARTS : 0);
}

// Writes half_states, and counts the halves with unresolved chunks: without these no other kernel has anything to do.
DEVICE void note_half(const Job& job, uint32_t half, uint32_t state) {
    job.pretokenizer.half_states[half] = state;
    if (state & UNRESOLVED) atomicAdd(job.pretokenizer.bad_tiles, 1);
}

// The first pass: a thread a chunk, a warp half a tile.
DEVICE void pretokenize_chunks(const Job& job, const Reader& reader, uint32_t block, uint32_t num_blocks) {
    uint32_t chunks = num_tiles(job) * WORDS_A_TILE;
    for (uint32_t i = block * BLOCK + threadIdx.x; i < chunks; i += num_blocks * BLOCK) {
        Chunk chunk = {0, 0, true};
        if (i * 64ull < job.batch.num_bytes) {
            chunk = pretokenize_chunk(reader, i * 64ull, far_reach());
            job.text.starts[i] = chunk.starts;
        }
        uint32_t state = half_state(job, chunk, (i + 1) * 64ull);
        if (lane_of_thread() == 31) note_half(job, i / 32, state);
    }
}

// A quarter of a chunk, so that a thread reads less, one byte after the other; the next three threads have the others.
constexpr uint32_t QUARTER = CHUNK / 4;
template <class Reader>
DEVICE Chunk pretokenize_quarter(const Job& job, const Reader& reader, uint64_t begin, const Reach& reach) {
    Chunk chunk = {0, 0, true};
    if (begin < job.batch.num_bytes) chunk = pretokenize_chunk<QUARTER>(reader, begin, reach);
    uint64_t starts = chunk.starts << begin % CHUNK;
    starts |= __shfl_xor_sync(ALL_LANES, starts, 1);
    starts |= __shfl_xor_sync(ALL_LANES, starts, 2);
    if (begin % CHUNK == 0 && begin < job.batch.num_bytes) job.text.starts[begin / CHUNK] = starts;
    return chunk;
}

// Puts the rows of a tile's bytes, and of those that its threads reach, into shared memory; the whole block calls it.
constexpr uint32_t AROUND_TILE = 128;      // Bytes on each side.
static_assert(near_reach().before <= AROUND_TILE && near_reach().behind + 8 <= AROUND_TILE, "are there");

DEVICE StagedReader stage_rows(const Reader& reader, uint8_t* rows, uint64_t begin) {
    uint64_t first = begin ? begin - AROUND_TILE : 0, end = begin + TILE + AROUND_TILE;
    for (uint64_t place = first + threadIdx.x * 16; place < end; place += BLOCK * 16) {
        uint64_t rest = place < reader.num_bytes ? reader.num_bytes - place : 0;
        uint4 four = {ROW_INNER * 0x01010101u, ROW_INNER * 0x01010101u, ROW_INNER * 0x01010101u,
                      ROW_INNER * 0x01010101u};
        if (rest) four = rows_at(reader, place, rest < 16 ? static_cast<uint32_t>(rest) : 16);
        *reinterpret_cast<uint4*>(rows + (place - first)) = four;
    }
    __syncthreads();
    return {reader, rows, first, end};
}

struct QuartersShared {
    alignas(16) uint8_t rows[TILE + 2 * AROUND_TILE];
    uint8_t states[BLOCK / 32];
};

// The first pass of a small batch, which has too few tiles for all warps: a block a tile.
DEVICE void pretokenize_quarters(const Job& job, const Reader& all, QuartersShared& shared, uint32_t block,
                                 uint32_t num_blocks) {
    static_assert(BLOCK * QUARTER == TILE, "a thread a quarter");
    constexpr uint32_t WARPS_A_HALF = BLOCK / 32 / 2;
    uint8_t* states = shared.states;
    for (uint32_t tile = block; tile < num_tiles(job); tile += num_blocks) {
        uint64_t tile_begin = static_cast<uint64_t>(tile) * TILE, begin = tile_begin + threadIdx.x * QUARTER;
        StagedReader reader = stage_rows(all, shared.rows, tile_begin);
        Chunk chunk = pretokenize_quarter(job, reader, begin, near_reach());
        uint32_t state = half_state(job, chunk, begin + QUARTER);
        if (lane_of_thread() == 31) states[threadIdx.x / 32] = state;
        __syncthreads();
        if (threadIdx.x < 2) {
            const uint8_t* own = states + threadIdx.x * WARPS_A_HALF;
            uint32_t either = 0, both = NO_STARTS;
            for (uint32_t i = 0; i < WARPS_A_HALF; i++) either |= own[i], both &= own[i];
            note_half(job, 2 * tile + threadIdx.x, (own[WARPS_A_HALF - 1] & STATE_MASK) | (either & UNRESOLVED) | both);
        }
        __syncthreads();
    }
}

DEVICE void pretokenize_stage(const Job& job, PretokenizeShared& shared, uint32_t block, uint32_t num_blocks) {
    SHARED QuartersShared quarters;
    Reader reader = make_reader(job, shared);
    if (is_small_batch(job)) pretokenize_quarters(job, reader, quarters, block, num_blocks);
    else pretokenize_chunks(job, reader, block, num_blocks);
}

// The first pass in a fused kernel, which reports only whether there are unresolved chunks.
DEVICE void pretokenize_once(const Job& job, const PretokenizeShared& shared, uint32_t block, uint32_t num_blocks) {
    Reader reader = reader_of(job, shared);
    uint32_t quarters = num_tiles(job) * (TILE / QUARTER);
    for (uint32_t i = block * BLOCK + threadIdx.x; i < quarters; i += num_blocks * BLOCK) {
        Chunk chunk = pretokenize_quarter(job, reader, static_cast<uint64_t>(i) * QUARTER, far_reach());
        bool unresolved = __any_sync(ALL_LANES, !chunk.resolved);
        if (lane_of_thread() == 31 && unresolved) atomicAdd(job.pretokenizer.bad_tiles, 1);
    }
}

}  // namespace warptok::text
