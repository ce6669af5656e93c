// A tile of letters as two bits each, in the shared memory of a warp.
//
// Four letters are told apart by two of their bits (FourLetters). Sixteen letters of which any is another are
// looked at once more: a letter that is none of the four has a bit in `strange`, and the table says which
// flags it has that plain batches may not have.
//
// Example, ACGT with the codes 0 to 3: CAGT is 01 00 10 11; behind CANT `strange` has the third bit.
#pragma once
#include "plain.cuh"
#include "staged_ids.cuh"

constexpr uint32_t KMER_TILE = 4096;       // Letters of a warp.
constexpr uint32_t AROUND = 16;            // Letters before a tile that its k-mers reach into,
constexpr uint32_t BEHIND_TILE = 80;       // and behind it: 16 bytes of ids of two rows come from no more.
constexpr uint32_t TILE_LETTERS = AROUND + KMER_TILE + BEHIND_TILE;
constexpr uint32_t KMER_ROWS = 32;         // Rows of a tile that are taken together, a lane each.
constexpr uint32_t STAGED_BYTES = 4096;    // Of ids of neighbouring k-mers, an id for each letter of a tile.
constexpr uint32_t MOST_LETTERS = 3072;    // Of a tile with rows of all lengths,
constexpr uint32_t LEAST_LETTERS = 928;    // and its own ones, at least.
constexpr uint32_t MOST_STRIDED = 800;     // Ids of k-mers that are no neighbours on their way at a time.

// What a warp has in shared memory. Letter i of the tile is letter AROUND + i here.
template <uint32_t LETTERS>
struct PackedLetters {
    static constexpr uint32_t SHARED_LETTERS = LETTERS, WORDS = LETTERS / 16;
    uint32_t codes[WORDS + 2];             // 16 letters a word, the first one highest.
    uint16_t strange[WORDS + 2];           // Bits, the same way round: none of the four.
};

// The same with ids on their way to memory.
template <class Id, uint32_t LETTERS, uint32_t IDS = LETTERS>
struct StagedTile : PackedLetters<LETTERS> {
    static constexpr uint32_t OWN_LETTERS = LETTERS - AROUND - BEHIND_TILE, MOST_IDS = IDS;
    uint32_t singles[4];                   // The ids of the letters alone, by their codes.
    alignas(16) Id ids[IDS];
};

// A row, by numbers of ids: its first one, those of k-mers that lie within it, and `at`, to which an id's
// number times the stride is added to find its letters among the shared ones.
struct alignas(16) RowIds {
    uint32_t first, inner_begin, inner_end, at;
};

// The ids of a row's k-mers that are wanted, `at` as above, and fours of ids before them (strided_rows.cuh).
struct alignas(16) StridedPart {
    uint32_t begin, end, at, before;
};

// A tile with its rows. All ids of neighbouring k-mers have room.
template <class Id, bool IS_STRIDED>
struct KmerTile : StagedTile<Id, IS_STRIDED ? TILE_LETTERS : sizeof(Id) == 1 ? MOST_LETTERS : STAGED_BYTES / sizeof(Id),
                             IS_STRIDED ? MOST_STRIDED : sizeof(Id) == 1 ? MOST_LETTERS : STAGED_BYTES / sizeof(Id)> {
    RowIds rows[KMER_ROWS];
    StridedPart parts[IS_STRIDED ? KMER_ROWS : 1];
    uint32_t begins[KMER_ROWS], lengths[KMER_ROWS];  // Letters of the batch.
};

// Four codes a, b, c, d in bytes, a lowest, behind others: a << 6 | b << 4 | c << 2 | d.
DEVICE uint32_t append_codes(uint32_t codes, uint32_t four_bytes) { return shift_left(four_bytes * 0x40100401u, codes, 8); }

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

// Sixteen letters from a place on, a multiple of 16; those outside of the text are 0.
DEVICE uint4 sixteen_letters(const FourLetters& four, uint32_t place) {
    return place < four.num_bytes ? __ldg(reinterpret_cast<const uint4*>(four.text + place)) : uint4{0, 0, 0, 0};
}

// Bits of the four bytes of a word that are not 0, the first one highest.
DEVICE uint32_t nonzero_bytes(uint32_t word) {
    uint32_t high = (((word & 0x7F7F7F7F) + 0x7F7F7F7F) | word) & 0x80808080;
    return (high >> 7) * 0x08040201 >> 24 & 0xF;
}

constexpr uint32_t ANY_CASE = 0xDFDFDFDF;

// Whether sixteen letters are one letter sixteen times.
DEVICE bool is_one_letter(const uint4& letters) {
    uint32_t differ = (letters.x ^ letters.y) | (letters.x ^ letters.z) | (letters.x ^ letters.w);
    return (differ | (letters.x ^ shift_right(letters.x, letters.x, 8))) == 0;
}

