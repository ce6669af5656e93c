// The table of all pairs. It is counted once, and each merge then changes only the pairs that it affects. Here is also
// the search for the best pair.
//
//     corpus x a b y, a b becomes c       goes: x a, b y, a b       comes: x c, c y
//
// Counts are integers of 64 bits, so that the order in which they are added does not matter. A token that no longer
// occurs has counts of 0, and so has a pair once it is merged, as its tokens are never neighbours again.
//
// Invariant: after update_pairs the table is what count_pairs would count in merged_tokens.
#pragma once
#include "training/shared_sums.cuh"

constexpr uint32_t HOT_SIDE = 32;            // Ids whose pairs are counted in shared memory first.
constexpr uint32_t PAIR_SUMS = 3;            // Frequency, bonus, penalty.
constexpr int64_t NO_SCORE = -0x7FFFFFFFFFFFFFFF - 1;

struct PairsShared {
    uint32_t halves[2 * PAIR_SUMS * HOT_SIDE * HOT_SIDE];
};

DEVICE void add_to_pair(const TrainJob& job, uint64_t left, uint64_t right, uint64_t frequency, uint64_t bonus,
                        uint64_t penalty) {
    uint64_t place = left * job.capacity + right;
    if (frequency) atomic_add(job.frequencies + place, frequency);
    if (bonus) atomic_add(job.bonuses + place, bonus);
    if (penalty) atomic_add(job.penalties + place, penalty);
}

DEVICE void count_pair(const TrainJob& job, PairsShared& shared, uint64_t at, uint32_t left, uint32_t right) {
    uint64_t weight = job.places ? count_of(job, job.places[at]) : 1;
    Figures figures = {0, 0};
    if (job.num_levels) figures = measure(job, job.places[at], job.places[at + 2]);
    figures.bonus *= weight;
    figures.penalty *= weight;
    if (left >= HOT_SIDE || right >= HOT_SIDE) {
        add_to_pair(job, left, right, weight, figures.bonus, figures.penalty);
        return;
    }
    uint32_t* halves = shared.halves + 2 * PAIR_SUMS * (left * HOT_SIDE + right);
    add_hot(halves, weight);
    if (figures.bonus) add_hot(halves + 2, figures.bonus);
    if (figures.penalty) add_hot(halves + 4, figures.penalty);
}

