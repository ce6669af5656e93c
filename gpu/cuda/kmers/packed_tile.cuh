// Packs a tile of letters, two bits each, into the shared memory of a warp.
//
// Two bits of a letter distinguish the four letters (FourLetters). If any of sixteen letters is not one of the
// four, the sixteen are read again: such a letter has a bit in `strange`, and the table gives its flags, some of
// which plain batches may not have.
//
// Example, ACGT with the codes 0 to 3: CAGT is 01 00 10 11; behind CANT `strange` has the third bit.
#pragma once
#include "kmers/plain_rows.cuh"
#include "common/bulk_store.cuh"

namespace warptok::kmers {

constexpr uint32_t KMER_TILE = 4096;       // Letters of a warp.
constexpr uint32_t AROUND = 16;            // Letters before a tile that its k-mers reach into,
constexpr uint32_t BEHIND_TILE = 80;       // and behind it: 16 bytes of ids of two rows need no more.
constexpr uint32_t TILE_LETTERS = AROUND + KMER_TILE + BEHIND_TILE;
constexpr uint32_t KMER_ROWS = 32;         // Rows of a tile that a warp handles together, a lane each.
constexpr uint32_t STAGED_BYTES = 4096;    // Of ids of neighbouring k-mers, an id for each letter of a tile.
constexpr uint32_t MOST_LETTERS = 3072;    // Of a tile with rows of all lengths,
constexpr uint32_t LEAST_LETTERS = 928;    // and its own ones, at least.
constexpr uint32_t MOST_STRIDED = 800;     // Staged ids of k-mers that are no neighbours, at a time.

// The letters of a warp's tile in shared memory. Letter i of the tile is letter AROUND + i here.
template <uint32_t LETTERS>
struct PackedLetters {
    static constexpr uint32_t SHARED_LETTERS = LETTERS, WORDS = LETTERS / 16;
    uint32_t codes[WORDS + 2];             // 16 letters a word, the first one highest.
    uint16_t strange[WORDS + 2];           // Bits, the same way round: none of the four.
};

// The letters of a tile, and ids on their way to memory.
template <class Id, uint32_t LETTERS, uint32_t IDS = LETTERS>
struct StagedTile : PackedLetters<LETTERS> {
    static constexpr uint32_t OWN_LETTERS = LETTERS - AROUND - BEHIND_TILE, MOST_IDS = IDS;
    uint32_t singles[4];                   // The ids of the letters alone, by their codes.
    alignas(16) Id ids[IDS];
};

// A row, by the numbers of its ids: the first one, and the range of those whose k-mers lie within the row. An id's
// number times the stride plus `at` is the place of its letters among the shared ones.
struct alignas(16) RowIds {
    uint32_t first, inner_begin, inner_end, at;
};

// The ids of a row's k-mers that are to be written, `at` as above, and the fours of ids before them
// (kmers/strided_rows.cuh).
struct alignas(16) StridedPart {
    uint32_t begin, end, at, before;
};

// The letters, and ids, of a tile whose k-mers begin at neighbouring letters.
template <class Id>
constexpr uint32_t NEIGHBOURS_A_TILE = sizeof(Id) == 1 ? MOST_LETTERS : STAGED_BYTES / sizeof(Id);

template <class Id, KmerStep STEP>
using StagedKmers = StagedTile<Id, STEP == KmerStep::STRIDED ? TILE_LETTERS : NEIGHBOURS_A_TILE<Id>,
                               STEP == KmerStep::STRIDED ? MOST_STRIDED : NEIGHBOURS_A_TILE<Id>>;

// A tile with its rows. It has room for all ids of neighbouring k-mers.
template <class Id, KmerStep STEP>
struct KmerTile : StagedKmers<Id, STEP> {
    static constexpr bool CAN_WRAP = STEP == KmerStep::NEIGHBOURS;
    RowIds rows[KMER_ROWS];
    StridedPart parts[STEP == KmerStep::STRIDED ? KMER_ROWS : 1];
    uint32_t begins[KMER_ROWS], lengths[KMER_ROWS];  // Letters of the batch.
};

// Four codes a, b, c, d in bytes, a lowest, behind others: a << 6 | b << 4 | c << 2 | d.
DEVICE uint32_t append_codes(uint32_t codes, uint32_t four_bytes) {
    return dot_of_bytes(four_bytes, 0x01041040, codes << 8);
}

// The codes of sixteen letters, the first one highest; `differ` gets bits where any is none of the four.
DEVICE uint32_t pack_sixteen(const FourLetters& four, const uint4& letters, uint32_t& differ) {
    const uint32_t words[4] = {letters.x, letters.y, letters.z, letters.w};
    uint32_t codes = 0, others = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t selector = four_selector(words[i]);
        others |= four.letters.chosen(selector) ^ words[i];
        codes = append_codes(codes, four.codes.chosen(selector));
    }
    differ |= others & four.fold;
    return codes;
}

