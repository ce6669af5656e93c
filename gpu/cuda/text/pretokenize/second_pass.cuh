// Reads the chunks again that the first pass did not resolve, from the states before them, which are known now.
//
// Invariant: behind the second pass the start bits of all tiles are right.
#pragma once
#include "text/pretokenize/tile_maps.cuh"

namespace warptok::text {

// Returns how many tiles from `tile` on leave a state and a pending place unchanged. They are of one run, since the
// tile behind a run leaves nothing pending. The whole warp reads, so that many loads are in flight.
constexpr uint32_t PASS_LOADS = 4, PASS_STEP = PASS_LOADS * 32;
DEVICE uint32_t tiles_passed(const Job& job, uint32_t tile, uint32_t state) {
    uint32_t begin = tile, tiles = num_tiles(job);
    for (;; tile += PASS_STEP) {
        uint32_t first = PASS_STEP;  // The first one that does not.
#pragma unroll
        for (uint32_t i = PASS_LOADS; i-- > 0;) {
            uint32_t number = i * 32 + (threadIdx.x & 31), own = tile + number;
            uint64_t way = own * 32ull + state;
            if (own >= tiles || job.pretokenizer.tile_function[way] != state ||
                job.pretokenizer.tile_pending[way] != PENDING)
                first = number;
        }
        first = __reduce_min_sync(ALL_LANES, first);
        if (first < PASS_STEP) return tile + first - begin;
    }
}

// Whether a pretoken begins at a place that is pending before a tile behind a bad one.
DEVICE bool is_committed(const Job& job, uint32_t tile, uint32_t state) {
    while (tile < num_tiles(job)) {
        uint64_t way = tile * 32ull + state;
        uint32_t fate = job.pretokenizer.tile_pending[way];
        if (fate != PENDING) return fate == COMMITTED;
        uint32_t after = job.pretokenizer.tile_function[way];
        tile += 1 + (after == state ? tiles_passed(job, tile + 1, state) : 0);
        state = after;
    }
    return false;
}

// The starts of a chunk that is read from the state `entry` on, without its pending place. `marked` becomes the bit of
// that place, 0 if there is none, and `entry` the last entry.
DEVICE uint64_t redo_chunk(const Reader& reader, uint64_t begin, uint32_t& entry, uint64_t& marked) {
    uint32_t doubt = 0, next = 0;
    Outputs bits = read_chunk(reader, begin, entry, doubt);
    uint64_t starts = starts_inside(bits) | text_begins(reader, begin), place = begin + CHUNK;
    bool ended;
    if (entry & OPEN_PREV) next = read_next(reader, place, entry, ended);
    if (next & OUT_START_PREV) starts |= last_character(bits);
    marked = bits.mark && (entry & OPEN_PENDING) ? 1ull << highest_bit(bits.mark) : 0;
    return starts;
}

// What becomes of a place that is pending behind a chunk; PENDING if that is decided behind the chunk's tile.
DEVICE uint32_t fate_behind(const Job& job, const Reader& reader, uint32_t chunk, uint32_t entry) {
    if ((chunk + 1ull) * CHUNK >= reader.num_bytes)
        return step(reader.entries, ROW_END, entry) & OUT_COMMIT ? COMMITTED : DROPPED;
    if ((chunk + 1) % WORDS_A_TILE == 0) return PENDING;
    return job.pretokenizer.chunk_pending[(chunk + 1) * 32ull + state_of(entry)];
}

// Reads the unresolved chunks, a thread a chunk and a warp half a tile. At most the last pending place of a half is
// decided behind it.
DEVICE void redo_tiles_stage(const Job& job, PretokenizeShared& shared, uint32_t block,
                             uint32_t num_blocks) {
    if (!job.pretokenizer.bad_tiles[0]) return;
    Reader reader = make_reader(job, shared);
    uint32_t chunks = num_tiles(job) * WORDS_A_TILE, stride = num_blocks * BLOCK;
    for (uint32_t i = block * BLOCK + threadIdx.x; i < chunks; i += stride) {
        if (!(job.pretokenizer.half_states[i / 32] & UNRESOLVED)) continue;
        uint32_t tile = i / WORDS_A_TILE, before = job.pretokenizer.tile_entry[tile], fate = DROPPED;
        uint64_t begin = i * static_cast<uint64_t>(CHUNK), starts = 0, marked = 0;
        if (begin < reader.num_bytes) {
            uint32_t entry = job.pretokenizer.chunk_before[i * 32ull + before] << STATE_SHIFT;
            starts = redo_chunk(reader, begin, entry, marked);
            if (marked) fate = fate_behind(job, reader, i, entry);
        }
        if (__any_sync(ALL_LANES, fate == PENDING) &&
            is_committed(job, tile + 1, job.pretokenizer.tile_function[tile * 32ull + before]) && fate == PENDING)
            fate = COMMITTED;
        if (fate == COMMITTED) starts |= marked;
        if (begin < reader.num_bytes) job.text.starts[i] = starts;
    }
}

}  // namespace warptok::text
