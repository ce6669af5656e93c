// The rules of a vocabulary of characters or k-mers, as tables by byte; Python makes them (symbols/encoder.py).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace symbols {

// Properties of a byte that decide how its row is encoded.
enum Flag : uint8_t {
    REFERENCE = 1,       // The row may need the reference, for example for a special token.
    HIGH = 2,            // The byte is not ASCII.
    BREAK = 4,           // Ends a run of letters: another kind than LETTER; of characters: gives no id.
    SIGN = 8,            // Splits the k-mers that hold it into several unknown ids.
    SPACE = 16,          // White space that separates k-mers or parts of a sequence.
    NO_LETTER = 32,      // A k-mer that holds it is unknown.
};

enum Kind : uint8_t {
    LETTER,     // Part of k-mers.
    SINGLE,     // One id by itself.
    SKIPPED,    // No id.
    OTHER,      // A run of them is one unknown id.
};

// Why a row is not encoded here; symbols/encoder.py knows the numbers.
enum Reason : uint8_t { NONE, BY_REFERENCE, BY_CODE_POINTS };

constexpr int MAX_K = 16;                 // More than any vocabulary has.
constexpr uint32_t MAX_KMERS = 1 << 25;   // MAX_K weights of so much fit into 32 bits.
constexpr int FLAG_SHIFT = 24;            // Of the flags in an entry of `characters`.
constexpr uint32_t ID_MASK = (1 << FLAG_SHIFT) - 1;
constexpr int CODE_BITS = 8;              // Of the code in an entry of `codes`; its flags are above.

struct Rules {
    uint8_t flags[256];
    uint8_t kinds[256];
    uint16_t codes[256];         // Code of a letter and flags.
    uint32_t characters[256];    // Id of a single letter and flags.
    std::vector<uint32_t> weights;   // [k][256]: what a letter at a place adds to the number of its k-mer.
    int k = 0;                   // 0: characters.
    int stride = 1;
    uint32_t num_letters = 0, num_kmers = 0, first_id = 0, unknown_id = 0;
    bool has_remainder = false;  // The letters behind the last k-mer of a run have ids of their own.
    bool has_words = false;      // A row with white space holds k-mers that are already separated.
    bool is_prepended = false;   // The k-mers over the junction of a circular sequence stand in front.
    bool has_code_points = false;  // Characters of several bytes have one id.
    uint8_t all_flags = 0;       // Of all bytes.

    bool is_characters() const { return k == 0; }
    // Whether the number of a row's ids follows from its length, unless the row is skipped.
    bool has_fixed_counts() const { return stride == 1 && !(all_flags & (BREAK | SIGN | SPACE)); }
    bool fits_16_bits() const { return first_id + num_kmers <= 1 << 16 && unknown_id < 1 << 16; }

    // The rules for rows of the other strand, by the complement of each letter.
    Rules opposite(const uint8_t* complement) const {
        Rules rules = *this;
        for (int byte = 0; byte < 256; byte++) {
            rules.flags[byte] = flags[complement[byte]];
            rules.kinds[byte] = kinds[complement[byte]];
            rules.codes[byte] = codes[complement[byte]];
            rules.characters[byte] = characters[complement[byte]];
        }
        return rules;
    }

    void prepare() {
        for (int byte = 0; byte < 256; byte++) {
            codes[byte] = static_cast<uint16_t>(codes[byte] | flags[byte] << CODE_BITS);
            characters[byte] |= static_cast<uint32_t>(flags[byte]) << FLAG_SHIFT;
            all_flags |= flags[byte];
        }
        weights.resize(static_cast<size_t>(k) * 256);
        uint32_t power = 1;
        for (int place = k - 1; place >= 0; place--, power *= num_letters)
            for (int byte = 0; byte < 256; byte++)
                weights[static_cast<size_t>(place * 256 + byte)] =
                    flags[byte] & NO_LETTER ? MAX_KMERS : power * (codes[byte] & ((1 << CODE_BITS) - 1));
    }

    // The id of the k-mer that begins at `letters`.
    template <int K = 0>
    uint32_t id_at(const uint8_t* letters) const {
        uint32_t number = 0;
        const uint32_t* weight = weights.data();
        for (int i = 0; i < (K ? K : k); i++, weight += 256) number += weight[letters[i]];
        return number < MAX_KMERS ? first_id + number : unknown_id;
    }

    // The flags of all these bytes together.
    uint8_t flags_of(const uint8_t* begin, const uint8_t* end) const {
        uint8_t found = 0;
        for (; end - begin >= 8; begin += 8) {
            uint8_t left = flags[begin[0]] | flags[begin[1]] | flags[begin[2]] | flags[begin[3]];
            uint8_t right = flags[begin[4]] | flags[begin[5]] | flags[begin[6]] | flags[begin[7]];
            found = static_cast<uint8_t>(found | left | right);
        }
        for (; begin < end; begin++) found |= flags[*begin];
        return found;
    }

    // The first byte of another kind than the first one; `end` if there is none.
    const uint8_t* end_of_kind(const uint8_t* begin, const uint8_t* end) const {
        uint8_t kind = kinds[*begin];
        auto differs = [&](int i) { return kinds[begin[i]] ^ kind; };
        while (end - begin >= 8 && !(differs(0) | differs(1) | differs(2) | differs(3) | differs(4) | differs(5) |
                                     differs(6) | differs(7))) {
            begin += 8;
        }
        while (begin < end && kinds[*begin] == kind) begin++;
        return begin;
    }
};

// A run of letters, or the part of it that begins and ends at places of its row.
struct Run {
    int64_t begin, end;        // Of the whole run, as far as it is known.
    int64_t first, last;       // Ids are of k-mers and letters that begin from `first` to `last` - 1.
};

// The ids of a run: k-mers first, then those of the letters behind them.
struct RunIds {
    int64_t first_kmer, num_kmers, first_rest, num_rest;

    RunIds(const Rules& rules, const Run& run) {
        int64_t k = rules.k, stride = rules.stride, length = run.end - run.begin;
        int64_t all = length < k ? 0 : (length - k) / stride + 1;
        auto number_before = [&](int64_t place) { return std::min(all, (place - run.begin + stride - 1) / stride); };
        int64_t before = run.first == run.begin ? 0 : number_before(run.first);
        int64_t until = run.last == run.end ? all : number_before(run.last);
        first_kmer = run.begin + before * stride;
        num_kmers = std::max<int64_t>(0, until - before);
        first_rest = std::max(run.first, run.begin + (all ? (all - 1) * stride + k : 0));
        num_rest = rules.has_remainder ? std::max<int64_t>(0, std::min(run.last, run.end) - first_rest) : 0;
    }
    int64_t count() const { return num_kmers + num_rest; }
};

}  // namespace symbols