// Sixteen letters from a place on, a multiple of 16. Outside of the text they are its last ones, which no id uses.
DEVICE uint4 sixteen_letters(const FourLetters& four, uint32_t place) {
    return __ldg(reinterpret_cast<const uint4*>(four.text + min_of(place, four.last_place)));
}

// Bits of the four letters of a word that are not 0, the first one highest.
DEVICE uint32_t nonzero_letters(uint32_t word) {
    uint32_t high = (((word & 0x7F7F7F7F) + 0x7F7F7F7F) | word) & 0x80808080;
    return (high >> 7) * 0x08040201 >> 24 & 0xF;
}

constexpr uint32_t ANY_CASE = 0xDFDFDFDF;

// Whether sixteen letters are one letter sixteen times.
DEVICE bool is_one_letter(const uint4& letters) {
    uint32_t differ = (letters.x ^ letters.y) | (letters.x ^ letters.z) | (letters.x ^ letters.w);
    return (differ | (letters.x ^ shift_right(letters.x, letters.x, 8))) == 0;
}

// Whether four letters are all of the four letters, in the other case.
DEVICE bool has_other_case(const FourLetters& four, uint32_t word) {
    return four.letters.chosen(four_selector(word)) == (word & ANY_CASE) && (word & ~ANY_CASE) == ~ANY_CASE;
}

DEVICE bool have_other_case(const FourLetters& four, const uint4& letters) {
    return has_other_case(four, letters.x) && has_other_case(four, letters.y) && has_other_case(four, letters.z) &&
           has_other_case(four, letters.w);
}

// Packs a word of a tile that begins with letter `begin`, and returns whether any letter is none of the four. Adds the
// flags of such letters to `seen`: from the table, or from `four_case_flags` where only their case differs.
template <class Tile>
DEVICE bool pack_strange(const FourLetters& four, const uint32_t* table, uint32_t begin, Tile& tile, uint32_t word,
                            uint32_t& seen) {
    uint32_t place = begin - AROUND + 16 * word, codes = 0, strange = 0, rest = 0;
    uint32_t inside = place < four.num_bytes ? min_of(four.num_bytes - place, 16) : 0;
    uint32_t there = 0xFFFF0000 >> inside & 0xFFFF;
    uint4 letters = sixteen_letters(four, place);
    const uint32_t words[4] = {letters.x, letters.y, letters.z, letters.w};
    if (is_one_letter(letters)) {          // Such as N: none of them is of the four.
        strange = there;
        seen |= table[letters.x & 0xFF];
    } else if (have_other_case(four, letters)) {  // As in soft masking.
        strange = there;
        if (there) seen |= static_cast<uint32_t>(four.job.kmers.four_case_flags);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t selector = four_selector(words[i]), chosen = four.letters.chosen(selector);
            codes = append_codes(codes, four.codes.chosen(selector));
            strange = strange << 4 | nonzero_letters(chosen ^ (words[i] & four.fold));
            rest = rest << 4 | nonzero_letters(chosen ^ (words[i] & ANY_CASE));
        }
        strange &= there;
        if (strange & ~rest) seen |= static_cast<uint32_t>(four.job.kmers.four_case_flags);
        for (rest &= strange; rest; rest &= rest - 1) seen |= table[four.text[place + 15 - lowest_bit(rest)]];
    }
    tile.codes[word] = codes;
    tile.strange[word] = static_cast<uint16_t>(strange);
    return strange != 0;
}

// The i-th word of sixteen letters that a lane packs. Where lanes have unequal numbers of words, the tile's own letters
// come first, so that they are read by whole lines of memory, and the letters around them last.
template <class Tile>
DEVICE uint32_t word_of_lane(uint32_t i) {
    constexpr uint32_t EACH = Tile::WORDS / 32;
    uint32_t lane = threadIdx.x & 31;
    if (Tile::WORDS % 32 == 0) return lane + 32 * i;
    return i < EACH ? 1 + lane + 32 * i : lane ? min_of(32 * EACH + lane, Tile::WORDS - 1) : 0;
}

