// The slow way of pretokenizing: tiles of text whose starts depend on far-away characters.
//
// A tile is *bad* if one of its chunks was not resolved, if no pretoken begins in it, or if the state behind it is not
// known. The last two matter only in batches with unresolved chunks. A *map* of a stretch of text gives, for each state
// that may be before it, the state behind it and the fate of a place that was pending before it. There are three steps,
// each linear in the text:
//
//     map      maps the chunks of bad tiles and of the tile behind each, all in parallel; chained, these maps
//              give the tile's map, the state before each chunk, and the fate of a place that is pending
//              there (below)
//     enter    follows the maps of tiles to the state before each bad tile (text/pretokenize/compose_maps.cuh)
//     redo     reads chunks again from the states that are known now; the maps have the fate of a place that
//              is pending at the end of a chunk (text/pretokenize/second_pass.cuh)
//
//     chunk              0            1            2          tile
//     map of state 3     5, pending   5, pending   0, commit
//     before it          3            5            5          0
//     pending there      COMMITTED    COMMITTED    COMMITTED  COMMITTED
//
// A place that is pending before a good tile is decided behind it, because the tile has a start, or the rule has no
// pending places, or the data ends in the tile. So the maps of a run and of the tile behind it suffice.
//
// Invariant: the map of a chunk is right for each state that may stand before it, and maps compose as the text does.
#pragma once
#include "text/pretokenize/first_pass.cuh"

namespace warptok::text {

constexpr uint32_t DROPPED = 0, COMMITTED = 1, PENDING = 2;
constexpr uint32_t FATE_SHIFT = 5;         // Of a chunk's map in shared memory: the state lies below.

constexpr uint32_t MAP_BLOCK = 1024;       // Threads of a block that maps tiles.

struct MapShared {
    PretokenizeShared pretokenize;
    alignas(16) uint8_t rows[TILE];
    uint8_t maps[WORDS_A_TILE][32], rests[WORDS_A_TILE][32];  // Of chunks; of what is behind their heads.
    uint32_t reached[WORDS_A_TILE];                            // The states behind the heads, a bit each.
    uint16_t numbers[MAP_BLOCK];           // The tiles to map, by their numbers among those that the block resolves.
    uint32_t count;                        // Entries of `numbers`.
};

// Whether a tile is bad; if it is not, `state` becomes the state behind it. Where the first pass is not certain of
// that, reading from further back may decide it; it matters only beside bad tiles.
DEVICE bool is_bad(const Job& job, const Reader& reader, uint32_t tile, uint32_t& state) {
    uint32_t first = job.pretokenizer.half_states[2 * tile], second = job.pretokenizer.half_states[2 * tile + 1];
    if ((first | second) & UNRESOLVED) return true;
    if ((first & second & NO_STARTS) && has_marks(reader.entries)) return true;
    state = second & STATE_MASK;
    uint64_t end = (tile + 1ull) * TILE;
    if (end >= reader.num_bytes) state = 0;  // No tile follows.
    if (state >= job.pretokenizer.num_states) state = state_of(look_back(reader, end, FIRST_LOOKBACK * 16));
    return state >= job.pretokenizer.num_states;
}

// Writes tile_state, the state behind a tile; returns whether the tile is to be mapped.
DEVICE bool resolve_tile(const Job& job, const Reader& reader, uint32_t tile) {
    uint32_t state = UNRESOLVED, other;
    bool bad = is_bad(job, reader, tile, state);
    job.pretokenizer.tile_state[tile] = bad ? UNRESOLVED : state;
    return bad || (tile && has_marks(reader.entries) && is_bad(job, reader, tile - 1, other));
}

// A way through a chunk: its state, and the top bit of what has become of a place pending before it.
struct Walk {
    uint32_t entry, pending = ~0u, committed = 0;

