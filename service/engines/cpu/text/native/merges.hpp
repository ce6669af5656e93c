// Merges the bytes of a pretoken: the pair of lowest rank first, the leftmost of equal ones.
//
// A symbol is a byte's value, or 256 + the rank of the merge that makes it, so that a pair's rank says what it becomes.
//
//     bytes    c a t s         ranks of pairs   (c a) 7   (a t) 2   (t s) -
//     merge 2  c at s                           (c at) 5            (at s) 9
//     merge 5  cat s                                                (cat s) -
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "../../native/still_needed.hpp"

namespace text {

constexpr uint32_t NO_RANK = 0xFFFFFFFF;
constexpr uint32_t FIRST_MERGED = 256;
constexpr size_t MAX_SHORT = 64;     // Symbols that are merged by search; more, by a queue.

// Ranks of pairs of symbols; `entries` are left << 43 | right << 22 | rank, as gpu/text/bpe_tables.py makes them.
class PairRanks {
   public:
    PairRanks(const uint64_t* entries, size_t count, uint64_t seed) : seed_((seed * 0x9E3779B97F4A7C15u) | 1), of_bytes_(1 << 16, NO_RANK) {
        size_t size = 64;
        while (2 * size < 3 * count) size *= 2;
        shift_ = 64 - __builtin_ctzll(size);
        slots_.assign(size, EMPTY);
        size_t num_bits = 1 << 16;
        while (num_bits < 8 * count) num_bits *= 2;
        filter_shift_ = 64 - __builtin_ctzll(num_bits);
        filter_.assign(num_bits / 64, 0);
        for (size_t i = 0; i < count; i++) insert(entries[i]);
    }

    uint32_t of_bytes(uint8_t left, uint8_t right) const { return of_bytes_[left << 8 | right]; }

    uint32_t find(uint32_t left, uint32_t right) const {
        uint64_t key = static_cast<uint64_t>(left) << 21 | right;
        uint64_t hash = hash_of(key);
        size_t bit = hash >> filter_shift_;
        if (!(filter_[bit / 64] >> (bit % 64) & 1)) return NO_RANK;
        for (size_t slot = hash >> shift_;; slot = (slot + 1) & (slots_.size() - 1)) {
            uint64_t entry = slots_[slot];
            if (entry >> 22 == key) return entry & 0x3FFFFF;
            if (entry == EMPTY) return NO_RANK;
        }
    }

    size_t num_bytes() const { return slots_.size() * 8 + of_bytes_.size() * 4; }

   private:
    static constexpr uint64_t EMPTY = ~uint64_t{0};

    uint64_t hash_of(uint64_t key) const { return key * seed_; }

    void insert(uint64_t entry) {
        uint64_t key = entry >> 22;
        uint64_t hash = hash_of(key);
        filter_[hash >> filter_shift_ >> 6] |= uint64_t{1} << (hash >> filter_shift_ & 63);
        size_t slot = hash >> shift_;
        while (slots_[slot] != EMPTY && slots_[slot] >> 22 != key) slot = (slot + 1) & (slots_.size() - 1);
        slots_[slot] = entry;
        uint64_t left = key >> 21, right = key & 0x1FFFFF;
        if (left < 256 && right < 256) of_bytes_[left << 8 | right] = entry & 0x3FFFFF;
    }

