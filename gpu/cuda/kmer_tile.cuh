// A tile of letters as two bits each, in the shared memory of a warp.
//
// Four letters are told apart by two of their bits (FourLetters). Sixteen letters of which any is another are
// packed once more, by the table: a letter that is none of the four has a bit in `strange`, and the
// flags of letters that plain batches may not have are said.
//
// Example, ACGT with the codes 0 to 3: CAGT is 01 00 10 11; behind CANT `strange` has the third bit.
#pragma once
#include "plain.cuh"

constexpr uint32_t KMER_TILE = 4096;       // Letters of a warp.
constexpr uint32_t AROUND = 16;            // Letters before a tile that its k-mers reach into,
constexpr uint32_t BEHIND = 80;            // and behind it: 16 bytes of ids of two rows come from no more.
constexpr uint32_t TILE_LETTERS = AROUND + KMER_TILE + BEHIND;
constexpr uint32_t TILE_WORDS = TILE_LETTERS / 16;
constexpr uint32_t KMER_ROWS = 32;         // Rows of a tile that are taken together, a lane each.

// What a warp has in shared memory. Letter i of the tile is letter AROUND + i here.
struct PackedTile {
    uint32_t codes[TILE_WORDS + 2];        // 16 letters a word, the first one highest.
    uint16_t strange[TILE_WORDS + 2];      // Bits, the same way round: none of the four.
};

// A row, by numbers of ids: its first one, those of k-mers that lie within it, and `at`, to which an id's
// number times the stride is added to find its letters among the shared ones.
struct alignas(16) RowIds {
    uint32_t first, inner_begin, inner_end, at;
};

// A tile with its rows.
struct KmerTile : PackedTile {
    RowIds rows[KMER_ROWS];
    uint32_t begins[KMER_ROWS], lengths[KMER_ROWS];  // Letters of the batch.
};

// The codes of sixteen letters, the first one highest; `differ` gets bits where any is none of the four.
DEVICE uint32_t pack_sixteen(const FourLetters& four, const uint4& letters, uint32_t& differ) {
    const uint32_t words[4] = {letters.x, letters.y, letters.z, letters.w};
    uint32_t codes = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t selector = four_selector(words[i]);
        differ |= four.letters.chosen(selector) ^ (words[i] & four.fold);
        // Four codes a, b, c, d in bytes, a lowest, become a << 6 | b << 4 | c << 2 | d.
        codes = shift_left(four.codes.chosen(selector) * 0x40100401u, codes, 8);
    }
    return codes;
}

// Sixteen letters from a place on, a multiple of 16; those outside of the text are 0.
DEVICE uint4 sixteen_letters(const FourLetters& four, uint32_t place) {
    return place < four.num_bytes ? __ldg(reinterpret_cast<const uint4*>(four.text + place)) : uint4{0, 0, 0, 0};
}

// Packs a word of a tile that begins with letter `begin` by the table; whether any letter is none of the four.
DEVICE bool pack_strange(const FourLetters& four, const uint32_t* table, uint32_t begin, PackedTile& tile, uint32_t word,
                         uint32_t& seen) {
    uint32_t place = begin - AROUND + 16 * word, codes = 0, strange = 0;
    uint4 letters = sixteen_letters(four, place);
    const uint32_t words[4] = {letters.x, letters.y, letters.z, letters.w};
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t entry = place + i < four.num_bytes ? table[byte_of(words[i / 4], i % 4)] : 0;
        seen |= entry;
        strange |= (entry & NOT_A_CODE ? 0x8000u : 0u) >> i;
        codes = codes << 2 | (entry & 3);
    }
    tile.codes[word] = codes;
    tile.strange[word] = strange;
    return strange != 0;
}

// Packs a tile of LETTERS letters that begins with letter `begin`; whether any is none of the four.
template <uint32_t LETTERS>
DEVICE bool pack_tile(const FourLetters& four, const uint32_t* table, uint32_t begin, PackedTile& tile, uint32_t& seen) {
    constexpr uint32_t ROUNDS = 4;
    uint32_t lane = threadIdx.x & 31, word = lane ? LETTERS / 16 + lane : 0;
    uint4 around = sixteen_letters(four, lane <= BEHIND / 16 ? begin - AROUND + 16 * word : four.num_bytes);
    bool any = false;
    for (uint32_t first = 1 + lane; first <= LETTERS / 16; first += 32 * ROUNDS) {
        uint4 letters[ROUNDS];
        uint32_t others = 0;
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS; i++) letters[i] = sixteen_letters(four, begin + 16 * (first - 1 + 32 * i));
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
    if (lane <= BEHIND / 16) {
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

    DEVICE_METHOD Letters32(const PackedTile& tile, uint32_t at) {
        uint32_t first = tile.codes[at / 16], second = tile.codes[at / 16 + 1], third = tile.codes[at / 16 + 2];
        high = shift_left(second, first, at % 16 * 2);
        low = shift_left(third, second, at % 16 * 2);
    }

    // The number of the k-mer that begins i < 16 letters behind the first one.
    DEVICE_METHOD uint32_t kmer(uint32_t i, uint32_t k) const { return shift_left(low, high, 2 * i) >> (32 - 2 * k); }
};

// Whether any of `count` <= 32 letters from letter `at` of the shared ones on is none of the four.
DEVICE bool has_strange(const PackedTile& tile, uint32_t at, uint32_t count) {
    uint64_t bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 3; i++) bits = bits << 16 | tile.strange[at / 16 + i];
    return (bits >> (48 - at % 16 - count) & ((1ull << count) - 1)) != 0;
}

// Whether any of the words that hold `count` letters from letter `at` of the shared ones on has such a letter.
DEVICE bool has_strange_near(const PackedTile& tile, uint32_t at, uint32_t count) {
    uint32_t bits = 0;
#pragma unroll 1
    for (uint32_t word = at / 16; word <= (at + count - 1) / 16; word++) bits |= tile.strange[word];
    return bits != 0;
}
