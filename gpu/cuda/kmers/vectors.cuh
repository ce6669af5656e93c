// Ids of k-mers of four letters from the packed letters of a tile, 16 bytes at a time.
//
// Shifting 32 or 64 bits gives a k-mer. A k-mer with a letter that is none of the four is unknown.
#pragma once
#include "kmers/packed_tile.cuh"

namespace warptok::kmers {

// Returns the numbers of k-mers that begin with neighbouring letters, as many as 16 bytes of ids hold. `high` and `low`
// have their 32 letters. Ids of 8 and 16 bits begin with whole bytes in one of four copies, each two bits further:
//
//     copy 0    ids 0  4  8 ... begin at its bytes 0 1 2 ... from the top
//     copy 1    ids 1  5  9 ...
//     copy 2    ids 2  6 10 ...
//     copy 3    ids 3  7 11 ...
//
//     16 bits: word 0 is the upper halves of the copies 0 and 1 (ids 0 and 1), word 1 those of 2 and 3, word 2 of 0 and
//              1 a byte further down
//     8 bits:  word i is byte 3 - i of all four
//
// The bits of an id above its own 2 k bits are of the letters before it, and the mask `own` clears them.
template <class Id>
DEVICE void neighbours(uint32_t k, uint32_t high, uint32_t low, uint32_t* words) {
    uint32_t unused = 32 - 2 * k, copies[4];
    if constexpr (sizeof(Id) == 4) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) words[i] = shift_left(low, high, 2 * i) >> unused;
        return;
    }
    uint32_t spare = 8 * sizeof(Id) - 2 * k;
    low = sizeof(Id) == 1 ? shift_right(low, high, spare) : shift_right(high, high, spare);
    high = shift_right(high, high, spare);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) copies[i] = shift_left(low, high, 2 * i);
    uint32_t own = (ALL_LANES >> unused) * (sizeof(Id) == 1 ? 0x01010101u : 0x00010001u);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if constexpr (sizeof(Id) == 2) {   // Of two copies the ids of every fourth letter.
            uint32_t places = i < 2 ? 0x7632 : 0x6521;
            words[i] = permute_bytes(copies[i % 2 * 2], copies[i % 2 * 2 + 1], places) & own;
        } else {
            uint32_t byte = 3 - i, places = (4 + byte) << 4 | byte;
            uint32_t front = permute_bytes(copies[0], copies[1], places);
            uint32_t behind = permute_bytes(copies[2], copies[3], places);
            words[i] = low_halves(front, behind) & own;
        }
    }
}

// A word all of whose ids are `id`.
template <class Id>
DEVICE uint32_t in_all_ids(uint32_t id) {
    return sizeof(Id) == 4 ? id : sizeof(Id) == 2 ? id * 0x00010001u : id * 0x01010101u;
}

// Sixteen letters from letter `at` of the shared ones on, the first one highest.
template <class Tile>
DEVICE uint32_t letters_from(const Tile& tile, uint32_t at) {
    return shift_left(tile.codes[at / 16 + 1], tile.codes[at / 16], at * 2);
}

// Strides: k-mers of neighbouring letters, those of Nucleotide Transformer, and any others.
constexpr uint32_t NEIGHBOURS = 1;
constexpr uint32_t BY_SIX = 6;
constexpr uint32_t ANY_STRIDE = 0;

// Reads k-mers that begin six letters apart, as many as 16 bytes hold, from shared letter `at` on.
template <uint32_t COUNT>
struct BySix {
    static constexpr uint32_t WORDS = (12 * (COUNT - 1) + 31) / 32 + 1;
    uint32_t words[WORDS];                 // 16 letters each, the first one highest.

    template <class Tile>
    DEVICE_METHOD BySix(const Tile& tile, uint32_t at) {
        uint32_t next = tile.codes[at / 16];
#pragma unroll
        for (uint32_t i = 0; i < WORDS; i++) {
            uint32_t word = next;
            next = tile.codes[at / 16 + i + 1];
            words[i] = shift_left(next, word, at * 2);
        }
    }

    // The letters from the begin of the i-th k-mer on.
    DEVICE_METHOD uint32_t letters(uint32_t i) const {
        uint32_t bit = 12 * i;
        return shift_left(bit / 32 + 1 < WORDS ? words[bit / 32 + 1] : 0, words[bit / 32], bit % 32);
    }
};

// Joins 16 bytes of ids; letters(i) are sixteen letters from the begin of the i-th k-mer on.
template <class Id, class Letters>
DEVICE void join_ids(const FourLetters& four, Letters letters, uint32_t* words) {
    constexpr uint32_t EACH = 4 / sizeof(Id);
    uint32_t first = in_all_ids<Id>(four.first_id), unused = 32 - 2 * four.k;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        words[i] = first;
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) words[i] += letters(i * EACH + j) >> unused << 32 / EACH * j;
    }
}

