// The one argument of the kernels that learn a vocabulary: a corpus as tokens, its pairs, and one merge.
//
// Every field has 8 bytes; gpu/kernels/job.py reads them here.
#pragma once
#include "common/lookback_scan.cuh"

constexpr uint32_t TRAIN_ITEMS = 16;         // Neighbouring tokens that a thread has.
constexpr uint32_t TRAIN_TILE = TRAIN_ITEMS * BLOCK;
constexpr uint32_t NO_MERGE = 0xFFFF;        // A barrier among the tokens: merges do not cross it.
constexpr uint32_t SUMS_OF_PLACED = 5;       // Sums of a neighbour where there are places, see training/shared_sums.cuh.
// Words of the report.
constexpr uint32_t REPORT_NUM_TOKENS = 0;    // Tokens and barriers after a merge.
constexpr uint32_t REPORT_MERGED = 1;        // Occurrences merged so far, each as often as it counts.
constexpr uint32_t REPORT_LEFT = 2;          // The best pair's left id (NO_MERGE: there is no pair), its right id,
                                             // frequency, bonus, penalty and score.
constexpr uint32_t REPORT_WORDS = 8;

struct TrainJob {
    // The corpus: ids and barriers (NO_MERGE); the first and the last token are barriers.
    const uint16_t* tokens;        // uint16[num_tokens], readable for TRAIN_TILE + 4 more.
    uint16_t* merged_tokens;       // uint16[num_tokens] the same after the merge.
    const uint32_t* places;        // uint32[num_tokens] the slot that each token begins in; a null pointer: none.
    uint32_t* merged_places;       // uint32[num_tokens] the same after the merge.
    uint64_t num_tokens;
    uint64_t tile_threads;         // Threads of a block that have tokens: BLOCK, fewer in tests.
    // The weight and the scores of an occurrence, where there are places.
    const uint64_t* slot_counts;   // uint64[num_slots] how often each slot counts; a null pointer: once.
    const int32_t* span_tables;    // int32[num_levels][3][num_slots + 1], see vocabularies/training/span_scores.py.
    const uint64_t* level_steps;   // uint64[num_levels].
    uint64_t num_levels;
    uint64_t num_slots;
    // The table of pairs, by their left and right ids.
    uint64_t capacity;             // Ids that the table has room for.
    uint64_t* frequencies;         // int64[capacity][capacity].
    uint64_t* bonuses;             // int64[capacity][capacity]; a null pointer: all are 0.
    uint64_t* penalties;           // int64[capacity][capacity], as bonuses.
    uint32_t* lengths;             // uint32[capacity] letters of each token.
    // How pairs are scored, see vocabularies/training/pair_table.py.
    uint64_t unit;                 // The score of one occurrence.
    uint64_t motif_weight;
    uint64_t penalty_weight;
    uint64_t binary;               // Not 0: a pair's penalty is 1000 where it has any.
    int64_t lowest;                // A pair of a lower score is not merged.
    uint64_t min_frequency;        // A rarer pair is not merged.
    uint64_t max_length;           // Letters of a merged token, at most.
    // The merge: `left right` becomes `merged`.
    uint64_t left;
    uint64_t right;
    uint64_t merged;
    uint64_t* run_begins;          // uint64[tiles], used where left == right, see training/equal_runs.cuh.
    uint64_t* tile_states;         // uint64[tiles + 1], zeros before.
    uint64_t* neighbours;          // uint64[2][capacity][1 or SUMS_OF_PLACED], zeros before and after.
    // The best pair of each row of the table.
    uint32_t* row_is_stale;        // uint32[capacity] not 0: a pair of this left id has changed.
    int64_t* row_scores;           // int64[capacity] the best score of each left id; NO_SCORE: no pair of it may be merged.
    uint32_t* row_rights;          // uint32[capacity] the right id of that pair.
    uint64_t* report;              // uint64[REPORT_WORDS].
};

DEVICE uint64_t tokens_a_tile(const TrainJob& job) { return job.tile_threads * TRAIN_ITEMS; }

DEVICE uint64_t num_train_tiles(const TrainJob& job) {
    return (job.num_tokens + tokens_a_tile(job) - 1) / tokens_a_tile(job);
}

// Loads sixteen bytes from an address that 16 divides.
DEVICE uint4 load_16(const void* place) {
#ifdef __CUDACC__
    return *static_cast<const uint4*>(place);
#else
    uint4 value;
    std::memcpy(&value, place, sizeof value);
    return value;
#endif
}

// Stores sixteen bytes to an address that 16 divides.
DEVICE void store_16(void* place, uint4 value) {
#ifdef __CUDACC__
    *static_cast<uint4*>(place) = value;
#else
    std::memcpy(place, &value, sizeof value);
#endif
}
