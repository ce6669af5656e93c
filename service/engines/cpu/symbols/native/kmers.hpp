// Encodes runs of letters: k-mers at every letter in blocks, k-mers farther apart one by one.
//
// For k-mers at every letter, a number of 2, 4, ... letters is computed from two numbers of half as many letters. The
// numbers whose lengths are the binary digits of k are joined, so k = 6 takes three steps. Each step is a loop that the
// compiler vectorizes.
//
//     codes     0 1 2 3 0 1 ...         A C G T A C
//     pairs     1 6 11 12 1 ...         4 * code + next code
//     fours     27 108 177 ...          16 * pair + pair two letters on
//     sixes     433 ...                 16 * four + pair four letters on
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rules.hpp"
#include "writer.hpp"

namespace symbols {

constexpr int64_t BLOCK = 2048;   // Ids at a time, so that the numbers stay in the first-level cache.
constexpr int64_t BUFFER = BLOCK + MAX_K;

// Writes one id for each letter; returns the flags of all of them.
template <typename Id>
uint8_t write_characters(const Rules& rules, const uint8_t* letters, int64_t begin, int64_t count, Writer<Id>& writer) {
    return static_cast<uint8_t>(writer.look_up(letters, count, rules.characters, ID_MASK, begin) >> FLAG_SHIFT);
}

// Ids of the k-mers at all letters of a block. Lane is uint16_t where ids fit into it, else uint32_t.
template <typename Lane>
class EveryLetter {
   public:
    explicit EveryLetter(const Rules& rules) : rules_(rules) {}

    // Returns the ids of `count` k-mers, and adds the flags of their letters to `flags`.
    const Lane* ids(const uint8_t* letters, int64_t count, uint8_t& flags) {
        auto num_codes = static_cast<size_t>(count + rules_.k - 1);
        if (!memory_) memory_.reset(new Lane[4 * BUFFER]);
        uint8_t found = read_codes(letters, num_codes, memory_.get());
        flags |= found;
        unknown_.clear();
        if (found) remove_flags(num_codes, memory_.get());
        Lane* ids = number_all(num_codes);
        if (!unknown_.empty()) fill_unknown(ids, count);
        return ids;
    }

   private:
    uint8_t read_codes(const uint8_t* __restrict letters, size_t count, Lane* __restrict codes) const {
        for (size_t i = 0; i < count; i++) codes[i] = rules_.codes[letters[i]];
        Lane all = 0;
        for (size_t i = 0; i < count; i++) all = static_cast<Lane>(all | codes[i]);
        return static_cast<uint8_t>(all >> CODE_BITS);
    }

    void remove_flags(size_t count, Lane* codes) {
        for (size_t i = 0; i < count; i++) {
            if (codes[i] >> CODE_BITS & NO_LETTER) unknown_.push_back(static_cast<int64_t>(i));
            codes[i] &= (1 << CODE_BITS) - 1;
        }
    }

    static void join(const Lane* __restrict left, const Lane* __restrict right, Lane factor, Lane added, size_t count,
                     Lane* __restrict numbers) {
        for (size_t i = 0; i < count; i++)
            numbers[i] = static_cast<Lane>(static_cast<uint32_t>(left[i]) * factor + right[i] + added);
    }

    static Lane power(Lane base, int exponent) {
        Lane result = 1;
        for (int i = 0; i < exponent; i++) result = static_cast<Lane>(result * base);
        return result;
    }

    Lane* number_all(size_t num_codes) {
        auto base = static_cast<Lane>(rules_.num_letters), first_id = static_cast<Lane>(rules_.first_id);
        Lane *numbers = memory_.get(), *next = numbers + BUFFER;
        Lane *result = next + BUFFER, *next_result = result + BUFFER;
        int covered = 0;
        for (int width = 1;; width *= 2) {
            auto size = static_cast<size_t>(width);
            if (rules_.k & width) {
                size_t count = num_codes + 1 - static_cast<size_t>(covered) - size;
                bool is_last = covered + width == rules_.k;
                auto added = static_cast<Lane>(is_last ? first_id : 0);
                if (covered) join(numbers, result + width, power(base, covered), added, count, next_result);
                else for (size_t i = 0; i < count; i++) next_result[i] = static_cast<Lane>(numbers[i] + added);
                std::swap(result, next_result);
                covered += width;
                if (is_last) return result;
            }
            join(numbers, numbers + width, power(base, width), 0, num_codes + 1 - 2 * size, next);
            std::swap(numbers, next);
        }
    }

