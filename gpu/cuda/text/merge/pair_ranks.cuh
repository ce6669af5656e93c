// Looks up the rank of two neighbouring symbols, which is the place of their merge in the vocabulary's list.
//
// The number of a symbol follows from its rank: a byte is its value, and the merge of rank r gives the symbol 256 + r.
// A hash table holds all pairs, two to a bucket. A filter in shared memory excludes most pairs that do not merge. A
// table holds the ranks of all pairs of bytes.
//
// Invariant: a pair that the filter does not know has no rank; a rank is found by comparing the whole pair.
#pragma once
#include "common/hash.cuh"
#include "common/job.cuh"

namespace warptok::text {

constexpr uint32_t FIRST_MERGED = 256;
constexpr uint32_t RANKS = 1 << 22;  // More than there are ranks.
constexpr uint32_t FILTER_BITS = 18;
constexpr uint32_t FILTER_WORDS = 1 << (FILTER_BITS - 5);

// The fields of a Job that look-ups need; they are kept in registers.
struct PairRanks {
    const uint4* buckets;
    uint32_t shift, seed;
};

DEVICE PairRanks pair_ranks(const Job& job) {
    return {reinterpret_cast<const uint4*>(job.text.pairs), static_cast<uint32_t>(job.text.pair_shift),
            static_cast<uint32_t>(job.tokens.seed)};
}

// A pair to look up: its hash, and the two words of an entry left << 43 | right << 22 | rank 0.
struct Pair {
    uint32_t hash, low, high;
};

DEVICE Pair pair_of(const PairRanks& table, uint32_t left, uint32_t right) {
    return {mixed(hash_pair(left, right, table.seed)), right << 22, left << 11 | right >> 10};
}

// The two entries of a pair's bucket; any others where `is_needed` is false.
DEVICE uint4 load_bucket(const PairRanks& table, const Pair& pair, bool is_needed) {
    return __ldg(table.buckets + (is_needed ? pair.hash >> table.shift : 0));
}

// The rank of a pair if it is one of two entries.
DEVICE uint32_t rank_of_two(const Pair& pair, uint4 two, bool is_needed) {
    uint32_t first = two.x ^ pair.low, second = two.z ^ pair.low, rank = NO_RANK;
    if (is_needed & (two.y == pair.high) & (first < RANKS)) rank = first;
    if (is_needed & (two.w == pair.high) & (second < RANKS)) rank = second;
    return rank;
}

// The rank of a pair whose bucket is `two`; NO_RANK where they do not merge or `is_needed` is false.
DEVICE uint32_t rank_in(const PairRanks& table, const Pair& pair, uint4 two, bool is_needed) {
    uint32_t rank = rank_of_two(pair, two, is_needed), bucket = pair.hash >> table.shift;
    while (is_needed & (rank == NO_RANK) & ((two.z & two.w) != 0xFFFFFFFF)) {  // Full: look into the next one.
        bucket = (bucket + 1) & (0xFFFFFFFFu >> table.shift);
        two = __ldg(table.buckets + bucket);
        rank = rank_of_two(pair, two, true);
    }
    return rank;
}

// The rank of two neighbouring symbols; NO_RANK where they do not merge.
DEVICE uint32_t rank_of(const Job& job, uint32_t left, uint32_t right) {
    PairRanks table = pair_ranks(job);
    Pair pair = pair_of(table, left, right);
    return rank_in(table, pair, load_bucket(table, pair, true), true);
}

// A bit for each pair's hash, clear where no pair of this hash merges. A copy in shared memory: a gather from global
// memory costs a warp a cycle for each lane, one from shared memory only a few.
struct PairFilter {
    uint32_t words[FILTER_WORDS];
};

// For few pieces: nothing is loaded first, and all loads of the table are in flight together.
constexpr const PairFilter* NO_FILTER = nullptr;

// Copies the filter to shared memory; every thread of the block calls it.
DEVICE void load_filter(const Job& job, PairFilter& filter) {
    const uint4* words = reinterpret_cast<const uint4*>(job.text.pair_filter);
    for (uint32_t i = threadIdx.x; i < FILTER_WORDS / 4; i += blockDim.x)
        reinterpret_cast<uint4*>(filter.words)[i] = words[i];
    __syncthreads();
}

// Whether a pair may merge; the filter knows most pairs that do not.
DEVICE bool may_merge(const PairFilter* filter, const Pair& pair) {
    return !filter || filter->words[pair.hash >> (32 - FILTER_BITS + 5)] >> (pair.hash & 31) & 1;
}

// Four bytes of a text and the fifth behind them: four pairs.
struct FiveBytes {
    uint32_t four, fifth;
};

// Two neighbouring bytes, the first in the lower 8 bits.
DEVICE uint32_t two_bytes(const FiveBytes& bytes, uint32_t i) {
    return (i < 3 ? bytes.four >> 8 * i : bytes.four >> 24 | bytes.fifth << 8) & 0xFFFF;
}

// Loads the ranks of four pairs of bytes at the same time.
DEVICE void ranks_of_bytes(const uint32_t* byte_pairs, const FiveBytes& bytes, uint32_t ranks[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) ranks[i] = __ldg(byte_pairs + two_bytes(bytes, i));
}

}  // namespace warptok::text
