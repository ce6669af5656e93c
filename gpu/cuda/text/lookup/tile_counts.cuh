// Parts of tiles: in a small batch, which has fewer tiles than warps, a warp handles the pieces of a part.
//
//     pieces of a tile    0 1 2 3  4 5 6 7  8 9         parts of four; the third has two pieces, the others none
//
// Invariant: behind looking up and merging, tile_counts holds what count_tiles would write.
#pragma once
#include "text/lookup/implicit_pieces.cuh"
#include "text/lookup/launch_policy.cuh"

namespace warptok::text {

constexpr uint32_t SMALL_PARTS = 8;        // Of a tile in small batches, and
constexpr uint32_t ONE_PART = 1;           // in others.

template <uint32_t PARTS> DEVICE uint32_t size_of_part(uint32_t pieces) {
    if (PARTS == ONE_PART) return TILE;
    return pieces <= 4 * PARTS ? 4 : (pieces + 4 * PARTS - 1) / (4 * PARTS) * 4;  // They are read by fours.
}

// Counts the ids of the parts of a tile, where the launch does so; a miss counts as one until it is merged. The block
// waits between `add` and `write`.
template <class Policy> struct PartIds {
    uint32_t* more;                        // uint32[SMALL_PARTS] of shared memory: ids of implicit pieces beyond one.
    uint32_t size;                         // Pieces of a part.

    DEVICE_METHOD void add(uint32_t number, uint32_t record) const {
        if (Policy::COUNTS_IDS && is_small(record)) atomicAdd(more + number / size, small_count(record) - 1);
    }

    DEVICE_METHOD void write(uint32_t* tile_counts, uint32_t pieces) const {
        uint32_t part = threadIdx.x, first = min_of(part * size, pieces);
        if (Policy::COUNTS_IDS && part < SMALL_PARTS) tile_counts[part] = min_of(size, pieces - first) + more[part];
    }
};

}  // namespace warptok::text