    void fill_unknown(Lane* ids, int64_t count) const {
        int64_t filled = 0;
        for (int64_t place : unknown_) {
            int64_t last = std::min(place + 1, count);
            for (filled = std::max(filled, place + 1 - rules_.k); filled < last; filled++)
                ids[filled] = static_cast<Lane>(rules_.unknown_id);
        }
    }

    const Rules& rules_;
    std::unique_ptr<Lane[]> memory_;   // Four buffers, not initialized.
    std::vector<int64_t> unknown_;   // Places of bytes that are no letters.
};

// Encodes runs; a thread has one.
class KmerEncoder {
   public:
    explicit KmerEncoder(const Rules& rules) : rules_(rules), narrow_(rules), wide_(rules) {}

    // Writes the ids of a run whose place `run.begin + i` is `letters[i]`; returns the flags of the letters that it
    // met.
    template <typename Id>
    uint8_t write(const uint8_t* letters, int64_t place, const Run& run, Writer<Id>& writer) {
        RunIds ids(rules_, run);
        uint8_t flags = 0;
        const uint8_t* first = letters + (ids.first_kmer - place);
        if (rules_.stride > 1) write_apart(first, ids.first_kmer, ids.num_kmers, rules_.stride, writer);
        else if (rules_.fits_16_bits()) flags = write_every(narrow_, first, ids.first_kmer, ids.num_kmers, writer);
        else flags = write_every(wide_, first, ids.first_kmer, ids.num_kmers, writer);
        if (ids.num_rest)
            write_characters(rules_, letters + (ids.first_rest - place), ids.first_rest, ids.num_rest, writer);
        return flags;
    }

    // Writes `count` k-mers, each `stride` behind the one before.
    template <typename Id>
    void write_apart(const uint8_t* letters, int64_t begin, int64_t count, int64_t stride, Writer<Id>& writer) {
        for (; count; letters += BLOCK * stride, begin += BLOCK * stride) {
            int64_t now = std::min(count, BLOCK);
            if (!apart_) apart_.reset(new uint32_t[BLOCK]);
            if (rules_.k == 6) read_apart<6>(letters, now, stride);
            else read_apart<0>(letters, now, stride);
            writer.put(apart_.get(), now, begin, stride, rules_.k);
            count -= now;
        }
    }

    // Writes k-mers at every letter; one with signs has as many unknown ids as pieces. Returns the number of ids.
    //
    // Each sign is a piece, and so is each run of letters between signs. Example, k = 3: A-C has the pieces A, - and C.
    template <typename Put>
    int64_t split_at_signs(const uint8_t* row, int64_t length, Put put) const {
        int64_t signs = 0, begun = 0, count = 0, k = rules_.k;   // Signs, and letters behind a sign, in the k-mer.
        auto is_sign = [&](int64_t i) { return (rules_.flags[row[i]] & SIGN) != 0; };
        auto begins = [&](int64_t i) { return i > 0 && !is_sign(i) && is_sign(i - 1); };
        for (int64_t i = 0; i < length; i++) {
            signs += is_sign(i);
            begun += begins(i);
            int64_t first = i + 1 - k;
            if (first < 0) continue;
            int64_t pieces = signs + begun - begins(first) + !is_sign(first);
            put(first, pieces);
            count += pieces;
            signs -= is_sign(first);
            begun -= begins(first);
        }
        return count;
    }

   private:
    template <typename Lane, typename Id>
    uint8_t write_every(EveryLetter<Lane>& every, const uint8_t* letters, int64_t begin, int64_t count,
                        Writer<Id>& writer) {
        uint8_t flags = 0;
        for (; count; letters += BLOCK, begin += BLOCK) {
            int64_t now = std::min(count, BLOCK);
            writer.put(every.ids(letters, now, flags), now, begin, 1, rules_.k);
            count -= now;
        }
        return flags;
    }

    template <int K>
    void read_apart(const uint8_t* letters, int64_t count, int64_t stride) {
        for (int64_t i = 0; i < count; i++) apart_[i] = rules_.id_at<K>(letters + i * stride);
    }

    const Rules& rules_;
    EveryLetter<uint16_t> narrow_;
    EveryLetter<uint32_t> wide_;
    std::unique_ptr<uint32_t[]> apart_;   // Ids of a block.
};

}  // namespace symbols
