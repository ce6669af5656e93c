// What lies before each tile of runs: the last break, and the ids of the runs up to there.
//
// Parts side by side are one part, whose ids are those of both and of the run between, from the last break of the left one
// to the first break of the right one. So a block joins its tiles, publishes what they are, joins what the blocks before it
// have published, back to the first one that knows all before it, and publishes what is up to its own end (common/lookback_scan.cuh does
// this with sums). Blocks take their parts in order, so that whoever is waited for runs.
//
// Example, k = 3: ACGT|AC and GTA|CC with breaks at | are ACGT|ACGTA|CC: of the run between the ids of ACG, CGT and GTA.
#pragma once
#include "kmers/runs/tile.cuh"

constexpr uint32_t PART_TILES = BLOCK / 32;                 // A warp each.
constexpr uint32_t BLOCK_LETTERS = PART_TILES * KMER_TILE;
constexpr uint32_t STATE_BITS = 16;
constexpr uint32_t LETTER_BITS = 30;       // Of a place in a batch, or a number of ids.
constexpr uint32_t CLASS_AT = 60;          // Of a state: the class of the letters from the last break on.
static_assert(BLOCK_LETTERS < 1u << STATE_BITS, "a place, or a number of ids, of a block's part");

DEVICE uint32_t run_blocks(const Job& job) { return (run_tiles(job) + PART_TILES - 1) / PART_TILES; }

// What is published, for each block: its part, and the one up to its end, 0 where that is not known.
struct RunStates {
    uint64_t *taken, *parts, *ends;        // `taken` counts the blocks' parts that have been taken.

    DEVICE_METHOD explicit RunStates(const Job& job)
        : taken(job.letter_states), parts(taken + 1), ends(parts + run_blocks(job)) {}
};

DEVICE uint32_t class_of_state(uint64_t state) { return static_cast<uint32_t>(state >> CLASS_AT) & 7; }

DEVICE uint64_t state_of_part(const RunPart& part, uint32_t begin) {
    if (part.first == NO_BREAK) return 1ull << 63;
    uint64_t first = part.first - begin + 1, last = part.last - begin;
    return 1ull << 63 | static_cast<uint64_t>(part.last_class) << CLASS_AT | first << 2 * STATE_BITS | last << STATE_BITS | part.ids;
}

DEVICE RunPart part_of_state(uint64_t state, uint32_t begin) {
    constexpr uint32_t MASK = (1u << STATE_BITS) - 1;
    uint32_t first = state >> 2 * STATE_BITS & MASK, last = state >> STATE_BITS & MASK;
    if (first == 0) return {NO_BREAK, 0, 0, BASE};
    return {begin + first - 1, begin + last, static_cast<uint32_t>(state) & MASK, class_of_state(state)};
}

// All up to a block's end matters by its last break, the ids up to there and the class behind it. A batch has fewer than
// 2^30 letters (gpu/memory/workspace_pool.py).
DEVICE uint64_t state_of_end(const RunPart& part) {
    return static_cast<uint64_t>(part.last_class) << CLASS_AT | static_cast<uint64_t>(part.ids) << LETTER_BITS | (part.last + 1);
}

DEVICE RunPart end_of_state(uint64_t state) {
    constexpr uint32_t MASK = (1u << LETTER_BITS) - 1;
    uint32_t last = (static_cast<uint32_t>(state) & MASK) - 1;
    return {last, last, static_cast<uint32_t>(state >> LETTER_BITS) & MASK, class_of_state(state)};
}

