// A tile of letters as two bits each, in the shared memory of a warp.
//
// Four letters are told apart by two of their bits (FourLetters). A tile that holds any other letter is
// packed once more, by the table: a letter that is none of the four has a bit in `strange`, and the
// flags of letters that plain batches may not have are said.
//
// Example, ACGT with the codes 0 to 3: CAGT is 01 00 10 11; behind CANT `strange` has the third bit.
#pragma once
#include "plain.cuh"

constexpr uint32_t KMER_TILE = 4096;       // Letters of a warp.
constexpr uint32_t AROUND = 16;            // Letters before and behind a tile that its k-mers reach into.
constexpr uint32_t TILE_WORDS = (KMER_TILE + 2 * AROUND) / 16;
constexpr uint32_t KMER_ROWS = 32;         // Rows of a tile that are taken together, a lane each.

// A row, by numbers of ids: its first one, those of k-mers that lie within it, and `at`, to which an id's
// number times the stride is added to find its letters among the shared ones.
struct alignas(16) RowIds {
    uint32_t first, inner_begin, inner_end, at;
};

// What a warp has in shared memory. Letter i of the tile is letter AROUND + i here.
struct KmerTile {
    RowIds rows[KMER_ROWS];
    uint32_t begins[KMER_ROWS + 1];        // The first letters of rows.
    uint32_t codes[TILE_WORDS + 2];        // 16 letters a word, the first one highest.
    uint16_t strange[TILE_WORDS + 2];      // Bits, the same way round: none of the four. Written where there are any.
};

// The codes of sixteen letters, the first one highest; `differ` gets bits where any is none of the four.
DEVICE uint32_t pack_sixteen(const FourLetters& four, const uint4& letters, uint32_t& differ) {
    const uint32_t words[4] = {letters.x, letters.y, letters.z, letters.w};
    uint32_t codes = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t selector = four_selector(words[i]);
        differ |= permute_bytes(four.letters, selector) ^ (words[i] & four.fold);
        // Four codes a, b, c, d in bytes, a lowest, become a << 6 | b << 4 | c << 2 | d.
        codes = codes << 8 | permute_bytes(four.codes, selector) * 0x40100401u >> 24;
    }
    return codes;
}

// Sixteen letters from a place on, a multiple of 16; those outside of the text are 0.
DEVICE uint4 sixteen_letters(const Job& job, const FourLetters& four, uint32_t place) {
    return place < four.num_bytes ? __ldg(reinterpret_cast<const uint4*>(job.text + place)) : uint4{0, 0, 0, 0};
}

// Packs the words of a tile again, of which some hold other letters; whether any of these is none of the four.
DEVICE bool pack_strange(const Job& job, const FourLetters& four, const uint32_t* table, uint32_t begin, KmerTile& tile,
                         uint32_t& seen) {
    uint32_t any = 0;
    for (uint32_t word = threadIdx.x & 31; word < TILE_WORDS; word += 32) {
        uint32_t place = begin - AROUND + 16 * word, differ = 0, codes = 0, strange = 0;
        uint4 letters = sixteen_letters(job, four, place);
        const uint32_t words[4] = {letters.x, letters.y, letters.z, letters.w};
        pack_sixteen(four, letters, differ);
        tile.strange[word] = 0;
        if (!differ) continue;
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t entry = place + i < four.num_bytes ? table[byte_of(words[i / 4], i % 4)] : 0;
            seen |= entry;
            strange |= (entry & NOT_A_CODE ? 0x8000u : 0u) >> i;
            codes = codes << 2 | (entry & 3);
        }
        tile.codes[word] = codes;
        tile.strange[word] = strange;
        any |= strange;
    }
    return __any_sync(ALL_LANES, any != 0);
}

// Packs a tile that begins with letter `begin`; whether any of its letters is none of the four.
DEVICE bool pack_tile(const Job& job, const FourLetters& four, const uint32_t* table, uint32_t begin, KmerTile& tile,
                      uint32_t& seen) {
    constexpr uint32_t ROUNDS = 4;
    uint32_t lane = threadIdx.x & 31, differ = 0;
    uint4 around = sixteen_letters(job, four, lane ? begin + KMER_TILE : begin - AROUND);
    for (uint32_t first = lane; first < KMER_TILE / 16; first += 32 * ROUNDS) {
        uint4 letters[ROUNDS];
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS; i++) letters[i] = sixteen_letters(job, four, begin + 16 * (first + 32 * i));
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS; i++) tile.codes[1 + first + 32 * i] = pack_sixteen(four, letters[i], differ);
    }
    if (lane < 2) tile.codes[lane * (TILE_WORDS - 1)] = pack_sixteen(four, around, differ);
    __syncwarp();
    bool any = __any_sync(ALL_LANES, differ != 0) && pack_strange(job, four, table, begin, tile, seen);
    __syncwarp();
    return any;
}

// 32 letters from letter `at` of the shared ones on, the first one highest in `high`.
struct Letters32 {
    uint32_t high, low;

    DEVICE_METHOD Letters32(const KmerTile& tile, uint32_t at) {
        uint32_t first = tile.codes[at / 16], second = tile.codes[at / 16 + 1], third = tile.codes[at / 16 + 2];
        high = shift_left(second, first, at % 16 * 2);
        low = shift_left(third, second, at % 16 * 2);
    }

    // The number of the k-mer that begins i < 16 letters behind the first one.
    DEVICE_METHOD uint32_t kmer(uint32_t i, uint32_t k) const { return shift_left(low, high, 2 * i) >> (32 - 2 * k); }
};

// Whether any of `count` <= 32 letters from letter `at` of the shared ones on is none of the four.
DEVICE bool has_strange(const KmerTile& tile, uint32_t at, uint32_t count) {
    uint64_t bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 3; i++) bits = bits << 16 | tile.strange[at / 16 + i];
    return (bits >> (48 - at % 16 - count) & ((1ull << count) - 1)) != 0;
}
