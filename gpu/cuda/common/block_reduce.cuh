// Adds up values over the lanes of a warp, and over the threads of a block.
#pragma once
#include "common/job.cuh"

DEVICE uint32_t lane_of_thread() { return threadIdx.x & 31; }

// The sum of the values of this lane and all before it.
DEVICE uint32_t sum_of_lanes(uint32_t value) {
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, value, distance);
        if (lane_of_thread() >= distance) value += other;
    }
    return value;
}

// The sum of the values of all threads before this one; `total` is the sum of all. Every thread of
// the block must call it. `scratch` is uint32[THREADS / 32 + 1] of shared memory.
template <uint32_t THREADS = BLOCK>
DEVICE uint32_t sum_before(uint32_t value, uint32_t* scratch, uint32_t& total) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, inclusive = value;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, inclusive, distance);
        if (lane >= distance) inclusive += other;
    }
    if (lane == 31) scratch[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
        uint32_t sum = lane < THREADS / 32 ? scratch[lane] : 0;
        for (uint32_t distance = 1; distance < THREADS / 32; distance *= 2) {
            uint32_t other = __shfl_up_sync(ALL_LANES, sum, distance);
            if (lane >= distance) sum += other;
        }
        if (lane < THREADS / 32) scratch[lane] = sum;
    }
    __syncthreads();
    total = scratch[THREADS / 32 - 1];
    uint32_t before = warp ? scratch[warp - 1] : 0;
    __syncthreads();
    return before + inclusive - value;
}
