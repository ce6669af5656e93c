// Ranks of pairs of symbols.
//
// A symbol is a byte's value, or 256 + the rank of the merge that makes it, so that a pair's rank says what it becomes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../native/large_pages.hpp"

namespace text {

constexpr uint32_t NO_RANK = 0xFFFFFFFF;
constexpr uint32_t FIRST_MERGED = 256;

// Keeps the compiler from a branch on a comparison, which the processor could not predict.
inline size_t without_branch(bool is_true) {
    size_t number = is_true;
    __asm__("" : "+r"(number));
    return number;
}

// `entries` are left << 43 | right << 22 | rank, as gpu/text/bpe_tables.py makes them.
class PairRanks {
   public:
    PairRanks(const uint64_t* entries, size_t count, uint64_t seed) : seed_((seed * 0x9E3779B97F4A7C15u) | 1), of_bytes_(1 << 16, NO_RANK) {
        size_t size = 64;
        while (4 * size < 5 * count) size *= 2;
        shift_ = 64 - __builtin_ctzll(size);
        slots_.assign(size, EMPTY);
        size_t num_bits = 1 << 16;
        while (num_bits < 8 * count) num_bits *= 2;
        filter_shift_ = 64 - __builtin_ctzll(num_bits);
        filter_.assign(num_bits / 64, 0);
        for (size_t i = 0; i < count; i++) insert(entries[i]);
    }

    uint32_t of_bytes(uint8_t left, uint8_t right) const { return of_bytes_[left << 8 | right]; }

    uint32_t find_any(uint32_t left, uint32_t right) const {
        if ((left | right) < FIRST_MERGED) return of_bytes(static_cast<uint8_t>(left), static_cast<uint8_t>(right));
        return find(left, right);
    }

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
    LargeVector<uint64_t> slots_;
    std::vector<uint32_t> of_bytes_;
};

}  // namespace text
