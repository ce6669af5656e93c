// Finds the state before each bad tile from the maps of tiles.
//
// A block has a *stretch* of as many tiles as it has threads, and each warp 32 of them. A good tile has a map, too: it
// leads from every state to its own. A warp chains its maps, a lane for each state, gets the state before its first
// tile from the warps before it, and then goes through its tiles again. Where the state before the stretch is not
// known, it stays ANYWHERE up to the first good tile:
//
//     tile         0   1    2    3   4        G  good, the state 4 behind it
//     map          G4  m1   m2   G4  m4       B  bad
//     before it    ?   4    m1(4)    4        ?  not known here; the block of an earlier stretch says
//
// A run that goes on behind the stretch is followed by the block that it begins with.
//
// Invariant: the state before a tile follows from the good tile in front of it and the maps between them alone.
#pragma once
#include "text/pretokenize/tile_maps.cuh"

namespace warptok::text {

constexpr uint32_t ENTER_BLOCK = 1024;     // Threads of a block at most.

struct RunsShared {
    uint8_t functions[ENTER_BLOCK / 32][32];  // The maps of each warp's tiles, chained.
};

// The maps of a warp's tiles, a lane a state before each.
struct TileMaps {
    uint32_t functions[32];

    // `behind` is what the lane's own tile leaves if it is none of the `bad` ones.
    DEVICE_METHOD void load(const Job& job, uint32_t first, uint32_t bad, uint32_t behind) {
        uint32_t lane = threadIdx.x & 31;
#pragma unroll
        for (uint32_t i = 0; i < 32; i++) {
            functions[i] = __shfl_sync(ALL_LANES, behind, i);
            if (bad >> i & 1)
                functions[i] = lane == ANYWHERE ? ANYWHERE : job.pretokenizer.tile_function[(first + i) * 32ull + lane];
        }
    }

    // The state behind all tiles; `before` is then the one before the lane's own tile.
    DEVICE_METHOD uint32_t follow(uint32_t state, uint32_t& before) const {
#pragma unroll
        for (uint32_t i = 0; i < 32; i++) {
            if ((threadIdx.x & 31) == i) before = state;
            state = __shfl_sync(ALL_LANES, functions[i], state);
        }
        return state;
    }
};

// Writes tile_entry of the bad tiles of the stretch that begins with tile `first`: of those at its begin, before which
// the state is `state`, and, if `has_good`, of those behind good tiles. Returns whether a run goes on behind the
// stretch and its state there is known; `state` is then that state. The whole block calls it.
DEVICE bool enter_stretch(const Job& job, RunsShared& shared, uint32_t first, bool has_good,
                          uint32_t& state) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, tile = first + threadIdx.x;
    uint32_t before = ANYWHERE, behind = tile < num_tiles(job) ? job.pretokenizer.tile_state[tile] : 0;
    bool own_bad = behind == UNRESOLVED;
    uint32_t bad = __ballot_sync(ALL_LANES, own_bad);
    if (!__syncthreads_or(own_bad)) return false;
    if (!has_good) behind = ANYWHERE;
    TileMaps maps;
    if (bad) maps.load(job, first + warp * 32, bad, behind);
    uint32_t last = __shfl_sync(ALL_LANES, behind, 31);
    shared.functions[warp][lane] = bad ? maps.follow(lane, before) : last;
    __syncthreads();
    for (uint32_t i = 0; i < warp; i++) state = shared.functions[i][state];
    if (bad) maps.follow(state, before);
    if (own_bad && before != ANYWHERE) job.pretokenizer.tile_entry[tile] = before;
    for (uint32_t i = warp; i < blockDim.x / 32; i++) state = shared.functions[i][state];
    return __syncthreads_or(own_bad && state != ANYWHERE && threadIdx.x == blockDim.x - 1);
}

DEVICE void enter_runs_stage(const Job& job, RunsShared& shared, uint32_t block, uint32_t num_blocks) {
    if (!job.pretokenizer.bad_tiles[0]) return;
    uint32_t stretch = blockDim.x;
    for (uint32_t first = block * stretch; first < num_tiles(job); first += num_blocks * stretch) {
        uint32_t next = first, state = first ? job.pretokenizer.tile_state[first - 1] : 0;
        if (state == UNRESOLVED) state = ANYWHERE;
        while (enter_stretch(job, shared, next, next == first, state)) next += stretch;
    }
}

}  // namespace warptok::text
