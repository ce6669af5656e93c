// Merges every occurrence of a pair into one token, the leftmost first where occurrences overlap, in one pass.
//
// A block claims the next tile of tokens, finds the occurrences in it, adds up the tokens beside them, learns from the
// tiles before it where its own tokens go, and writes those that stay.
//
//     tokens        x a b a b y      a b becomes c        pairs that go   come
//     occurrences     1 0 1 0        left of the 1st      x a             x c
//     stay          1 1 0 1 0 1      left of the 2nd      b a             c c
//     written       x c c y          right of the 2nd     b y             c y
//
// A pair between two occurrences counts as the left one of the second, so that none is counted twice. A thread also
// reads the tokens before and behind its own (training/token_window.cuh), so that tiles of any size give the same
// result.
//
// Invariant: every token of merged_tokens is written once, in the order of the corpus.
#pragma once
#include "training/equal_runs.cuh"
#include "training/shared_sums.cuh"

// ALONE: tokens have no places, and each occurrence counts once. PLACED: each token has the slot that it begins in,
// which says how often an occurrence counts, and its bonus and penalty.
enum class TokenKind { ALONE, PLACED };

// Sums for each token that stands beside an occurrence (training/shared_sums.cuh).
template <TokenKind KIND>
constexpr uint32_t NUM_SUMS = KIND == TokenKind::PLACED ? SUMS_OF_PLACED : 1;

template <TokenKind KIND>
struct MergeTileShared {
    uint4 stage[TRAIN_TILE * (KIND == TokenKind::PLACED ? 4 : 2) / 16 + 1];
    SumsShared sums;
    uint64_t runs[BLOCK];
    uint32_t scratch[BLOCK / 32 + 1];
    uint64_t tile, before;
};

// Bonus and penalty of a pair that ends with the merge, or begins with it: [begin, end) in tokens before the merge.
DEVICE Figures measure_tokens(const TrainJob& job, uint64_t begin, uint64_t end) {
    return measure(job, job.places[begin], job.places[end]);
}

// Adds one token that stands beside an occurrence: the pair [gone, gone_end) goes, the pair [come, come_end) comes.
template <TokenKind KIND>
DEVICE void add_pair(const TrainJob& job, SumsShared& sums, uint32_t side, uint32_t id, uint64_t weight,
                     uint64_t gone, uint64_t gone_end, uint64_t come, uint64_t come_end) {
    constexpr uint32_t SUMS = NUM_SUMS<KIND>;
    add_neighbour<SUMS>(job, sums, side, id, 0, weight);
    if (KIND == TokenKind::ALONE || !job.num_levels) return;
    Figures before = measure_tokens(job, gone, gone_end), now = measure_tokens(job, come, come_end);
    uint64_t values[] = {before.bonus, before.penalty, now.bonus, now.penalty};
    for (uint32_t i = 0; i < 4; i++)
        if (values[i]) add_neighbour<SUMS>(job, sums, side, id, 1 + i, weight * values[i]);
}

// Adds the tokens that stand beside the thread's own occurrences; returns how often these count.
template <TokenKind KIND>
DEVICE uint64_t add_neighbours(const TrainJob& job, SumsShared& sums, const TokenWindow& window,
                               uint32_t occurrences) {
    uint64_t merged = 0;
    for (uint32_t left = occurrences & window.own; left; left &= left - 1) {
        uint32_t bit = lowest_bit(left);
        uint64_t at = window.begin + bit - TOKENS_BEFORE;
        uint64_t weight = KIND == TokenKind::PLACED ? count_of(job, job.places[at]) : 1;
        uint32_t before = job.tokens[at - 1], after = job.tokens[at + 2];
        bool joins = occurrences >> (bit - 2) & 1, is_joined = occurrences >> (bit + 2) & 1;
        uint32_t id = joins ? static_cast<uint32_t>(job.merged) : before;
        if (before != NO_MERGE)
            add_pair<KIND>(job, sums, 0, id, weight, at - 1, at + 1, at - (joins ? 2 : 1), at + 2);
        if (after != NO_MERGE && !is_joined)
            add_pair<KIND>(job, sums, 1, after, weight, at + 1, at + 3, at, at + 3);
        merged += weight;
    }
    return merged;
}

