// Which token is the last one of a text, by the letters that it ends with (gpu/dna_forward.py).
//
// Mostly the latest letters leave one token or two, whatever stands before them: one is the last one, of
// two the first one is asked for. Where they leave more, two letters more are looked at, twice; what is
// still open then is listed, the longest token first. Behind a border fewer letters than these are a
// text of their own, whose last token is in a table.
//
//     text             .. g c a        tokens a c g ca gca
//     latest letter           a        leaves a, ca and gca: open
//     latest three        g c a        leave ca and gca, if ca never goes with a g before it: either
#pragma once
#include "dna_stitch.cuh"

constexpr uint32_t FORWARD_THREADS = 1024; // Of a block, one a multiprocessor.
constexpr uint32_t COPIED_K = 7;           // Letters that `ending_last` is indexed by, at most, to be copied,
constexpr uint32_t COPIED_LETTERS = 32;    // and those of a token.
constexpr uint32_t FORWARD_K = 9;          // Letters of others.
constexpr uint32_t BEFORE_LETTERS = 2;     // Before these, looked at each time where these leave more.
constexpr uint32_t MOST_BEFORE = 4;

// What the latest letters leave of the tokens that end where they do.
//
//     x    left class of the first one | right class << 16; if these are OPEN, 16 x their number
//     y    left class of the second one | letters of the first one << 16 | of the second one << 20 | kind
struct Remaining {
    uint32_t x, y;

    static constexpr uint32_t EITHER = 1u << 30;  // The first one, if it may follow, else the second one;
    static constexpr uint32_t OPEN = 1u << 31;    // more; neither bit: the first one alone.

    DEVICE_METHOD bool is_open() const { return y >= OPEN; }
    DEVICE_METHOD bool is_either() const { return static_cast<int32_t>(y) >= static_cast<int32_t>(EITHER); }
    DEVICE_METHOD uint32_t first_length() const { return y >> 16 & 15; }
};

// The last token of a place as later ones need it.
struct LastToken {
    uint32_t left, length;                 // The class counts in the lower half of `left`.
};

// Left classes of the last tokens at the latest places, as many as a token has letters: two bytes each, a
// row for each place, a column for each thread.
template <uint32_t THREADS, uint32_t LETTERS>
struct ClassRing {
    static constexpr uint32_t ROW = 2 * THREADS, BYTES = LETTERS * ROW;
    static constexpr uint32_t K = LETTERS <= COPIED_LETTERS ? COPIED_K : FORWARD_K;
    static_assert((BYTES & (BYTES - 1)) == 0, "slots wrap by their lowest bits");
    uint8_t bytes[BYTES];

    // Of a *slot*: a place's byte, whole rounds more or less.
    DEVICE_METHOD uint16_t& at(uint32_t slot) { return *reinterpret_cast<uint16_t*>(bytes + slot % BYTES); }
};

// Of a block that copies `ending_last`, and of one that does not.
struct CopiedShared {
    uint2 last[1 << 2 * COPIED_K];
    ClassRing<FORWARD_THREADS, COPIED_LETTERS> ring;
};
using ForwardShared = ClassRing<FORWARD_THREADS, MAX_LETTERS>;
constexpr uint32_t COPIED_SHARED = 192 * 1024;
constexpr uint32_t FORWARD_SHARED = 128 * 1024;
static_assert(sizeof(CopiedShared) <= COPIED_SHARED && sizeof(ForwardShared) <= FORWARD_SHARED, "launches ask for so much");

DEVICE void copy_last(const Job& job, uint2* last) {
    const uint4* from = reinterpret_cast<const uint4*>(job.ending_last);
    uint4* to = reinterpret_cast<uint4*>(last);
    for (uint32_t i = threadIdx.x; i < 1u << (2 * job.ending_k - 1); i += blockDim.x) to[i] = __ldg(from + i);
    __syncthreads();
}

// What every step reads, in registers: the compiler cannot know that no Job lies where it writes.
template <class Ring>
struct ForwardTables {
    const uint2* last;
    Ring& ring;
    const uint2* opened;
    const uint32_t* pairs;
    const uint32_t* few;                   // ending_short
    uint32_t pair_words, k, levels;

    DEVICE_METHOD ForwardTables(const Job& job, const uint2* last, Ring& ring)
        : last(last), ring(ring), opened(job.ending_opened), pairs(job.dna_pairs),
          few(job.ending_short), pair_words(static_cast<uint32_t>(job.dna_pair_words)),
          k(static_cast<uint32_t>(job.ending_k)), levels(static_cast<uint32_t>(job.ending_levels)) {}

    // Whether a token of a right class and of so many letters may end at a place.
    DEVICE_METHOD bool may_end(uint32_t slot, uint32_t length, uint32_t right) const {
        uint32_t left = ring.at(slot - length * Ring::ROW);
        return __ldg(pairs + left * pair_words + right / 32) >> right % 32 & 1;
    }

    // What sixteen letters leave, of which the last one is the highest.
    DEVICE_METHOD Remaining by_letters(uint32_t codes) const {
        uint2 found = last[codes >> (32 - 2 * k)];
        return {found.x, found.y};
    }

    // The last token of a text of fewer letters than k; none where there are none, as behind a gap's border.
    DEVICE_METHOD Remaining by_few_letters(uint32_t codes, uint32_t length) const {
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

// Sixteen letters that end in front of a place of a text; those before the text mean nothing.
DEVICE uint32_t codes_before(const Job& job, int64_t end) {
    if (end >= 16) return letters_from(job, end - 16).codes;
    return end > 0 ? job.base_words[0].codes << (32 - 2 * end) : 0;
}

// The 64 letters before a place, the last one at the top.
DEVICE LongKey key_before(const Job& job, int64_t end) {
    uint64_t codes[4];
    for (uint32_t i = 0; i < 4; i++) codes[i] = codes_before(job, end - 16 * i);
    return {codes[0] << 32 | codes[1], codes[2] << 32 | codes[3]};
}

// The last token at a place, `most` letters behind a border, of those that are listed where letters leave too
// many: the first one that the text ends with and that may follow. The very last one is not asked, as one is right.
template <class Ring>
DEVICE_RARE LastToken last_of_listed(const Job& job, ForwardTables<Ring> tables, uint64_t end, uint32_t slot,
                                     uint32_t most, uint32_t open) {
    uint32_t number = open >> 2 * BEFORE_LETTERS;
    const uint2 *item = job.ending_listed + job.ending_begins[number], *behind = job.ending_listed + job.ending_begins[number + 1];
    uint2 token = __ldg(item);
    LongKey text = {0, 0};
    if (token.y >> 8) text = key_before(job, end);
    for (;; token = __ldg(item)) {
        uint32_t length = token.y & 0xFF;
        bool is_right = ++item == behind;
        if (!is_right && length <= most)
            is_right = (!(token.y >> 8) || begin_alike(text, job.ending_keys[(token.y >> 8) - 1], length)) &&
                       tables.may_end(slot, length, token.x >> 16);
        if (is_right) return {token.x & 0xFFFF, length};
    }
}