// Reads 16 bytes of ids of k-mers from shared letter `at` on; all their letters are of the four.
template <class Id, uint32_t STRIDE, class Tile>
DEVICE void read_vector(const FourLetters& four, const Tile& tile, uint32_t at, uint32_t* words) {
    constexpr uint32_t EACH = 4 / sizeof(Id);
    if constexpr (STRIDE == NEIGHBOURS) {
        Letters32 letters(tile, at);
        neighbours<Id>(four.k, letters.high, letters.low, words);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) words[i] += in_all_ids<Id>(four.first_id);
    } else if constexpr (STRIDE == BY_SIX) {
        BySix<4 * EACH> six(tile, at);
        join_ids<Id>(four, [&](uint32_t i) { return six.letters(i); }, words);
    } else {
        join_ids<Id>(four, [&](uint32_t i) { return letters_from(tile, at + i * four.stride); }, words);
    }
}

// Values of `any_strange`: whether a tile may have letters that are none of the four.
constexpr bool NONE_STRANGE = false, MAY_BE_STRANGE = true;

// The id of the k-mer from shared letter `at` on.
template <class Tile>
DEVICE uint32_t read_id(const FourLetters& four, const Tile& tile, bool any_strange, uint32_t at) {
    if (any_strange && has_strange(tile, at, four.k)) return four.unknown_id;
    return four.first_id + (letters_from(tile, at) >> (32 - 2 * four.k));
}

// A bit for each unknown k-mer among those that begin at the sixteen letters from shared letter `at` on, the first one
// highest.
template <class Tile>
DEVICE uint32_t unknown_kmers(const FourLetters& four, const Tile& tile, uint32_t at) {
    uint32_t first = tile.strange[at / 16] << 16 | tile.strange[at / 16 + 1];
    uint32_t letters = shift_left(tile.strange[at / 16 + 2] << 16, first, at % 16), unknown = letters;
    for (uint32_t i = 1; i < four.k; i++) unknown |= letters << i;
    return unknown;
}

// Puts the unknown id where a vector's k-mers are unknown.
template <class Id>
DEVICE void put_unknown(const FourLetters& four, uint32_t unknown, uint32_t* words) {
    constexpr uint32_t EACH = 4 / sizeof(Id), OWN = sizeof(Id) == 4 ? ALL_LANES : (1u << 8 * sizeof(Id) % 32) - 1;
#pragma unroll
    for (uint32_t i = 0; i < 4 * EACH; i++) {
        uint32_t mask = unknown << i & 0x80000000 ? OWN << 32 / EACH * (i % EACH) : 0;
        words[i / EACH] ^= (words[i / EACH] ^ in_all_ids<Id>(four.unknown_id)) & mask;
    }
}

// Writes 16 bytes of ids to shared memory; one by one where k-mers are no neighbours and some may be unknown.
template <class Id, uint32_t STRIDE, class Tile>
DEVICE void write_vector(const FourLetters& four, const Tile& tile, bool any_strange, uint32_t at, Id* to) {
    constexpr uint32_t COUNT = 16 / sizeof(Id);
    bool is_strange = any_strange && has_strange_near(tile, at, (COUNT - 1) * four.stride + four.k);
    if (STRIDE != NEIGHBOURS && is_strange) {
#pragma unroll 1
        for (uint32_t i = 0; i < COUNT; i++)
            to[i] = static_cast<Id>(read_id(four, tile, MAY_BE_STRANGE, at + i * four.stride));
        return;
    }
    uint32_t words[4], unknown = STRIDE == NEIGHBOURS && is_strange ? unknown_kmers(four, tile, at) : 0;
    if (unknown >> (32 - COUNT) == (1u << COUNT) - 1) {
        words[0] = words[1] = words[2] = words[3] = in_all_ids<Id>(four.unknown_id);
    } else {
        read_vector<Id, STRIDE>(four, tile, at, words);
        if (unknown) put_unknown<Id>(four, unknown, words);
    }
    if constexpr (STRIDE == NEIGHBOURS) stage_vector(to, {words[0], words[1], words[2], words[3]});
    else *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
}

// Writes 16 bytes of ids at a seam: the first `before` of them stay, the others are those from shared letter `next` on.
template <class Id, uint32_t STRIDE, class Tile>
DEVICE void join_vector(const FourLetters& four, const Tile& tile, uint32_t next, uint32_t before, Id* to) {
    uint32_t words[4], bits = 8 * sizeof(Id) * before;
    uint4 there = *reinterpret_cast<const uint4*>(to);
    const uint32_t kept[4] = {there.x, there.y, there.z, there.w};
    read_vector<Id, STRIDE>(four, tile, next, words);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        words[i] = kept[i] ^ ((kept[i] ^ words[i]) & (0 - bit_at(max_of(bits, 32 * i) - 32 * i)));
    stage_vector(to, {words[0], words[1], words[2], words[3]});
}

// Loads the ids of the four letters alone, by their codes; a warp calls it.
DEVICE void load_singles(const Job& job, uint32_t* singles) {
    uint32_t lane = threadIdx.x & 31;
    if (lane >= 4) return;
    uint32_t letter = job.kmers.four_letters >> 16 * lane & 0xFF, code = job.kmers.four_codes >> 16 * lane & 0xFF;
    singles[code] = job.kmers.letter_ids[letter];
}

}  // namespace warptok::kmers
