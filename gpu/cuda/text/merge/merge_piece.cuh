// Byte-pair encoding of pieces by a warp, LANES lanes for a piece of up to 16 * LANES bytes.
//
// As byte-pair encoding is defined, the pair of the lowest rank is merged first, and of equal ranks the leftmost pair,
// until no pair has a rank. One step for "abab" where ab has the lowest rank:
//
//     before   a  b  a  b      keys ab ba ab        the lowest key is that of place 0
//     after    ab .  a  b      keys ab+a . ab       the pairs on both sides are looked up anew
//
// The lanes of a piece find the lowest key together. A lane alone looks up both new pairs at once;
// of several lanes the first looks up the pair ahead and the second the one behind.
//
// Invariant: a key is rank << 7 | place, so that the lowest key is that of the lowest rank and, of equal ones, of the
// leftmost pair.
#pragma once
#include "text/merge/byte_runs.cuh"

namespace warptok::text {

// The fields that merging needs beside its columns; they are kept in registers.
struct Merging {
    const Job& job;
    PairRanks table;
    const uint32_t* byte_pairs;
    const PairFilter* filter;
};

DEVICE Merging merging(const Job& job, const PairFilter* filter) {
    return {job, pair_ranks(job), job.text.byte_pairs, filter};
}

// The rank of two neighbouring symbols; NO_RANK where they do not merge.
DEVICE uint32_t rank_of(const Merging& merging, uint32_t left, uint32_t right) {
    Pair pair = pair_of(merging.table, left, right);
    bool is_needed = may_merge(merging.filter, pair);
    return rank_in(merging.table, pair, load_bucket(merging.table, pair, is_needed), is_needed);
}

// Pieces of so many lanes begin behind their runs; a longer one has more places than Places has bits.
constexpr uint32_t RUN_LANES = 4, MAX_RUN_LANES = 8;

// Four bytes of a piece and the ranks of the pairs that begin there.
struct FourPairs {
    FiveBytes bytes;
    uint32_t ranks[4];
};

// Loads the four pairs of each of a lane's slots, all at the same time; a slot behind the end gets any pairs.
template <uint32_t LANES, uint32_t SLOTS>
DEVICE void load_all_pairs(const Merging& merging, const Group<LANES>& group, const uint8_t* text, uint32_t length,
                          FourPairs* fours) {
#pragma unroll
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        uint32_t place = group.first_of(slot);
        fours[slot].bytes = five_bytes(text, place < length ? place : 0);
    }
#pragma unroll
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        ranks_of_bytes(merging.byte_pairs, fours[slot].bytes, fours[slot].ranks);
}

// Fills a lane's part of the columns with the bytes of a piece and the keys of their pairs, except at covered places;
// returns the lane's lowest key. Where the launch is latency bound, it loads all pairs at once.
template <uint32_t LANES, uint32_t SLOTS, class Policy>
DEVICE uint32_t begin_bytes(const Merging& merging, Group<LANES>& group, const uint8_t* text, uint32_t length,
                            const Places& covered) {
    FourPairs fours[SLOTS];
    uint32_t lowest = NO_KEY;
    if (Policy::IS_LATENCY_BOUND) load_all_pairs<LANES, SLOTS>(merging, group, text, length, fours);
#pragma unroll
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        uint32_t place = group.first_of(slot), keys[4] = {NO_KEY, NO_KEY, NO_KEY, NO_KEY};
        if (place < length) {
            uint32_t without_key = LANES > MAX_RUN_LANES ? 0 : four_of(covered, place);
            FiveBytes bytes = Policy::IS_LATENCY_BOUND ? fours[slot].bytes : five_bytes(text, place);
            uint32_t ranks[4], pairs = (1u << min_of(4, length - place - 1)) - 1 & ~without_key;
            if (!Policy::IS_LATENCY_BOUND) ranks_of_bytes(merging.byte_pairs, bytes, ranks);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                group.word(place + i) = byte_of(bytes.four, i) | 1u << WORD_BITS;
                if (pairs >> i & 1)
                    keys[i] = key_of(Policy::IS_LATENCY_BOUND ? fours[slot].ranks[i] : ranks[i], place + i);
                lowest = min_of(lowest, keys[i]);
            }
        }
        group.four_keys(slot) = {keys[0], keys[1], keys[2], keys[3]};
    }
    return lowest;
}

// Fills the columns with the symbols and keys with which merging a piece begins; returns the lowest key of the lane.
template <uint32_t LANES, uint32_t SLOTS, class Policy>
DEVICE uint32_t begin_piece(const Merging& merging, Group<LANES>& group, const uint8_t* text, uint32_t length) {
    constexpr Places NONE = {0, 0};
    if (LANES < RUN_LANES || LANES > MAX_RUN_LANES)
        return begin_bytes<LANES, SLOTS, Policy>(merging, group, text, length, NONE);
    Places same = same_places<LANES, SLOTS>(group, text, length);
    if (!__any_sync(ALL_LANES, has_run<LANES, SLOTS>(group, same)))
        return begin_bytes<LANES, SLOTS, Policy>(merging, group, text, length, NONE);
    Run run = run_of_lane<LANES>(merging.job, group, text, length, of_group<LANES>(same));
    Places covered = covered_places<LANES>(run);
    begin_bytes<LANES, SLOTS, Policy>(merging, group, text, length, covered);
    __syncwarp();
    start_runs<LANES>(merging.table, merging.filter, group, run, covered, length);
    return lowest_of_lane<LANES, SLOTS>(group);
}

