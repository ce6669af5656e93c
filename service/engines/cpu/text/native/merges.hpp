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
#include "certain_merges.hpp"

namespace text {

constexpr size_t MAX_SHORT = 128;    // Bytes that are merged by search; more, by a tree.

// The merges of a vocabulary, and the id of each symbol.
struct MergeTables {
    const PairRanks pairs;
    const CertainMerges certain;
    const std::vector<int32_t> ids;

    MergeTables(const uint64_t* entries, size_t count, std::vector<int32_t>&& symbol_ids, uint64_t seed)
        : pairs(entries, count, seed), certain(pairs, entries, count, symbol_ids.size()), ids(std::move(symbol_ids)) {}
};

// Eight numbers, which the compiler keeps in a vector register.
typedef int32_t Numbers __attribute__((vector_size(32)));
constexpr size_t WIDTH = 8;
constexpr int32_t NO_NUMBER = INT32_MAX;

__attribute__((always_inline)) inline void set_lane(Numbers& numbers, size_t lane, int32_t number) {
    constexpr Numbers LANES = {0, 1, 2, 3, 4, 5, 6, 7};
    numbers = LANES == static_cast<int32_t>(lane) ? number - Numbers{} : numbers;
}

// Makes each number the least of itself and of the number at its place in PLACES.
template <int... PLACES>
__attribute__((always_inline)) inline void fold(Numbers& numbers) {
#if defined(__clang__)
    Numbers moved = __builtin_shufflevector(numbers, numbers, PLACES...);
#else
    Numbers moved = __builtin_shuffle(numbers, Numbers{PLACES...});
#endif
    numbers = moved < numbers ? moved : numbers;
}

__attribute__((always_inline)) inline int32_t least_of(const Numbers& all) {
    Numbers numbers = all;
    fold<4, 5, 6, 7, 0, 1, 2, 3>(numbers);
    fold<2, 3, 0, 1, 6, 7, 4, 5>(numbers);
    fold<1, 0, 3, 2, 5, 4, 7, 6>(numbers);
    return numbers[0];
}

// The least of 16 numbers, while single ones change, in two vector registers.
struct LeastOf16 {
    static constexpr size_t SIZE = 2 * WIDTH;
    Numbers halves[2];

    __attribute__((always_inline)) LeastOf16(const Numbers* numbers, size_t) : halves{numbers[0], numbers[1]} {}
    __attribute__((always_inline)) void set(size_t place, int32_t number) {
        set_lane(halves[0], place, number);
        set_lane(halves[1], place - WIDTH, number);
    }
    __attribute__((always_inline)) int32_t least() const {
        return least_of(halves[0] < halves[1] ? halves[0] : halves[1]);
    }
};

// The least of 128 numbers, while single ones change: the minima of groups of eight are in two vector registers.
//
// A group is written as a whole: if one number were written, the processor would wait before it could read the group.
struct LeastOf128 {
    static constexpr size_t SIZE = 2 * WIDTH * WIDTH;
    Numbers* groups;
    Numbers minima[2];