// Packs a word of a tile that begins with letter `begin`; whether any letter is none of the four. The table says what
// such letters are; of those that only have another case that is known (`four_case_flags`).
template <class Tile>
DEVICE bool pack_strange(const FourLetters& four, const uint32_t* table, uint32_t begin, Tile& tile, uint32_t word,
                         uint32_t& seen) {
    uint32_t place = begin - AROUND + 16 * word, codes = 0, strange = 0, rest = 0;
    uint4 letters = sixteen_letters(four, place);
    const uint32_t words[4] = {letters.x, letters.y, letters.z, letters.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t selector = four_selector(words[i]), chosen = four.letters.chosen(selector);
        codes = append_codes(codes, four.codes.chosen(selector));
        strange = strange << 4 | nonzero_bytes(chosen ^ (words[i] & four.fold));
        rest = rest << 4 | nonzero_bytes(chosen ^ (words[i] & ANY_CASE));
    }
    uint32_t inside = place < four.num_bytes ? min_of(four.num_bytes - place, 16) : 0;
    uint32_t there = 0xFFFF0000 >> inside & 0xFFFF;
    if (strange & there & ~rest) seen |= static_cast<uint32_t>(four.job.four_case_flags);
    rest &= strange & there;
    if (is_one_letter(letters)) rest &= 0 - rest;  // One of them says it of all.
    for (; rest; rest &= rest - 1) seen |= table[four.text[place + 15 - lowest_bit(rest)]];
    tile.codes[word] = codes;
    tile.strange[word] = static_cast<uint16_t>(strange & there);
    return (strange & there) != 0;
}

// Packs a tile of which the first letter of its own is `begin`, with those around it, a multiple of 512 letters in all;
// whether any letter is none of the four. `strange` is not written where none is. Calls meanwhile() where the first letters
// have been asked for.
template <class Tile, class Meanwhile>
DEVICE bool pack_text(const FourLetters& four, const uint32_t* table, uint32_t begin, Tile& tile, uint32_t& seen,
                      Meanwhile meanwhile) {
    constexpr uint32_t ALL = Tile::WORDS / 32, ROUNDS = ALL % 4 == 0 ? 4 : ALL % 3 == 0 ? 3 : 2;
    uint32_t lane = threadIdx.x & 31, others = 0;  // Bit i: word lane + 32 * i has others than the four.
    for (uint32_t first = 0; first < ALL; first += ROUNDS) {
        uint4 letters[ROUNDS];
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS; i++)
            letters[i] = sixteen_letters(four, begin - AROUND + 16 * (lane + 32 * (first + i)));
        if (first == 0) meanwhile();
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS; i++) {
            uint32_t differ = 0;
            tile.codes[lane + 32 * (first + i)] = pack_sixteen(four, letters[i], differ);
            others |= (differ ? 1u : 0u) << (first + i);
        }
    }
    bool any = false;
    if (__any_sync(ALL_LANES, others != 0)) {
        for (uint32_t i = 0; i < ALL; i++) tile.strange[lane + 32 * i] = 0;
        for (; others; others &= others - 1)
            any |= pack_strange(four, table, begin, tile, lane + 32 * lowest_bit(others), seen);
        any = __any_sync(ALL_LANES, any);
    }
    __syncwarp();
    return any;
}

// The same where a tile's own letters are KMER_TILE, read by whole lines of the memory, and those around them apart.
template <class Tile, class Meanwhile>
DEVICE bool pack_tile(const FourLetters& four, const uint32_t* table, uint32_t begin, Tile& tile, uint32_t& seen,
                      Meanwhile meanwhile) {
    constexpr uint32_t ROUNDS = 4, LETTERS = KMER_TILE;
    uint32_t lane = threadIdx.x & 31, word = lane ? LETTERS / 16 + lane : 0;
    uint4 around = sixteen_letters(four, lane <= BEHIND_TILE / 16 ? begin - AROUND + 16 * word : four.num_bytes);
    bool any = false;
    for (uint32_t first = 1 + lane; first <= LETTERS / 16; first += 32 * ROUNDS) {
        uint4 letters[ROUNDS];
        uint32_t others = 0;
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS; i++) letters[i] = sixteen_letters(four, begin + 16 * (first - 1 + 32 * i));
        if (first == 1 + lane) meanwhile();
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS; i++) {
            uint32_t differ = 0;
            tile.codes[first + 32 * i] = pack_sixteen(four, letters[i], differ);
            tile.strange[first + 32 * i] = 0;
            others |= (differ ? 1u : 0u) << i;
        }
        for (; others; others &= others - 1)
            any |= pack_strange(four, table, begin, tile, first + 32 * lowest_bit(others), seen);
    }
    if (lane <= BEHIND_TILE / 16) {
        uint32_t differ = 0;
        tile.codes[word] = pack_sixteen(four, around, differ);
        tile.strange[word] = 0;
        if (differ) any |= pack_strange(four, table, begin, tile, word, seen);
    }
    any = __any_sync(ALL_LANES, any);
    __syncwarp();
    return any;
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

// Whether any of the words that hold `count` letters from letter `at` of the shared ones on has such a letter.
template <class Tile>
DEVICE bool has_strange_near(const Tile& tile, uint32_t at, uint32_t count) {
    uint32_t bits = 0;
#pragma unroll 1
    for (uint32_t word = at / 16; word <= (at + count - 1) / 16; word++) bits |= tile.strange[word];
    return bits != 0;
}