// Merges the pair of a key; the piece is this lane's alone.
DEVICE void merge_pair(const Merging& merging, Group<1>& group, uint32_t key, uint32_t length) {
    uint32_t place = key % (1 << PLACE_BITS), symbol = FIRST_MERGED + (key >> PLACE_BITS);
    uint32_t second = place + length_of(group.word(place));
    uint32_t third = second + length_of(group.word(second));
    bool has_last = place > 0, has_third = third < length;
    uint32_t last = has_last ? place - length_of(group.word(place - 1)) : 0;
    Pair behind = pair_of(merging.table, symbol_of(group.word(last)), symbol);
    Pair ahead = pair_of(merging.table, symbol, has_third ? symbol_of(group.word(third)) : 0);
    bool behind_is_needed = has_last & may_merge(merging.filter, behind);
    bool ahead_is_needed = has_third & may_merge(merging.filter, ahead);
    uint4 two_behind = load_bucket(merging.table, behind, behind_is_needed);
    uint4 two_ahead = load_bucket(merging.table, ahead, ahead_is_needed);
    group.word(place) = group.word(third - 1) = symbol | (third - place) << WORD_BITS;
    group.key(second) = NO_KEY;
    uint32_t rank_behind = rank_in(merging.table, behind, two_behind, behind_is_needed);
    group.key(place) = key_of(rank_in(merging.table, ahead, two_ahead, ahead_is_needed), place);
    if (has_last) group.key(last) = key_of(rank_behind, last);
}

// Merges the pair of a key, which all lanes of the group have, or does nothing where that is NO_KEY.
//
// Lane 0 goes ahead from the first symbol to the second and the third, lane 1 back from the last
// place before it. Neither reads what the other one writes.
template <uint32_t LANES>
DEVICE void merge_pair(const Merging& merging, Group<LANES>& group, uint32_t key, uint32_t length) {
    uint32_t place = key % (1 << PLACE_BITS), symbol = FIRST_MERGED + (key >> PLACE_BITS);
    if (key == NO_KEY || group.member > 1 || group.member > place) return;
    bool is_ahead = group.member == 0;
    uint32_t width = length_of(group.word(place - group.member));
    uint32_t other = is_ahead ? place + width : place - width;
    uint32_t word = group.word(other), third = other + length_of(word);
    bool has_third = third < length, is_needed = !is_ahead | has_third;
    if (is_ahead & has_third) word = group.word(third);
    uint32_t neighbour = symbol_of(word);
    Pair pair = pair_of(merging.table, is_ahead ? symbol : neighbour, is_ahead ? neighbour : symbol);
    is_needed &= may_merge(merging.filter, pair);
    uint4 two = load_bucket(merging.table, pair, is_needed);
    if (is_ahead) {
        group.key(other) = NO_KEY;
        group.word(place) = group.word(third - 1) = symbol | (third - place) << WORD_BITS;
    }
    uint32_t changed = is_ahead ? place : other;
    group.key(changed) = key_of(rank_in(merging.table, pair, two, is_needed), changed);
}

// Encodes a piece of up to 16 * LANES bytes in the group's columns; there is no piece if the length is 0. Each word
// from place 0 on is then a token. All lanes of the warp call it.
template <uint32_t LANES, uint32_t SLOTS, class Policy>
DEVICE void merge_piece(const Merging& merging, Group<LANES>& group, const uint8_t* text, uint32_t length) {
    uint32_t lowest = begin_piece<LANES, SLOTS, Policy>(merging, group, text, length);
    if (LANES == 1) {
        while (lowest != NO_KEY) {
            merge_pair(merging, group, lowest, length);
            lowest = lowest_of_lane<LANES, SLOTS>(group);
        }
        return;
    }
    lowest = lowest_of_group<LANES>(lowest);
    __syncwarp();
    while (__any_sync(ALL_LANES, lowest != NO_KEY)) {
        merge_pair(merging, group, lowest, length);
        __syncwarp();  // Keys and words are written before any lane reads them ...
        lowest = lowest_of_group<LANES>(lowest_of_lane<LANES, SLOTS>(group));
        __syncwarp();  // ... and all are read before any is written anew.
    }
}

// The threads of a block that merges. Two blocks a multiprocessor do as well as one of twice the threads, and fit cards
// that give a block 99 KiB of shared memory.
constexpr uint32_t MERGE_THREADS = 512;
constexpr uint32_t MERGE_BLOCKS = 2;
constexpr uint32_t MERGE_WARPS = MERGE_THREADS / 32;

}  // namespace warptok::text