    const uint64_t seed_;
    int shift_, filter_shift_;
    std::vector<uint64_t> filter_;       // A bit for each hash that a pair has: most pairs have none.
    std::vector<uint64_t> slots_;
    std::vector<uint32_t> of_bytes_;
};

// The first and last of the set bits of a mask above or below a place.
inline size_t bit_above(uint64_t mask, size_t place) { return static_cast<size_t>(__builtin_ctzll(mask & (~uint64_t{1} << place))); }
inline size_t bit_below(uint64_t mask, size_t place) {
    return 63 - static_cast<size_t>(__builtin_clzll(mask & ((uint64_t{1} << place) - 1)));
}

// Merges up to 64 bytes and writes the ids; returns the place behind them.
//
// Each symbol stays at the place of its first byte. `order` has rank << 6 | place of each symbol and the next one, so
// that its least value is the leftmost pair of the lowest rank.
__attribute__((always_inline)) inline int32_t* merge_short_by(const PairRanks& pairs, const uint8_t* bytes, size_t size, const int32_t* ids, int32_t* out) {
    constexpr int32_t NONE = INT32_MAX;
    uint32_t symbols[MAX_SHORT];
    alignas(32) int32_t order[MAX_SHORT];
    auto order_of = [](uint32_t rank, size_t place) {
        return rank == NO_RANK ? NONE : static_cast<int32_t>(rank << 6 | static_cast<uint32_t>(place));
    };
    const size_t padded = (size + 7) / 8 * 8;
    for (size_t i = 0; i < size; i++) symbols[i] = bytes[i];
    for (size_t i = 0; i + 1 < size; i++) order[i] = order_of(pairs.of_bytes(bytes[i], bytes[i + 1]), i);
    for (size_t i = size - 1; i < padded; i++) order[i] = NONE;
    uint64_t live = size == 64 ? ~uint64_t{0} : (uint64_t{1} << size) - 1;
    while (true) {
        int32_t least = NONE;
        for (size_t i = 0; i < padded; i++) least = std::min(least, order[i]);
        if (least == NONE) break;
        auto place = static_cast<size_t>(least & 63);
        symbols[place] = FIRST_MERGED + static_cast<uint32_t>(least >> 6);
        size_t gone = bit_above(live, place);
        live &= ~(uint64_t{1} << gone);
        order[gone] = NONE;
        order[place] = NONE;
        if (live >> place > 1) {
            order[place] = order_of(pairs.find(symbols[place], symbols[bit_above(live, place)]), place);
        }
        if (place) {
            size_t before = bit_below(live, place);
            order[before] = order_of(pairs.find(symbols[before], symbols[place]), before);
        }
    }
    for (; live; live &= live - 1) *out++ = ids[symbols[__builtin_ctzll(live)]];
    return out;
}

using MergeShort = int32_t* (*)(const PairRanks&, const uint8_t*, size_t, const int32_t*, int32_t*);

inline int32_t* merge_short(const PairRanks& pairs, const uint8_t* bytes, size_t size, const int32_t* ids, int32_t* out) {
    return merge_short_by(pairs, bytes, size, ids, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2,bmi,bmi2,lzcnt"))) inline int32_t* merge_short_avx2(const PairRanks& pairs, const uint8_t* bytes, size_t size, const int32_t* ids, int32_t* out) {
    return merge_short_by(pairs, bytes, size, ids, out);
}
inline MergeShort choose_merge_short() { return __builtin_cpu_supports("avx2") ? merge_short_avx2 : merge_short; }
#else
inline MergeShort choose_merge_short() { return merge_short; }
#endif

// The least of many numbers and its first place, while single numbers change.
//
// Each level has the minima of 16 numbers of the one below:
//
//     level 1   3                     7
//     level 0   9 3 5 4 8 3 ... 6     8 7 9 ...        find_first: 3 at place 1
class MinimumTree {
   public:
    static constexpr int32_t NONE = INT32_MAX;

    // Makes the tree of `size` numbers, which the caller then writes to `leaves()` before it calls `build`.
    void resize(size_t size) {
        levels_.clear();
        do {
            size_t padded = (size + WIDTH - 1) / WIDTH * WIDTH;
            levels_.emplace_back(padded, NONE);
            size = padded / WIDTH;
        } while (size > 1);
    }

    int32_t* leaves() { return levels_[0].data(); }

    void build() {
        for (size_t level = 1; level < levels_.size(); level++) {
            for (size_t i = 0; i < levels_[level - 1].size() / WIDTH; i++)
                levels_[level][i] = least_of(levels_[level - 1].data() + i * WIDTH);
        }
    }

    void set(size_t place, int32_t number) {
        levels_[0][place] = number;
        for (size_t level = 1; level < levels_.size(); level++) {
            place /= WIDTH;
            int32_t least = least_of(levels_[level - 1].data() + place * WIDTH);
            if (levels_[level][place] == least) return;
            levels_[level][place] = least;
        }
    }

    // Returns the least number; its first place is written to `place`.
    int32_t find_first(size_t& place) const {
        int32_t least = least_of(levels_.back().data());
        place = 0;
        for (size_t level = levels_.size(); level-- > 0;) {
            const int32_t* group = levels_[level].data() + place * WIDTH;
            size_t i = 0;
            while (group[i] != least) i++;
            place = place * WIDTH + i;
        }
        return least;
    }

   private:
    static constexpr size_t WIDTH = 16;

    static int32_t least_of(const int32_t* group) {
        int32_t least = group[0];
        for (size_t i = 1; i < WIDTH; i++) least = std::min(least, group[i]);
        return least;
    }

    std::vector<std::vector<int32_t>> levels_;
};

// Merges a long pretoken by a tree of the ranks of its pairs, in time n log n.
class LongMerger {
   public:
    // `needed` may be null.
    int32_t* merge(const PairRanks& pairs, const uint8_t* bytes, size_t size, const int32_t* ids, int32_t* out,
                   StillNeeded* needed) {
        if (size > UINT32_MAX / 2) throw std::length_error("a pretoken is too long");
        const auto count = static_cast<uint32_t>(size);
        symbols_.assign(bytes, bytes + size);
        before_.resize(size);
        after_.resize(size);
        ranks_.resize(size);
        for (uint32_t i = 0; i < count; i++) {
            before_[i] = i - 1;
            after_[i] = i + 1;
        }
        for (uint32_t i = 0; i + 1 < count; i++) ranks_.leaves()[i] = rank_of(pairs.of_bytes(bytes[i], bytes[i + 1]));
        ranks_.build();
        size_t place, num_merges = 0;
        for (int32_t rank; (rank = ranks_.find_first(place)) != MinimumTree::NONE;) {
            merge_at(pairs, static_cast<uint32_t>(place), rank, count);
            if (needed && ++num_merges % MERGES_A_CHECK == 0) needed->check();
        }
        for (uint32_t i = 0; i < count; i = after_[i]) *out++ = ids[symbols_[i]];
        return out;
    }

   private:
    static constexpr size_t MERGES_A_CHECK = 1 << 12;

    static int32_t rank_of(uint32_t rank) { return static_cast<int32_t>(std::min<uint32_t>(rank, INT32_MAX)); }

    void merge_at(const PairRanks& pairs, uint32_t place, int32_t rank, uint32_t count) {
        uint32_t next = after_[place];
        symbols_[place] = FIRST_MERGED + static_cast<uint32_t>(rank);
        after_[place] = after_[next];
        ranks_.set(next, MinimumTree::NONE);
        if (after_[place] < count) {
            before_[after_[place]] = place;
            ranks_.set(place, rank_of(pairs.find(symbols_[place], symbols_[after_[place]])));
        } else {
            ranks_.set(place, MinimumTree::NONE);
        }
        if (place) {
            uint32_t before = before_[place];
            ranks_.set(before, rank_of(pairs.find(symbols_[before], symbols_[place])));
        }
    }

    std::vector<uint32_t> symbols_, before_, after_;
    MinimumTree ranks_;
};

}  // namespace text
