// A window of up to WINDOW_BYTES bytes while a warp encodes it (text/split/window_rounds.cuh): its symbols, the
// ranks of its pairs, and what each lane knows of its own.
//
// Each lane owns 8 or 16 `places`. What lies at the places of the others it learns by votes and
// shuffles, except symbols and ranks, which all may read.
#pragma once
#include "common/block_reduce.cuh"
#include "text/split/late_ranks.cuh"
#include "common/bit_masks.cuh"
#include "text/merge/merge_piece.cuh"
#include "text/split/windows_common.cuh"

namespace warptok::text {

// A warp's window in shared memory; each lane has a bank to itself.
struct WarpColumns {
    uint32_t ranks[WINDOW_BYTES];  // Of the pair that begins at a place, bounded; of a symbol's first place.
    uint32_t symbols[WINDOW_BYTES];
};

// Where a place of this lane lies in the columns.
DEVICE uint32_t index_of(uint32_t place) { return 32 * place + (threadIdx.x & 31); }

// What a lane knows of its places; bit i of a mask stands for each.
struct LanePart {
    uint32_t alive;   // A symbol begins there.
    uint32_t lower;   // Its pair's rank is lower than that of the pair in front of it, in the lane,
    uint32_t equal;   // or the same, which is a rank.
    uint32_t lowest;  // Of its pairs, bounded.
    uint32_t bound;   // The lowest of its pairs' bounds.
};

// Looks at all pairs of a lane again, eight places at a time, so that eight ranks are loaded together.
DEVICE void refresh(const WarpColumns& columns, LanePart& part, uint32_t places) {
    uint32_t before = 0;  // Nothing is lower; what stands in front of the first pair is another lane's.
    part.lower = part.equal = 0;
    part.lowest = NO_RANK;
    part.bound = HIGHEST;
#pragma unroll 1
    for (uint32_t first = 0; first < places; first += 8) {
        uint32_t alive = part.alive >> first, lower = 0, equal = 0, ranks[8];
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) ranks[i] = alive >> i & 1 ? columns.ranks[index_of(first + i)] : NO_RANK;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            if (ranks[i] < before) lower |= 1u << i;
            if (ranks[i] == before && ranks[i] != NO_RANK) equal |= 1u << i;
            part.lowest = min_of(part.lowest, ranks[i]);
            part.bound = min_of(part.bound, bound_of(ranks[i]));
            if (alive >> i & 1) before = ranks[i];
        }
        part.lower |= lower << first;
        part.equal |= equal << first;
    }
}

// Fills the columns with bytes; `length` is at most 32 * places. The ranks of eight pairs are loaded together.
DEVICE LanePart begin_window(const Merging& merging, WarpColumns& columns, const uint8_t* text,
                             uint32_t length, uint32_t places) {
    uint32_t lane = threadIdx.x & 31, first = lane * places;
#pragma unroll 1
    for (uint32_t place = 0; place < places; place += 8) {
        uint32_t ranks[8] = {}, begin = first + place;
        FiveBytes bytes[2] = {};
#pragma unroll
        for (uint32_t i = 0; i < 8; i += 4)
            if (begin + i < length) {
                bytes[i / 4] = five_bytes(text, begin + i);
                ranks_of_bytes(merging.byte_pairs, bytes[i / 4], ranks + i);
            }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            columns.symbols[index_of(place + i)] = byte_of(bytes[i / 4].four, i % 4);
            columns.ranks[index_of(place + i)] = bounded(merging.job, begin + i + 1 < length ? ranks[i] : NO_RANK);
        }
    }
    __syncwarp();
    uint32_t mine = length > first ? min_of(places, length - first) : 0;
    LanePart part = {mine == 32 ? 0xFFFFFFFFu : (1u << mine) - 1, 0, 0, NO_RANK, HIGHEST};
    refresh(columns, part, places);
    return part;
}

// The symbols of other lanes that are next to this one's: the last one before, the first one behind.
struct Neighbours {
    uint32_t before, behind;  // In the columns; NO_PAIR where there are none.
    uint32_t lane_before, lane_behind;
};

DEVICE Neighbours neighbours_of(const LanePart& part) {
    uint32_t lane = threadIdx.x & 31, filled = __ballot_sync(ALL_LANES, part.alive != 0);
    uint32_t before = filled & ((1u << lane) - 1), behind = filled & bits_above(lane);
    uint32_t lane_before = before ? highest_bit(before) : 0, lane_behind = behind ? lowest_bit(behind) : 0;
    uint32_t last = index_of(part.alive ? highest_bit(part.alive) : 0);
    uint32_t first = index_of(part.alive ? lowest_bit(part.alive) : 0);
    last = __shfl_sync(ALL_LANES, last, lane_before);
    first = __shfl_sync(ALL_LANES, first, lane_behind);
    return {before ? last : NO_PAIR, behind ? first : NO_PAIR, lane_before, lane_behind};
}

}  // namespace warptok::text