    __attribute__((always_inline)) LeastOf128(Numbers* numbers, size_t count) : groups(numbers) {
        alignas(Numbers) int32_t least[2 * WIDTH];
        for (size_t group = 0; group < 2 * WIDTH; group++)
            least[group] = group * WIDTH < count ? least_of(groups[group]) : NO_NUMBER;
        std::memcpy(minima, least, sizeof(minima));
    }
    __attribute__((always_inline)) void set(size_t place, int32_t number) {
        size_t group = place / WIDTH;
        Numbers numbers = groups[group];
        set_lane(numbers, place % WIDTH, number);
        groups[group] = numbers;
        int32_t least = least_of(numbers);
        set_lane(minima[0], group, least);
        set_lane(minima[1], group - WIDTH, least);
    }
    __attribute__((always_inline)) int32_t least() const {
        return least_of(minima[0] < minima[1] ? minima[0] : minima[1]);
    }
};

// Merges symbols and writes the ids; returns the place behind them.
//
// Each symbol stays at the place of its first one. A symbol's number is rank << 7 | place, with the rank of its pair
// with the next symbol, so that the least number is that of the leftmost pair of the lowest rank.
template <typename LeastNumbers>
__attribute__((always_inline)) inline int32_t* merge_by(const MergeTables& tables, uint32_t* symbols, size_t size, int32_t* out) {
    constexpr size_t SIZE = LeastNumbers::SIZE;
    constexpr int PLACE_BITS = 7;
    static_assert(SIZE <= 1 << PLACE_BITS);
    const PairRanks& pairs = tables.pairs;
    uint8_t before[SIZE + 1], after[SIZE + 1];
    union {
        Numbers vectors[SIZE / WIDTH];
        int32_t numbers[SIZE];
    };
    auto number_of = [](uint32_t rank, size_t place) {
        return rank == NO_RANK ? NO_NUMBER : static_cast<int32_t>(rank << PLACE_BITS | static_cast<uint32_t>(place));
    };
    for (size_t i = 0; i < SIZE / WIDTH; i++) vectors[i] = NO_NUMBER - Numbers{};
    for (size_t i = 0; i < size; i++) {
        before[i] = static_cast<uint8_t>(i - 1);
        after[i] = static_cast<uint8_t>(i + 1);
    }
    for (size_t i = 0; i + 1 < size; i++) numbers[i] = number_of(pairs.find_any(symbols[i], symbols[i + 1]), i);
    LeastNumbers order(vectors, size);
    for (int32_t least; (least = order.least()) != NO_NUMBER;) {
        auto place = static_cast<size_t>(least) & ((1 << PLACE_BITS) - 1);
        uint32_t symbol = FIRST_MERGED + static_cast<uint32_t>(least >> PLACE_BITS);
        symbols[place] = symbol;
        size_t gone = after[place], next = after[gone], previous = before[place];
        after[place] = static_cast<uint8_t>(next);
        before[next] = static_cast<uint8_t>(place);
        order.set(gone, NO_NUMBER);
        uint32_t rank = next < size ? pairs.find(symbol, symbols[next]) : NO_RANK;
        order.set(place, number_of(rank, place));
        if (place) order.set(previous, number_of(pairs.find(symbols[previous], symbol), previous));
    }
    for (size_t i = 0; i < size; i = after[i]) *out++ = tables.ids[symbols[i]];
    return out;
}

// Merges up to MAX_SHORT bytes of a pretoken and writes the ids; returns the place behind them.
__attribute__((always_inline)) inline int32_t* merge_short_by(const MergeTables& tables, const uint8_t* bytes, size_t size, int32_t* out) {
    uint32_t symbols[MAX_SHORT];
    size_t count = tables.certain.split(tables.pairs, bytes, size, symbols);
    return count <= LeastOf16::SIZE ? merge_by<LeastOf16>(tables, symbols, count, out)
                                    : merge_by<LeastOf128>(tables, symbols, count, out);
}

using MergeShort = int32_t* (*)(const MergeTables&, const uint8_t*, size_t, int32_t*);

inline int32_t* merge_short(const MergeTables& tables, const uint8_t* bytes, size_t size, int32_t* out) {
    return merge_short_by(tables, bytes, size, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2,bmi,bmi2"))) inline int32_t* merge_short_avx2(const MergeTables& tables, const uint8_t* bytes, size_t size, int32_t* out) {
    return merge_short_by(tables, bytes, size, out);
}
inline MergeShort choose_merge_short() {
    bool has_all = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    return has_all ? merge_short_avx2 : merge_short;
}
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
    int32_t* merge(const MergeTables& tables, const uint8_t* bytes, size_t size, int32_t* out, StillNeeded* needed) {
        const PairRanks& pairs = tables.pairs;
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
        for (uint32_t i = 0; i < count; i = after_[i]) *out++ = tables.ids[symbols_[i]];
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
