// Looks up the last token of a text by its latest letters (tables: gpu/dna/suffix_tables.py).
//
// The latest k letters mostly leave one or two possible tokens, whatever is in front of them. A single token is the
// last token. Of two, the first one is the last token if it may follow the last token of the place where it begins,
// else the second one. Where the letters leave more, two more letters are looked up, several times. If more than two
// tokens are left after that, they are listed, the longest first. Fewer than k letters behind a border are a whole
// text, whose last token is in a table of its own.
//
//     text             .. g c a        tokens a c g ca gca
//     latest letter           a        leaves a, ca and gca: open
//     latest three        g c a        leave ca and gca, if ca never goes with a g before it: either
#pragma once
#include "dna/tokens.cuh"

namespace warptok::dna {

constexpr uint32_t COPIED_K = 7;           // Letters that `ending_last` is indexed by, at most, to be copied,
constexpr uint32_t COPIED_LETTERS = 32;    // and those of a token.
constexpr uint32_t FORWARD_K = 9;          // Letters of others.
constexpr uint32_t BEFORE_LETTERS = 2;     // Before these, looked at each time where these leave more.
constexpr uint32_t COPIED_BEFORE = 8;      // At most, with tables that are copied,
constexpr uint32_t FORWARD_BEFORE = 6;     // and with others.
constexpr uint32_t MOST_LOOKED = 15;       // Letters in all.
static_assert(COPIED_K + COPIED_BEFORE <= MOST_LOOKED && FORWARD_K + FORWARD_BEFORE <= MOST_LOOKED, "these are most");
constexpr uint32_t LAST_LISTED = 1u << 31; // In the second word of the last token of a list.
constexpr uint32_t BEHIND_FAR = 255;       // Letters behind a border: more than are looked at.

// The tokens that end at a place and that its latest letters leave.
//
//     x    left class of the first one | right class << 16; if these are OPEN, 16 x their number
//     y    left class of the second one | letters of the first one << 16 | of the second one << 20 | kind; if these are
//          OPEN, where they are listed
struct Remaining {
    uint32_t x, y;

    static constexpr uint32_t EITHER = 1u << 30;  // The first one, if it may follow, else the second one;
    static constexpr uint32_t OPEN = 1u << 31;    // more; neither bit: the first one alone.

    DEVICE_METHOD bool is_open() const { return y >= OPEN; }
    DEVICE_METHOD bool is_either() const { return static_cast<int32_t>(y) >= static_cast<int32_t>(EITHER); }
    DEVICE_METHOD uint32_t first_listed() const { return y & ~OPEN; }
    DEVICE_METHOD uint32_t first_length() const { return y >> 16 & 15; }
};

DEVICE void copy_last(const Job& job, uint2* last) {
    const uint4* from = reinterpret_cast<const uint4*>(job.dna.ending_last);
    uint4* to = reinterpret_cast<uint4*>(last);
    for (uint32_t i = threadIdx.x; i < 1u << (2 * job.dna.ending_k - 1); i += blockDim.x) to[i] = __ldg(from + i);
    __syncthreads();
}

// The fields that every step reads, in registers: the compiler cannot know that no write changes the Job.
struct Endings {
    const uint2* last;
    const uint2* opened;
    const uint32_t* pairs;
    const uint32_t* few;                   // ending_short
    uint32_t pair_words, k, levels, tail;

    DEVICE_METHOD Endings(const Job& job, const uint2* last)
        : last(last), opened(job.dna.ending_opened), pairs(job.dna.dna_pairs), few(job.dna.ending_short),
          pair_words(static_cast<uint32_t>(job.dna.dna_pair_words)), k(static_cast<uint32_t>(job.dna.ending_k)),
          levels(static_cast<uint32_t>(job.dna.ending_levels)), tail(static_cast<uint32_t>(job.parts.part_tail)) {}

    // Whether a token of a right class may follow one of a left class.
    DEVICE_METHOD bool may_follow(uint32_t left, uint32_t right) const {
        return __ldg(pairs + left * pair_words + right / 32) >> right % 32 & 1;
    }

    // The tokens that sixteen letters leave; the last letter is the highest.
    DEVICE_METHOD Remaining by_letters(uint32_t codes) const {
        uint2 found = last[codes >> (32 - 2 * k)];
        return {found.x, found.y};
    }

    // The last token of a text of fewer letters than k; none where there are none, as behind a gap's border.
    DEVICE_METHOD Remaining by_short_text(uint32_t codes, uint32_t length) const {
        if (length == 0) return {0, 0};
        uint32_t found = __ldg(few + ((1u << 2 * length) - 4) / 3 + (codes >> (32 - 2 * length)));
        return {found, found & 0xFFFF0000};
    }

    // The same by the letters that begin at bit `from`, where all those behind them left more.
    DEVICE_METHOD Remaining by_letters_before(Remaining open, uint32_t codes, uint32_t from) const {
        uint2 found = __ldg(opened + (open.x | (codes >> from & ((1u << 2 * BEFORE_LETTERS) - 1))));
        return {found.x, found.y};
    }
};

}  // namespace warptok::dna
