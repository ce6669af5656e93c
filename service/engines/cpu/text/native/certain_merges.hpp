// Finds merges that are certain, so that merging begins with longer symbols than bytes.
//
// Two bytes certainly merge if their rank is lower than the rank of any pair that could take one of them: a symbol in
// front with the first byte, or the second byte with a symbol behind. If the first two bytes of a character of three
// bytes merge, they certainly merge with the third byte under the same condition. A symbol in front ends with the byte
// in front, and a symbol behind begins with the byte behind. So tables by these bytes have the lowest rank of all such
// pairs.
//
// This holds for vocabularies in which every pair has a higher rank than the merges that make its two symbols. A pair
// with a finished symbol then comes after the merges within that symbol, so it does not matter when these are made.
//
//     bytes      " t h e n"       ranks   (t h) 5   ( t) 9   (h e) 30   (e n) 12   (h en) 40
//     symbols    " th en"         (t h) and (e n) have lower ranks than all others that could take their bytes
#pragma once

#include <algorithm>

#include "pair_ranks.hpp"

namespace text {

class CertainMerges {
   public:
    // `entries` are those of `pairs`.
    CertainMerges(const PairRanks& pairs, const uint64_t* entries, size_t count, size_t num_symbols)
        : bounds_(1 << 16), characters_(1 << 16) {
        std::vector<uint32_t> lowest_in_front(num_symbols, NO_RANK), lowest_behind(num_symbols, NO_RANK);
        if (!find_bounds(entries, count, lowest_in_front, lowest_behind)) {
            std::fill(bounds_.begin(), bounds_.end(), Bounds{0, 0});   // No merge is certain.
            return;
        }
        for (uint32_t lead = 0xE0; lead < 0xF0; lead++) {
            for (uint32_t second = lead == 0xE0 ? 0xA0 : 0x80; second < 0xC0; second++)
                add_characters(pairs, lowest_in_front, lowest_behind, lead, second);
        }
    }

    // Writes the symbols with which merging bytes may begin, and returns their number.
    //
    // It does not branch on whether a merge is certain, because the processor could not predict it.
    __attribute__((always_inline)) size_t split(const PairRanks& pairs, const uint8_t* bytes, size_t size, uint32_t* symbols) const {
        size_t count = 0, is_second = 0;    // Whether the byte at i is the second one of a merge.
        uint32_t bound_in_front = NO_RANK;
        size_t i = 0;
        while (i + 1 < size) {
            if (bytes[i] >= 0xE0) {
                if (uint32_t symbol = find_character(bytes, i, size)) {
                    symbols[count++] = symbol;
                    i += 3;
                    bound_in_front = i < size ? bounds_[bytes[i - 1] << 8 | bytes[i]].of_second : 0;
                    continue;
                }
            }
            const size_t pair = static_cast<size_t>(bytes[i] << 8 | bytes[i + 1]);
            const uint32_t bound_behind = i + 2 < size ? bounds_[bytes[i + 1] << 8 | bytes[i + 2]].of_first : NO_RANK;
            const uint32_t rank = pairs.of_bytes(bytes[i], bytes[i + 1]);
            const size_t is_certain = without_branch(rank < std::min(bound_in_front, bound_behind));
            const uint32_t merged = FIRST_MERGED + rank;
            symbols[count] = bytes[i] + (merged - bytes[i]) * static_cast<uint32_t>(is_certain);
            count += 1 - is_second;
            is_second = is_certain;
            bound_in_front = bounds_[pair].of_second;
            i++;
        }
        if (i < size) symbols[count] = bytes[i];
        return count + (size - i) - is_second;
    }

   private:
    // The lowest ranks of pairs of symbols around two bytes.
    struct Bounds {
        uint32_t of_second;     // Of a symbol that ends with the first byte, and the second byte.
        uint32_t of_first;      // Of the first byte, and a symbol that begins with the second byte.
    };

    // Finds the bounds of pairs of bytes. Finds for each symbol the lowest rank with a symbol in front that ends with a
    // byte above ASCII, and the lowest with a symbol behind that begins with the first byte of a character. Returns
    // whether every pair has a higher rank than the merges that make its two symbols.
    bool find_bounds(const uint64_t* entries, size_t count, std::vector<uint32_t>& lowest_in_front,
                     std::vector<uint32_t>& lowest_behind) {
        std::fill(bounds_.begin(), bounds_.end(), Bounds{NO_RANK, NO_RANK});
        std::vector<uint8_t> first(lowest_in_front.size()), last(lowest_in_front.size());
        for (uint32_t byte = 0; byte < FIRST_MERGED; byte++) first[byte] = last[byte] = static_cast<uint8_t>(byte);
        auto lower = [](uint32_t& lowest, uint32_t rank) { lowest = std::min(lowest, rank); };
        uint32_t before = 0;
        for (const uint64_t* entry = entries; entry < entries + count; entry++) {
            auto left = static_cast<uint32_t>(*entry >> 43), right = static_cast<uint32_t>(*entry >> 22 & 0x1FFFFF);
            auto rank = static_cast<uint32_t>(*entry & 0x3FFFFF), made = FIRST_MERGED + rank;
            if (rank < before || left >= made || right >= made) return false;
            before = rank;
            first[made] = first[left];
            last[made] = last[right];
            if (right < FIRST_MERGED) lower(bounds_[last[left] << 8 | right].of_second, rank);
            if (left < FIRST_MERGED) lower(bounds_[left << 8 | first[right]].of_first, rank);
            if (last[left] >= 0x80) lower(lowest_in_front[right], rank);
            if (first[right] >= 0xC0) lower(lowest_behind[left], rank);
        }
        return true;
    }

    // Adds the characters that begin with two given bytes and certainly merge from left to right.
    void add_characters(const PairRanks& pairs, const std::vector<uint32_t>& lowest_in_front,
                        const std::vector<uint32_t>& lowest_behind, uint32_t lead, uint32_t second) {
        const uint32_t first = pairs.of_bytes(static_cast<uint8_t>(lead), static_cast<uint8_t>(second));
        if (first >= lowest_in_front[lead]) return;
        const uint32_t symbol = FIRST_MERGED + first;
        for (uint32_t third = 0x80; third < 0xC0; third++) {
            const uint32_t whole = pairs.find(symbol, third);
            if (first < pairs.of_bytes(static_cast<uint8_t>(second), static_cast<uint8_t>(third)) &&
                whole < std::min(lowest_in_front[symbol], lowest_behind[third]))
                characters_[code_point(lead, second, third)] = FIRST_MERGED + whole;
        }
    }

    static uint32_t code_point(uint32_t lead, uint32_t second, uint32_t third) {
        return (lead & 0x0F) << 12 | (second & 0x3F) << 6 | (third & 0x3F);
    }

    // Returns the symbol of the character of three bytes at a place; 0: it is not certain, or none is there. The bytes
    // need not be UTF-8.
    uint32_t find_character(const uint8_t* bytes, size_t place, size_t size) const {
        const uint8_t* at = bytes + place;
        const size_t end = place + 3;
        if (end > size || (place && at[-1] < 0x80) || (end < size && at[3] < 0xC0)) return 0;
        if (at[0] >= 0xF0 || (at[1] & 0xC0) != 0x80 || (at[2] & 0xC0) != 0x80) return 0;
        return characters_[code_point(at[0], at[1], at[2])];
    }

    LargeVector<Bounds> bounds_;            // Of two bytes, first << 8 | second.
    LargeVector<uint32_t> characters_;      // The symbol of each code point of three bytes; 0: it is not certain.
};

}  // namespace text