// Writes the `count` values that a block has put into `stage`, from place before % (16 / sizeof(T)) on, to number
// `before` on.
template <class T>
DEVICE void write_stage(T* to, uint64_t before, uint32_t count, const T* stage) {
    constexpr uint32_t EACH = 16 / sizeof(T);
    uint32_t shift = before % EACH, end = shift + count;
    T* base = to + (before - shift);
    for (uint32_t first = threadIdx.x * EACH; first < end; first += BLOCK * EACH) {
        if (first >= shift && first + EACH <= end) {
            store_16(base + first, load_16(stage + first));
            continue;
        }
        for (uint32_t i = first; i < first + EACH; i++)
            if (i >= shift && i < end) base[i] = stage[i];
    }
}

// Writes the tokens that stay, and their places. The whole block calls it; `rank` is how many of the tile's tokens that
// stay are before the thread's own.
template <TokenKind KIND>
DEVICE void write_tokens(const TrainJob& job, MergeTileShared<KIND>& shared, const TokenWindow& window,
                         uint32_t occurrences, uint32_t stays, uint32_t rank, uint32_t total) {
    uint16_t* stage = reinterpret_cast<uint16_t*>(shared.stage) + shared.before % 8 + rank;
#pragma unroll
    for (uint32_t i = 0; i < TRAIN_ITEMS; i++) {
        uint32_t bit = i + TOKENS_BEFORE;
        uint32_t id = occurrences >> bit & 1 ? static_cast<uint32_t>(job.merged) : own_token(window, i);
        if (stays >> bit & 1) *stage++ = static_cast<uint16_t>(id);
    }
    __syncthreads();
    write_stage(job.merged_tokens, shared.before, total, reinterpret_cast<const uint16_t*>(shared.stage));
    __syncthreads();
    if (KIND == TokenKind::ALONE) return;
    uint32_t* places = reinterpret_cast<uint32_t*>(shared.stage) + shared.before % 4 + rank;
    for (uint32_t left = stays; left; left &= left - 1)
        *places++ = job.places[window.begin + lowest_bit(left) - TOKENS_BEFORE];
    __syncthreads();
    write_stage(job.merged_places, shared.before, total, reinterpret_cast<const uint32_t*>(shared.stage));
    __syncthreads();
}

template <TokenKind KIND>
DEVICE void merge_tiles_stage(const TrainJob& job, MergeTileShared<KIND>& shared) {
    clear_sums(shared.sums);
    uint64_t merged = 0, tiles = num_train_tiles(job);
    for (;;) {
        if (threadIdx.x == 0) shared.tile = atomic_add(job.tile_states, 1);
        __syncthreads();
        uint64_t tile = shared.tile;
        if (tile >= tiles) break;
        TokenWindow window = read_window(job, tile);
        uint32_t equal = equal_tokens(window, job.left), occurrences = 0;
        if (job.left == job.right) {
            uint64_t begin = run_before(job, tile, window, equal, shared.runs);
            occurrences = run_occurrences(equal, window.begin - begin);
        } else if (equal) {
            occurrences = equal & equal_tokens(window, job.right) >> 1;
        }
        uint32_t stays = window.own & ~(occurrences << 1), total;
        uint32_t rank = sum_before(count_bits(stays), shared.scratch, total);
        if (threadIdx.x < 32) {
            uint64_t before = publish_tile(job.tile_states + 1, tile, total);
            if (threadIdx.x == 0) shared.before = before;
            if (threadIdx.x == 0 && tile + 1 == tiles) job.report[REPORT_NUM_TOKENS] = before + total;
        }
        merged += add_neighbours<KIND>(job, shared.sums, window, occurrences);
        __syncthreads();
        write_tokens<KIND>(job, shared, window, occurrences, stays, rank, total);
    }
    flush_neighbours<NUM_SUMS<KIND>>(job, shared.sums);
    merged = sum_of_warp(merged);
    if ((threadIdx.x & 31) == 0 && merged) atomic_add(job.report + REPORT_MERGED, merged);
}
