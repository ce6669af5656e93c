// Running sums over any number of values, in one pass by any number of blocks.
//
// Decoupled look-back (Merrill and Garland, 2016): a block claims the next tile of values, publishes their sum, adds up
// what the tiles before it have published, and publishes the sum of all values up to its end.
//
//     values 3 1 | 4 1 | 5      sums before 0 3 | 4 8 | 9, and 14 at the end
//
// A tile has a *state*: one word that holds both a sum and its kind, so that a reader sees the two together. It is
// first 0, then the tile's own sum, then the sum of all values up to its end. A tile looks back to the nearest state of
// the last kind, 32 states at a time, lane 0 at the tile before:
//
//     tile        5          6          7          8                looks back at 7, 6, 5
//     state       to end 40  sum 3      sum 9      ?                before it are 40 + 3 + 9
//
// Invariant: tiles are claimed in order, so that a block only waits for blocks that are running.
#pragma once
#include "common/block_reduce.cuh"

constexpr uint32_t SCAN_ITEMS = 8;         // Values of a thread.
constexpr uint32_t SCAN_TILE = SCAN_ITEMS * BLOCK;
constexpr uint64_t TILE_SUM = 1ull << 62;  // A state holds the sum of one tile ...
constexpr uint64_t SUM_TO_END = 1ull << 63;  // ... or of all tiles up to its end, below these bits.
constexpr uint64_t SUM_BITS = TILE_SUM - 1;

struct ScanShared {
    uint64_t warp_sums[BLOCK / 32];
    uint64_t before;
    uint32_t tile;
};

// The tiles of a scan of `count` values; the end counts as one more value.
DEVICE uint64_t scan_tiles(uint64_t count) { return count / SCAN_TILE + 1; }

// The sum over a warp, for all its threads.
DEVICE uint64_t sum_of_warp(uint64_t value) {
    for (uint32_t distance = 16; distance; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// The sum of all tiles before one; a whole warp calls it. Waits while a state is 0: its tile was claimed before, by a
// block that runs. Lanes that look in front of the first tile see a sum of 0 up to its end.
DEVICE uint64_t sum_of_tiles_before(const uint64_t* states, uint64_t tile) {
    uint64_t lane = threadIdx.x & 31, before = 0;
    for (uint64_t end = tile; end; end -= end < 32 ? end : 32) {
        uint64_t state = lane < end ? 0 : SUM_TO_END;
        for (; !state; give_way()) state = load_volatile(states + end - 1 - lane);
        __syncwarp();
        uint32_t ends = __ballot_sync(ALL_LANES, (state & SUM_TO_END) != 0);
        bool counts = !ends || lane <= lowest_bit(ends);
        before += sum_of_warp(counts ? state & SUM_BITS : 0);
        if (ends) break;
    }
    return before;
}

// Publishes the sum of a tile; returns the sum of all tiles before it. A whole warp calls it.
DEVICE uint64_t publish_tile(uint64_t* states, uint64_t tile, uint64_t sum) {
    bool writes = (threadIdx.x & 31) == 0;
    if (writes) store_volatile(states + tile, TILE_SUM | sum);
    uint64_t before = sum_of_tiles_before(states, tile);
    if (writes) store_volatile(states + tile, SUM_TO_END | (before + sum));
    return before;
}

// The sum of the values of all warps of the block before this one, and of all tiles before it.
DEVICE uint64_t sum_before_warp(uint64_t* states, ScanShared& shared, uint64_t warp_sum) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    if (lane == 0) shared.warp_sums[warp] = warp_sum;
    __syncthreads();
    uint64_t before = 0, total = 0;
    for (uint32_t i = 0; i < BLOCK / 32; i++) {
        if (i == warp) before = total;
        total += shared.warp_sums[i];
    }
    if (warp == 0) {
        uint64_t tiles = publish_tile(states, shared.tile, total);
        if (lane == 0) shared.before = tiles;
    }
    __syncthreads();
    return shared.before + before;
}

// Calls write(i, sum of value(0) .. value(i - 1)) for i = 0 .. count. The whole block calls it.
//
// `states` is uint64[scan_tiles(count) + 1], zeros before; the first word counts the tiles that are claimed. A warp has
// neighbouring values, 32 at a time, whose sums are of type Sum. Returns how many tiles the block claimed.
template <class Sum = uint64_t, class Value, class Write>
DEVICE uint64_t scan(uint64_t* states, uint64_t count, ScanShared& shared, Value value, Write write) {
    uint32_t lane = threadIdx.x & 31;
    for (uint64_t own = 0;; own++) {
        if (threadIdx.x == 0) shared.tile = static_cast<uint32_t>(atomic_add(states, 1));
        __syncthreads();
        if (shared.tile >= scan_tiles(count)) return own;
        uint64_t first = static_cast<uint64_t>(shared.tile) * SCAN_TILE;
        first += threadIdx.x / 32 * (32 * SCAN_ITEMS) + lane;
        Sum befores[SCAN_ITEMS], sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < SCAN_ITEMS; i++)
            befores[i] = first + 32 * i < count ? value(first + 32 * i) : 0;
#pragma unroll
        for (uint32_t i = 0; i < SCAN_ITEMS; i++) {
            Sum inclusive = befores[i];
            for (uint32_t distance = 1; distance < 32; distance *= 2) {
                Sum other = __shfl_up_sync(ALL_LANES, inclusive, distance);
                if (lane >= distance) inclusive += other;
            }
            befores[i] = sum + inclusive - befores[i];
            sum += __shfl_sync(ALL_LANES, inclusive, 31);
        }
        uint64_t before = sum_before_warp(states + 1, shared, sum);
#pragma unroll
        for (uint32_t i = 0; i < SCAN_ITEMS; i++)
            if (first + 32 * i <= count) write(first + 32 * i, before + befores[i]);
    }
}
