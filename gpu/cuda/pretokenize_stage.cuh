// The pretokenizer's first pass over all tiles of a batch; job.bad_tiles[0] is 0 before it. What it does
// not resolve is left to the slow way (pretokenize_tiles.cuh).
#pragma once
#include "pretokenize.cuh"

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
    uint32_t count = (ROW_END + static_cast<uint32_t>(job.num_classes)) * ROW_STRIDE, fours = count / 4;
    const uint4* from = reinterpret_cast<const uint4*>(job.entries);
    uint4* to = reinterpret_cast<uint4*>(shared.entries);
    for (uint32_t i = threadIdx.x; i < fours; i += THREADS) to[i] = __ldg(from + i);
    uint32_t rest = 4 * fours + threadIdx.x;
    if (rest < count) shared.entries[rest] = __ldg(job.entries + rest);
}

DEVICE Reader reader_of(const Job& job, const PretokenizeShared& shared) {
    return {job.text, job.num_bytes, job.hard, shared.entries, job.class_pages, job.class_table};
}

template <uint32_t THREADS = BLOCK> DEVICE Reader make_reader(const Job& job, PretokenizeShared& shared) {
    load_entries<THREADS>(job, shared);
    __syncthreads();
    return reader_of(job, shared);
}

// The first pass: a thread a chunk, a warp half a tile. Writes starts and half_states, and counts the
// halves with unresolved chunks: without these nobody asks what is far away.
DEVICE void pretokenize_stage(const Job& job, PretokenizeShared& shared, uint32_t block,
                              uint32_t num_blocks) {
    Reader reader = make_reader(job, shared);
    uint32_t lane = threadIdx.x & 31, chunks = num_tiles(job) * WORDS_A_TILE;
    uint32_t first = block * BLOCK + threadIdx.x, stride = num_blocks * BLOCK;
    Reach reach = reach_of(job.num_bytes);
    for (uint32_t i = first; i < chunks; i += stride) {
        Chunk chunk = {0, 0, true};
        if (i * 64ull < job.num_bytes) {
            chunk = pretokenize_chunk(reader, i * 64ull, reach);
            job.starts[i] = chunk.starts;
        }
        bool unresolved = __any_sync(0xFFFFFFFF, !chunk.resolved);
        // The end of the data is near enough to be walked to.
        bool empty = __all_sync(0xFFFFFFFF, !chunk.starts) && (i + 1) * 64ull <= job.num_bytes;
        if (lane < 31) continue;
        uint32_t flags = (unresolved ? UNRESOLVED : 0) | (empty ? NO_STARTS : 0);
        job.half_states[i / 32] = state_of(chunk.entry) | flags;
        if (unresolved) atomicAdd(job.bad_tiles, 1);
    }
}

// The first pass of a small batch, in which nobody else would have anything to do: a thread a quarter
// of a chunk, so that it reads less, one byte after the other. Of unresolved chunks it says only that there are.
DEVICE void pretokenize_quarters(const Job& job, const PretokenizeShared& shared, uint32_t block,
                                 uint32_t num_blocks) {
    constexpr uint32_t SIZE = CHUNK / 4;
    Reader reader = reader_of(job, shared);
    uint32_t lane = threadIdx.x & 31, quarters = num_tiles(job) * (TILE / SIZE);
    for (uint32_t i = block * BLOCK + threadIdx.x; i < quarters; i += num_blocks * BLOCK) {
        uint64_t begin = static_cast<uint64_t>(i) * SIZE;
        Chunk chunk = {0, 0, true};
        if (begin < job.num_bytes) chunk = pretokenize_chunk<SIZE>(reader, begin, far_reach());
        uint64_t starts = chunk.starts << begin % CHUNK;
        starts |= __shfl_xor_sync(0xFFFFFFFF, starts, 1);
        starts |= __shfl_xor_sync(0xFFFFFFFF, starts, 2);
        if (begin % CHUNK == 0 && begin < job.num_bytes) job.starts[begin / CHUNK] = starts;
        bool unresolved = __any_sync(0xFFFFFFFF, !chunk.resolved);
        if (lane == 31 && unresolved) atomicAdd(job.bad_tiles, 1);
    }
}