    DEVICE_METHOD void read(const uint32_t* entries, uint32_t row) {
        entry = step(entries, row, entry);
        committed |= entry & pending;  // The top bit is OUT_COMMIT, and OPEN_PENDING when shifted.
        pending &= entry << 30;
    }

    DEVICE_METHOD void read_four(const uint32_t* entries, uint32_t rows) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) read(entries, byte_of(rows, i));
    }

    // The chunk's map of the state that the walk began in.
    DEVICE_METHOD uint8_t map() const {
        uint32_t fate = committed >> 31 ? COMMITTED : pending >> 31 ? PENDING : DROPPED;
        return state_of(entry) | fate << FATE_SHIFT;
    }
};
static_assert(OUT_COMMIT == 1u << 31 && OPEN_PENDING << 30 == 1u << 31, "as Walk::read shifts them");

// The map of a chunk's bytes from `first` to `end`, its rows in shared memory, of one state.
DEVICE uint8_t map_part(const Reader& reader, const uint8_t* rows, uint64_t begin, uint32_t first, uint32_t end,
                        uint32_t state) {
    Walk walk = {state << STATE_SHIFT};
    if (begin >= reader.num_bytes) return walk.map();
    uint64_t hard = hard_bits<CHUNK>(reader, begin) >> first;
#pragma unroll 1
    for (uint32_t i = first; i < end; i += 16, hard >>= 16) {
        uint4 four = *reinterpret_cast<const uint4*>(rows + i);
        if (hard & 0xFFFF) {
#pragma unroll 1
            for (uint32_t k = 0; k < 16; k++) {
                if (hard >> k & 1) walk.read(reader.entries, ROW_END);
                walk.read(reader.entries, rows[i + k]);
            }
        } else {
            walk.read_four(reader.entries, four.x);
            walk.read_four(reader.entries, four.y);
            walk.read_four(reader.entries, four.z);
            walk.read_four(reader.entries, four.w);
        }
    }
    if (end == CHUNK && begin + CHUNK >= reader.num_bytes) walk.read(reader.entries, ROW_END);
    return walk.map();
}

// Maps a tile's chunks; the whole block calls it. After a chunk's head, all states before it have led to a few states:
//
//     states before    1 2 3 4 5 6       all read the head, a lane each
//     behind the head  3 3 3 7 7 3       3 and 7 read the rest
DEVICE void map_chunks(const Reader& reader, MapShared& shared, uint64_t begin, uint32_t states) {
    constexpr uint32_t HEAD = 16, SIDE_BY_SIDE = MAP_BLOCK / WORDS_A_TILE;
    uint32_t lane = threadIdx.x & 31, own = threadIdx.x % WORDS_A_TILE, number = threadIdx.x / WORDS_A_TILE;
    for (uint32_t chunk = threadIdx.x / 32; chunk < WORDS_A_TILE; chunk += MAP_BLOCK / 32) {
        uint32_t map = 0;
        if (lane < states) map = map_part(reader, shared.rows + chunk * CHUNK, begin + chunk * CHUNK, 0, HEAD, lane);
        shared.maps[chunk][lane] = map;
        uint32_t reached = __reduce_or_sync(ALL_LANES, lane < states ? 1u << (map & STATE_MASK) : 0);
        if (lane == 0) shared.reached[chunk] = reached;
    }
    __syncthreads();
    uint32_t reached = shared.reached[own];
    for (uint32_t i = 0; reached; reached &= reached - 1, i++) {
        if (i % SIDE_BY_SIDE != number) continue;
        uint32_t state = lowest_bit(reached);
        shared.rests[own][state] = map_part(reader, shared.rows + own * CHUNK, begin + own * CHUNK, HEAD, CHUNK, state);
    }
    __syncthreads();
    for (uint32_t chunk = threadIdx.x / 32; chunk < WORDS_A_TILE; chunk += MAP_BLOCK / 32) {
        uint32_t map = shared.maps[chunk][lane], rest = shared.rests[chunk][map & STATE_MASK];
        if (lane < states && map >> FATE_SHIFT != PENDING) rest = (rest & STATE_MASK) | (map & ~STATE_MASK);
        if (lane < states) shared.maps[chunk][lane] = rest;
    }
    __syncthreads();
}

