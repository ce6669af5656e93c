// The one argument of the kernels that learn a vocabulary: a corpus as tokens, its pairs, one merge.
//
// Every field has 8 bytes, in the order of gpu/kernels/job.py.
#pragma once
#include "common/lookback_scan.cuh"

constexpr uint32_t TRAIN_ITEMS = 16;         // Neighbouring tokens of a thread.
constexpr uint32_t TRAIN_TILE = TRAIN_ITEMS * BLOCK;
constexpr uint32_t NO_MERGE = 0xFFFF;        // A token that is none: merges do not cross it.
constexpr uint32_t SUMS_OF_PLACED = 5;       // See training/shared_sums.cuh.
constexpr uint32_t REPORT_NUM_TOKENS = 0;    // Tokens and barriers behind a merge.
constexpr uint32_t REPORT_MERGED = 1;        // Occurrences merged so far, each as often as it counts.
constexpr uint32_t REPORT_LEFT = 2;          // The best pair, then its figures; NO_MERGE: none.
constexpr uint32_t REPORT_WORDS = 8;

struct TrainJob {
    // The tokens: ids and NO_MERGE, the first and the last of which are NO_MERGE.
    const uint16_t* tokens;        // uint16[num_tokens], readable for TRAIN_TILE + 4 more.
    uint16_t* merged_tokens;       // The same behind the merge.
    const uint32_t* places;        // uint32[num_tokens] slot of each; a null pointer: nobody asks.
    uint32_t* merged_places;
    uint64_t num_tokens;
    uint64_t tile_threads;         // Threads of a block that have tokens: BLOCK, fewer in tests.
    // What an occurrence counts by, where there are places.
    const uint64_t* slot_counts;   // uint64[num_slots] how often each slot counts; a null pointer: once.
    const int32_t* span_tables;    // int32[num_levels][3][num_slots + 1], see vocabularies/training/span_scores.py.
    const uint64_t* level_steps;   // uint64[num_levels].
    uint64_t num_levels;
    uint64_t num_slots;
    // Pairs, by their left and right ids.
    uint64_t capacity;             // Ids that there is room for.
    uint64_t* frequencies;         // int64[capacity][capacity].
    uint64_t* bonuses;             // int64[capacity][capacity]; a null pointer: all are 0.
    uint64_t* penalties;
    uint32_t* lengths;             // uint32[capacity] letters of each token.
    // How pairs are scored, see vocabularies/training/pair_table.py.
    uint64_t unit;
    uint64_t motif_weight;
    uint64_t penalty_weight;
    uint64_t binary;               // A pair's penalty: not 0: 1 for any, in thousandths.
    int64_t lowest;
    uint64_t min_frequency;
    uint64_t max_length;
    // The merge: `left right` becomes `merged`.
    uint64_t left;
    uint64_t right;
    uint64_t merged;
    uint64_t* run_begins;          // uint64[tiles] where left == right, see training/equal_runs.cuh.
    uint64_t* tile_states;         // uint64[tiles + 1], zeros before.
    uint64_t* neighbours;          // uint64[2][capacity][1 or SUMS_OF_PLACED], zeros before and after.
    // The best pair of each row of the table.
    uint32_t* row_is_stale;        // uint32[capacity].
    int64_t* row_scores;           // int64[capacity].
    uint32_t* row_rights;          // uint32[capacity].
    uint64_t* report;              // uint64[REPORT_WORDS].
};

DEVICE uint64_t tokens_a_tile(const TrainJob& job) { return job.tile_threads * TRAIN_ITEMS; }

DEVICE uint64_t num_train_tiles(const TrainJob& job) {
    return (job.num_tokens + tokens_a_tile(job) - 1) / tokens_a_tile(job);
}

// Sixteen bytes from or to an address that 16 divides.
DEVICE uint4 load_16(const void* place) {
#ifdef __CUDACC__
    return *static_cast<const uint4*>(place);
#else
    uint4 value;
    std::memcpy(&value, place, sizeof value);
    return value;
#endif
}

DEVICE void store_16(void* place, uint4 value) {
#ifdef __CUDACC__
    *static_cast<uint4*>(place) = value;
#else
    std::memcpy(place, &value, sizeof value);
#endif
}
