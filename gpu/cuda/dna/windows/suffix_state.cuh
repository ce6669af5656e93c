// Holds the left classes of a window's latest last tokens, and tests the listed tokens of places where the letters
// leave more than two (dna/windows/suffix_tables.cuh).
#pragma once
#include "dna/windows/suffix_tables.cuh"
#include "dna/windows/stitch.cuh"

namespace warptok::dna {

constexpr uint32_t FORWARD_THREADS = 512;  // Of a block, two a multiprocessor.
constexpr uint32_t FORWARD_BLOCKS = 2;
constexpr uint32_t COPIED_THREADS = 1024;  // Of a block that copies `ending_last`, one a multiprocessor.

// The last token of a place as later ones need it.
struct LastToken {
    uint32_t left, length;                 // The class counts in the lower half of `left`.
};

// The left classes of the last tokens at the latest places, as many as a token may have letters: two bytes each, a row
// for each place, a column for each thread.
template <uint32_t LETTERS, uint32_t THREADS>
struct ClassRing {
    static constexpr uint32_t ROW = 2 * THREADS, BYTES = LETTERS * ROW;
    static constexpr bool IS_COPIED = LETTERS <= COPIED_LETTERS;
    static constexpr uint32_t LEVELS = (IS_COPIED ? COPIED_BEFORE : FORWARD_BEFORE) / BEFORE_LETTERS;

    // The limit of a window's places where tokens are listed; a window that reaches it is deferred to the walk. A
    // listed place directly behind another one may count several times, since it is in a run of one letter. Where there
    // are many tokens, runs of several letters take the walk long.
    template <uint32_t CHUNK>
    static constexpr uint32_t MOST_LISTED = IS_COPIED ? 64 : CHUNK == LARGE_CHUNK ? 384 : 192;
    static constexpr uint32_t LISTED_NEIGHBOUR = IS_COPIED ? 1 : 3;

    static_assert((BYTES & (BYTES - 1)) == 0, "slots wrap by their lowest bits");
    uint8_t bytes[BYTES];

    // The entry of a *slot*, which is the byte of a place in the ring plus any number of whole rounds.
    DEVICE_METHOD uint16_t& at(uint32_t slot) { return *reinterpret_cast<uint16_t*>(bytes + slot % BYTES); }
};

// The shared memory of a block that copies `ending_last`, and of one that does not.
struct CopiedShared {
    uint2 last[1 << 2 * COPIED_K];
    ClassRing<COPIED_LETTERS, COPIED_THREADS> ring;
};
using ForwardShared = ClassRing<MAX_LETTERS, FORWARD_THREADS>;
constexpr uint32_t COPIED_SHARED = 192 * 1024;
constexpr uint32_t FORWARD_SHARED = 64 * 1024;
static_assert(sizeof(CopiedShared) <= COPIED_SHARED && sizeof(ForwardShared) <= FORWARD_SHARED,
              "launches ask for so much");

// The tables, with the ring of the classes of the latest last tokens.
template <class Ring>
struct ForwardTables : Endings {
    Ring& ring;

    DEVICE_METHOD ForwardTables(const Job& job, const uint2* last, Ring& ring) : Endings(job, last), ring(ring) {}

    // Whether a token of a right class and of so many letters may end at a place.
    DEVICE_METHOD bool may_end(uint32_t slot, uint32_t length, uint32_t right) const {
        return may_follow(ring.at(slot - length * Ring::ROW), right);
    }
};

// The sixteen letters in front of a place of a text; those before the text have no meaning.
DEVICE uint32_t codes_before(const Job& job, int64_t end) {
    if (end >= 16) return letters_from(job, end - 16).codes;
    return end > 0 ? job.dna.base_words[0].codes << (32 - 2 * end) : 0;
}

// The 64 letters before a place, the last one at the top.
DEVICE LongKey key_before(const Job& job, int64_t end) {
    uint64_t codes[4];
    for (uint32_t i = 0; i < 4; i++) codes[i] = codes_before(job, end - 16 * i);
    return {codes[0] << 32 | codes[1], codes[2] << 32 | codes[3]};
}

// Whether the letters in front of a place are those of a listed token that may follow.
DEVICE_NOINLINE bool is_spelled(const Job& job, uint64_t end, uint2 token) {
    uint32_t key = (token.y & ~LAST_LISTED) >> 8;
    return !key || begin_alike(key_before(job, end), job.dna.ending_keys[key - 1], token.y & 0xFF);
}

// Finds the last token of a place, `most` letters behind a border, among listed tokens. Exactly one of them ends the
// text and may follow the token before it. In text that repeats this is mostly a short token, so short ones are tested
// first. The last one of the list needs no test.
template <class Ring>
DEVICE_NOINLINE LastToken last_of_listed(const Job& job, ForwardTables<Ring> tables, uint64_t end, uint32_t slot,
                                     uint32_t most, uint32_t first) {
    for (const uint2* item = job.dna.ending_listed + first;; item++) {
        uint2 token = __ldg(item);
        uint32_t length = token.y & 0xFF;
        if (token.y < LAST_LISTED) {
            if (length > most || !tables.may_end(slot, length, token.x >> 16)) continue;
            if (!is_spelled(job, end, token)) continue;
        }
        return {token.x & 0xFFFF, length};
    }
}

}  // namespace warptok::dna