// What the parts of all lanes are together, lane 0 leftmost; every lane gets it.
DEVICE RunPart joined_parts(const Job& job, const FourLetters& four, const RunPart& own) {
    bool has_break = own.first != NO_BREAK;
    uint32_t any = __ballot_sync(ALL_LANES, has_break), before = any & ((1u << (threadIdx.x & 31)) - 1);
    uint32_t left = before ? highest_bit(before) : 0, run = __shfl_sync(ALL_LANES, own.last, left);
    uint32_t run_class = __shfl_sync(ALL_LANES, own.last_class, left), ids = has_break ? own.ids : 0;
    if (has_break && before) ids += ids_of_run(job, four, run_class, run, own.first, own.first - run);
    ids = __reduce_add_sync(ALL_LANES, ids);
    if (any == 0) return {NO_BREAK, 0, 0, BASE};
    uint32_t last = highest_bit(any);
    return {__shfl_sync(ALL_LANES, own.first, lowest_bit(any)), __shfl_sync(ALL_LANES, own.last, last), ids,
            __shfl_sync(ALL_LANES, own.last_class, last)};
}

DEVICE RunPart joined(const Job& job, const FourLetters& four, const RunPart& left, const RunPart& right) {
    if (right.first == NO_BREAK) return left;
    if (left.first == NO_BREAK) return right;
    uint32_t between = ids_of_run(job, four, left.last_class, left.last, right.first, right.first - left.last);
    return {left.first, right.last, left.ids + between + right.ids, right.last_class};
}

// All that is before a block; a whole warp calls it, lane 31 looks at the block before. Waits for blocks that have published
// nothing, unless one behind them knows all before it. Before the first one is the end of a run of no letters.
//
//     block       3    4      5      6      7          looks back from 8
//     ends        .    x      .      .      .          `nearest` is the lane of 4; 3 does not matter
//     parts       .    x      x      x      .          7 is `missing`: all look again; then 4's end is joined with 5, 6 and 7
DEVICE RunPart part_before(const Job& job, const FourLetters& four, const RunStates& states, uint32_t block) {
    RunPart behind = {NO_BREAK, 0, 0, BASE};
    for (int64_t other = static_cast<int64_t>(block) - 32 + (threadIdx.x & 31);; other -= 32) {
        uint64_t end = other < 0, part = 0;
        uint32_t ends = 0, nearest = 0, missing = 1;
        while (missing) {
            if (other >= 0) end = load_volatile(states.ends + other), part = load_volatile(states.parts + other);
            ends = __ballot_sync(ALL_LANES, end != 0), nearest = ends ? highest_bit(ends) : 0;
            missing = __ballot_sync(ALL_LANES, !end && !part) >> nearest;
            if (missing) give_way();
        }
        RunPart own = end ? end_of_state(end) : part_of_state(part, static_cast<uint32_t>(other) * BLOCK_LETTERS);
        if ((threadIdx.x & 31) < nearest) own.first = NO_BREAK;
        behind = joined(job, four, joined_parts(job, four, own), behind);
        if (ends) return behind;
    }
}

// What a block has in shared memory: the parts of its tiles, what is before it, and which block's they are.
struct RunParts {
    RunPart tiles[PART_TILES], before;
    uint32_t number;
};

// Publishes a block's part, and finds what is before it; a whole warp calls it.
DEVICE void publish_runs(const Job& job, const FourLetters& four, const RunStates& states, RunParts& shared) {
    uint32_t lane = threadIdx.x & 31, number = shared.number;
    RunPart own = joined_parts(job, four, lane < PART_TILES ? shared.tiles[lane] : RunPart{NO_BREAK, 0, 0, BASE});
    if (lane == 0) store_volatile(states.parts + number, state_of_part(own, number * BLOCK_LETTERS));
    RunPart before = part_before(job, four, states, number), end = joined(job, four, before, own);
    if (lane) return;
    store_volatile(states.ends + number, state_of_end(end));
    shared.before = before;
    uint32_t left = four.num_bytes - end.last;
    if (number + 1 < run_blocks(job)) return;
    job.status[STATUS_NUM_IDS] = end.ids + ids_of_run(job, four, end.last_class, end.last, four.num_bytes, left);
    RowFaults(job).finish();
}

// What is before the tile of a warp.
DEVICE RunPart part_before_tile(const Job& job, const FourLetters& four, const RunParts& shared) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    RunPart none = {NO_BREAK, 0, 0, BASE};
    return joined_parts(job, four, lane == 0 ? shared.before : lane <= warp ? shared.tiles[lane - 1] : none);
}
