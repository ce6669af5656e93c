// Adds up the changes that a merge makes, in shared memory first, because the first merges have tens of millions of
// occurrences that all change the same few counts.
//
// Each id that stands beside an occurrence has, for each of its two sides, 1 sum or SUMS_OF_PLACED sums:
//
//     0        how often it stands there
//     1, 2     bonus and penalty of the pairs that go
//     3, 4     bonus and penalty of the pairs that come
//
// Ids below a bound have their sums in shared memory, as two halves of 32 bits with a carry. Those of other ids are
// added in device memory at once: later ids are rarer and have many different neighbours.
//
// Invariant: after flush_neighbours the table in device memory has all sums of the block.
#pragma once
#include "training/job.cuh"

constexpr uint32_t HOT_SUMS = 2048;          // Sums of a block in shared memory, 8 bytes each.

struct SumsShared {
    uint32_t halves[2 * HOT_SUMS];
};

// The bonus and the penalty of a stretch.
struct Figures {
    uint64_t bonus, penalty;
};

// Adds to a sum in shared memory, whose halves wrap as one number of 64 bits does.
DEVICE void add_hot(uint32_t* halves, uint64_t value) {
    uint32_t low = static_cast<uint32_t>(value), high = static_cast<uint32_t>(value >> 32);
    uint32_t old = atomicAdd(halves, low);
    high += static_cast<uint32_t>(old + low) < low;
    if (high) atomicAdd(halves + 1, high);
}

DEVICE uint64_t hot_sum(const uint32_t* halves) {
    return halves[0] | static_cast<uint64_t>(halves[1]) << 32;
}

// The bonus and the penalty of the stretch [begin, end): SpanScores.measure.
DEVICE Figures measure(const TrainJob& job, uint32_t begin, uint32_t end) {
    Figures figures = {0, 0};
    const int32_t* table = job.span_tables;
    uint64_t size = job.num_slots + 1;
    for (uint64_t level = 0; level < job.num_levels; level++, table += 3 * size) {
        int32_t first = static_cast<int32_t>(begin), last = static_cast<int32_t>(end);
        uint64_t step = job.level_steps[level];
        if (table[begin] >= last) figures.bonus += step;
        if (table[size + begin] < last || table[2 * size + end] > first) figures.penalty += step;
    }
    return figures;
}

DEVICE uint64_t count_of(const TrainJob& job, uint32_t slot) {
    return job.slot_counts ? job.slot_counts[slot] : 1;
}

DEVICE void clear_sums(SumsShared& shared) {
    for (uint32_t i = threadIdx.x; i < 2 * HOT_SUMS; i += BLOCK) shared.halves[i] = 0;
    __syncthreads();
}

// Adds to a sum of the id that stands on a side (0 left, 1 right) of an occurrence.
template <uint32_t SUMS>
DEVICE void add_neighbour(const TrainJob& job, SumsShared& shared, uint32_t side, uint32_t id, uint32_t sum,
                          uint64_t value) {
    constexpr uint32_t HOT_IDS = HOT_SUMS / 2 / SUMS;
    if (id < HOT_IDS) add_hot(shared.halves + 2 * ((side * HOT_IDS + id) * SUMS + sum), value);
    else atomic_add(job.neighbours + (side * job.capacity + id) * SUMS + sum, value);
}

// Adds the sums of a block to those in device memory. The whole block calls it, behind a barrier.
template <uint32_t SUMS>
DEVICE void flush_neighbours(const TrainJob& job, SumsShared& shared) {
    constexpr uint32_t HOT_IDS = HOT_SUMS / 2 / SUMS;
    for (uint32_t i = threadIdx.x; i < 2 * HOT_IDS * SUMS; i += BLOCK) {
        uint64_t value = hot_sum(shared.halves + 2 * i), side = i / (HOT_IDS * SUMS);
        uint64_t place = side * job.capacity * SUMS + i % (HOT_IDS * SUMS);
        if (value) atomic_add(job.neighbours + place, value);
    }
}