// Chains the maps of a tile's chunks into the state before each chunk; a lane takes a state before the tile.
DEVICE void chain_states(const Job& job, const MapShared& shared, uint32_t tile) {
    uint32_t lane = threadIdx.x & 31, state = lane;
    uint8_t* before = job.pretokenizer.chunk_before + tile * (WORDS_A_TILE * 32ull) + lane;
#pragma unroll 8
    for (uint32_t i = 0; i < WORDS_A_TILE; i++) {
        before[i * 32] = state;
        state = shared.maps[i][state] & STATE_MASK;
    }
    job.pretokenizer.tile_function[tile * 32ull + lane] = state;
}

// Chains the maps from the tile's end into what becomes of a place pending before each chunk; a lane takes a state.
DEVICE void chain_fates(const Job& job, const MapShared& shared, uint32_t tile) {
    uint32_t lane = threadIdx.x & 31, fate = PENDING;
    uint8_t* pending = job.pretokenizer.chunk_pending + tile * (WORDS_A_TILE * 32ull) + lane;
#pragma unroll 8
    for (uint32_t i = WORDS_A_TILE; i-- > 0;) {
        uint32_t map = shared.maps[i][lane], behind = __shfl_sync(ALL_LANES, fate, map & STATE_MASK);
        fate = map >> FATE_SHIFT == PENDING ? behind : map >> FATE_SHIFT;
        pending[i * 32] = fate;
    }
    job.pretokenizer.tile_pending[tile * 32ull + lane] = fate;
}

// Maps one tile; the whole block calls it, and a thread takes a chunk and a state.
DEVICE void map_tile(const Job& job, const Reader& reader, MapShared& shared, uint32_t tile) {
    static_assert(MAP_BLOCK * 16 >= TILE, "sixteen bytes a thread");
    uint64_t begin = static_cast<uint64_t>(tile) * TILE, own = begin + threadIdx.x * 16;
    uint64_t rest = own < reader.num_bytes ? reader.num_bytes - own : 0;
    if (threadIdx.x < TILE / 16 && own - own % CHUNK < reader.num_bytes) {  // Chunks behind the end are not read.
        uint4* to = reinterpret_cast<uint4*>(shared.rows) + threadIdx.x;
        *to = rows_at(reader, own, rest < 16 ? static_cast<uint32_t>(rest) : 16);
    }
    __syncthreads();
    map_chunks(reader, shared, begin, static_cast<uint32_t>(job.pretokenizer.num_states));
    if (threadIdx.x / 32 == 0) chain_states(job, shared, tile);
    if (threadIdx.x / 32 == 1) chain_fates(job, shared, tile);
}

// Resolves all tiles, a thread per tile, and maps those that are bad or follow a bad one.
DEVICE void map_tiles_stage(const Job& job, MapShared& shared, uint32_t block, uint32_t num_blocks) {
    if (!job.pretokenizer.bad_tiles[0]) return;
    Reader reader = make_reader<MAP_BLOCK>(job, shared.pretokenize);
    uint32_t tiles = num_tiles(job);
    for (uint32_t first = block; first < tiles; first += num_blocks * MAP_BLOCK) {
        if (threadIdx.x == 0) shared.count = 0;
        __syncthreads();
        uint32_t tile = first + threadIdx.x * num_blocks;
        if (tile < tiles && resolve_tile(job, reader, tile)) shared.numbers[atomicAdd(&shared.count, 1)] = threadIdx.x;
        __syncthreads();
        uint32_t count = shared.count;
        for (uint32_t i = 0; i < count; i++) map_tile(job, reader, shared, first + shared.numbers[i] * num_blocks);
        __syncthreads();
    }
}

}  // namespace warptok::text