// Packs a tile whose own letters begin with letter `begin`, and the letters around them. Returns whether any letter is
// none of the four; `strange` is written only then. Calls meanwhile() while the first letters are in flight.
template <class Tile, class Meanwhile>
DEVICE bool pack_text(const FourLetters& four, const uint32_t* table, uint32_t begin, Tile& tile, uint32_t& seen,
                      Meanwhile meanwhile) {
    constexpr uint32_t EACH = Tile::WORDS / 32, AT_ONCE = EACH % 4 == 0 ? 4 : EACH % 3 == 0 ? 3 : 2;
    constexpr bool HAS_MORE = Tile::WORDS % 32 != 0;
    uint32_t others = 0;                   // Bit i: the lane's i-th word has a letter that is none of the four.
    auto load = [&](uint32_t i) { return sixteen_letters(four, begin - AROUND + 16 * word_of_lane<Tile>(i)); };
    auto pack = [&](uint32_t i, const uint4& letters) {
        uint32_t differ = 0;
        tile.codes[word_of_lane<Tile>(i)] = pack_sixteen(four, letters, differ);
        others |= (differ ? 1u : 0u) << i;
    };
    uint4 more = {};
    if (HAS_MORE) more = load(EACH);
    for (uint32_t first = 0; first < EACH; first += AT_ONCE) {
        uint4 letters[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) letters[i] = load(first + i);
        if (first == 0) meanwhile();
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) pack(first + i, letters[i]);
    }
    if (HAS_MORE) pack(EACH, more);
    bool any = false;
    if (__any_sync(ALL_LANES, others != 0)) {
        for (uint32_t i = 0; i < EACH + HAS_MORE; i++) tile.strange[word_of_lane<Tile>(i)] = 0;
        __syncwarp();                      // Several lanes may have the last word.
        for (; others; others &= others - 1) {
            uint32_t i = lowest_bit(others);
            any |= pack_strange(four, table, begin, tile, word_of_lane<Tile>(i), seen);
        }
        any = __any_sync(ALL_LANES, any);
    }
    __syncwarp();
    return any;
}

// Whether all letters of a tile are none of the four, as in soft masking; at least one is. A warp calls it.
template <class Tile>
DEVICE bool are_all_strange(const Tile& tile) {
    bool are_strange = true;
    for (uint32_t i = threadIdx.x & 31; i < Tile::WORDS; i += 32) are_strange &= tile.strange[i] == 0xFFFF;
    return __all_sync(ALL_LANES, are_strange);
}

// 32 letters from letter `at` of the shared ones on, the first one highest in `high`.
struct Letters32 {
    uint32_t high, low;

    template <class Tile>
    DEVICE_METHOD Letters32(const Tile& tile, uint32_t at) {
        uint32_t first = tile.codes[at / 16], second = tile.codes[at / 16 + 1], third = tile.codes[at / 16 + 2];
        high = shift_left(second, first, at * 2);
        low = shift_left(third, second, at * 2);
    }

    // The number of the k-mer that begins i < 16 letters behind the first one.
    DEVICE_METHOD uint32_t kmer(uint32_t i, uint32_t k) const { return shift_left(low, high, 2 * i) >> (32 - 2 * k); }
};

// Whether any of `count` <= 32 letters from letter `at` of the shared ones on is none of the four.
template <class Tile>
DEVICE bool has_strange(const Tile& tile, uint32_t at, uint32_t count) {
    uint64_t bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 3; i++) bits = bits << 16 | tile.strange[at / 16 + i];
    return (bits >> (48 - at % 16 - count) & ((1ull << count) - 1)) != 0;
}

// Whether any of the words that hold `count` letters from shared letter `at` on has a letter that is none of the four.
template <class Tile>
DEVICE bool has_strange_near(const Tile& tile, uint32_t at, uint32_t count) {
    uint32_t bits = 0;
#pragma unroll 1
    for (uint32_t word = at / 16; word <= (at + count - 1) / 16; word++) bits |= tile.strange[word];
    return bits != 0;
}

}  // namespace warptok::kmers