// Counts every two neighbours into a table of zeros, overlapping ones, too: a a a is a a twice.
DEVICE void count_pairs_stage(const TrainJob& job, PairsShared& shared, uint64_t block, uint64_t blocks) {
    for (uint32_t i = threadIdx.x; i < 2 * PAIR_SUMS * HOT_SIDE * HOT_SIDE; i += BLOCK) shared.halves[i] = 0;
    __syncthreads();
    for (uint64_t tile = block; tile < num_train_tiles(job); tile += blocks) {
        uint64_t first = tile * tokens_a_tile(job), end = first + tokens_a_tile(job);
        if (end >= job.num_tokens) end = job.num_tokens - 1;
        for (uint64_t at = first + threadIdx.x; at < end; at += BLOCK) {
            uint32_t left = job.tokens[at], right = job.tokens[at + 1];
            if (left != NO_MERGE && right != NO_MERGE) count_pair(job, shared, at, left, right);
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < HOT_SIDE * HOT_SIDE; i += BLOCK) {
        const uint32_t* halves = shared.halves + 2 * PAIR_SUMS * i;
        uint64_t sums[PAIR_SUMS] = {hot_sum(halves), hot_sum(halves + 2), hot_sum(halves + 4)};
        if (sums[0]) add_to_pair(job, i / HOT_SIDE, i % HOT_SIDE, sums[0], sums[1], sums[2]);
    }
}

// Moves the sums of a neighbour from the pair that goes to the pair that comes. The merged pair itself is not counted
// down, as update_pairs_stage sets it to 0.
DEVICE void move_pair(const TrainJob& job, const uint64_t* sums, uint64_t gone_left, uint64_t gone_right,
                      uint64_t come_left, uint64_t come_right) {
    bool has_scores = job.num_levels != 0;
    uint64_t values[SUMS_OF_PLACED - 1] = {0, 0, 0, 0};
    for (uint32_t i = 0; has_scores && i < SUMS_OF_PLACED - 1; i++) values[i] = sums[1 + i];
    if (gone_left != job.left || gone_right != job.right)
        add_to_pair(job, gone_left, gone_right, 0 - sums[0], 0 - values[0], 0 - values[1]);
    add_to_pair(job, come_left, come_right, sums[0], values[2], values[3]);
    job.row_is_stale[gone_left] = job.row_is_stale[come_left] = 1;
}

// Adds the changes of a merge to the table; a thread has the neighbours of one id.
DEVICE void update_pairs_stage(const TrainJob& job, uint64_t block, uint64_t blocks) {
    uint64_t num_sums = job.places ? SUMS_OF_PLACED : 1;
    for (uint64_t id = block * BLOCK + threadIdx.x; id <= job.merged; id += blocks * BLOCK) {
        uint64_t* lefts = job.neighbours + id * num_sums;
        uint64_t* rights = lefts + job.capacity * num_sums;
        // Where the neighbour is another occurrence, the pair between the two goes.
        if (lefts[0]) move_pair(job, lefts, id == job.merged ? job.right : id, job.left, id, job.merged);
        if (rights[0]) move_pair(job, rights, job.right, id, job.merged, id);
        for (uint64_t i = 0; i < num_sums; i++) lefts[i] = rights[i] = 0;
        if (id) continue;
        // Bonus and penalty of a pair that does not occur are not read.
        job.frequencies[job.left * job.capacity + job.right] = 0;
        job.lengths[job.merged] = job.lengths[job.left] + job.lengths[job.right];
        job.row_is_stale[job.left] = job.row_is_stale[job.merged] = 1;
    }
}

// The score of a pair; NO_SCORE where it may not be merged.
DEVICE int64_t score_of(const TrainJob& job, uint64_t left, uint64_t right) {
    uint64_t place = left * job.capacity + right, frequency = job.frequencies[place];
    if (frequency < job.min_frequency) return NO_SCORE;
    if (static_cast<uint64_t>(job.lengths[left]) + job.lengths[right] > job.max_length) return NO_SCORE;
    uint64_t score = job.unit * frequency;
    if (job.num_levels) {
        uint64_t penalty = job.penalties[place];
        if (job.binary && penalty) penalty = 1000;
        score += job.motif_weight * job.bonuses[place] - job.penalty_weight * penalty;
    }
    int64_t value = static_cast<int64_t>(score);
    return value < job.lowest ? NO_SCORE : value;
}

// The highest score and its place; of equal ones the first place.
struct Best {
    int64_t score;
    uint64_t place;
    DEVICE_METHOD void meet(int64_t other, uint64_t other_place) {
        if (other < score || (other == score && other_place >= place)) return;
        score = other;
        place = other_place;
    }
};

struct BestShared {
    Best warps[BLOCK / 32];
};

// The best of a block's threads, for thread 0. The whole block calls it.
DEVICE Best best_of_block(Best best, BestShared& shared) {
    for (uint32_t distance = 16; distance; distance /= 2) {
        int64_t score = __shfl_xor_sync(ALL_LANES, best.score, distance);
        uint64_t place = __shfl_xor_sync(ALL_LANES, best.place, distance);
        best.meet(score, place);
    }
    if ((threadIdx.x & 31) == 0) shared.warps[threadIdx.x / 32] = best;
    __syncthreads();
    for (uint32_t i = 0; threadIdx.x == 0 && i < BLOCK / 32; i++)
        best.meet(shared.warps[i].score, shared.warps[i].place);
    __syncthreads();
    return best;
}

// Finds the best pair of each left id that is stale; a block has a row of the table.
DEVICE void best_of_rows_stage(const TrainJob& job, BestShared& shared, uint64_t block, uint64_t blocks) {
    for (uint64_t left = block; left <= job.merged; left += blocks) {
        if (!job.row_is_stale[left]) continue;
        Best best = {NO_SCORE, 0};
        for (uint64_t right = threadIdx.x; right <= job.merged; right += BLOCK)
            best.meet(score_of(job, left, right), right);
        best = best_of_block(best, shared);
        if (threadIdx.x) continue;
        job.row_scores[left] = best.score;
        job.row_rights[left] = static_cast<uint32_t>(best.place);
        job.row_is_stale[left] = 0;
    }
}

// Reports the best pair of all, with its figures. One block.
DEVICE void best_pair_stage(const TrainJob& job, BestShared& shared) {
    Best best = {NO_SCORE, 0};
    for (uint64_t left = threadIdx.x; left <= job.merged; left += BLOCK)
        best.meet(job.row_scores[left], left);
    best = best_of_block(best, shared);
    if (threadIdx.x) return;
    uint64_t* report = job.report + REPORT_LEFT;
    uint64_t right = job.row_rights[best.place], place = best.place * job.capacity + right;
    report[0] = best.score == NO_SCORE ? NO_MERGE : best.place;
    report[1] = right;
    report[2] = job.frequencies[place];
    report[3] = job.num_levels ? job.bonuses[place] : 0;
    report[4] = job.num_levels ? job.penalties[place] : 0;
    report[5] = static_cast<uint64_t>(best.score);
}
