// Cuts pretokens where no token can lie across the border of two characters.
//
// Every symbol that merging ever makes is a token's bytes. So where no token of the vocabulary has
// the character on the left followed by the one on the right, no merge crosses, and the two sides
// are encoded apart (gpu/README.md). Asked only where either character is not ASCII: long words of
// Chinese, Japanese or Korean fall apart into pieces of one to three characters, most of them tokens.
//
// The filter has a bit for the hash of every two neighbouring characters of a token, of every
// character that a token's incomplete one follows or precedes (ANY in its place); `byte_borders` one
// for every two bytes between two incomplete ones. A bit too many only leaves a border uncut.
#pragma once
#include "hash.cuh"
#include "job.cuh"

constexpr uint32_t BORDER_BITS = 19;
constexpr uint32_t BORDER_WORDS = 1 << (BORDER_BITS - 5);
constexpr uint32_t BYTE_BORDER_WORDS = 65536 / 32;
constexpr uint32_t CERTAIN_BLOCK = 1024;
constexpr uint32_t ANY_CHARACTER = 0xFFFFFFFF;

struct CertainShared {
    uint32_t borders[BORDER_WORDS];
    uint32_t byte_borders[BYTE_BORDER_WORDS];
};

// The filter, or copies of it in shared memory.
struct Filter {
    const uint32_t *borders, *byte_borders;
    uint32_t seed;
};

DEVICE bool has_bit(const uint32_t* words, uint32_t bit) { return words[bit >> 5] >> (bit & 31) & 1; }

DEVICE bool may_lie_across(const Filter& filter, uint32_t left, uint32_t right) {
    return has_bit(filter.borders, mixed(hash_pair(left, right, filter.seed)) >> (32 - BORDER_BITS));
}

// The character whose last byte is the top byte of `bytes`, its bytes from the top down, zeros below.
DEVICE uint32_t character_before(uint32_t bytes) {
    if (!(bytes & 0x80000000)) return bytes & 0xFF000000;
    if ((bytes & 0x00C00000) == 0x00C00000) return bytes & 0xFFFF0000;
    if ((bytes & 0x0000C000) == 0x0000C000) return bytes & 0xFFFFFF00;
    return bytes;
}

// The character whose first byte is the lowest byte of `bytes`, zeros above.
DEVICE uint32_t character_at(uint32_t bytes) {
    if (!(bytes & 0x80)) return bytes & 0xFF;
    if ((bytes & 0xE0) == 0xC0) return bytes & 0xFFFF;
    return (bytes & 0xF0) == 0xE0 ? bytes & 0xFFFFFF : bytes;
}

// Whether the border in front of the byte at `place` is certain; before and behind are the 4 bytes on
// either side of it, in the order of memory. AT_ONCE: nothing is looked up only after something else.
template <bool AT_ONCE> DEVICE bool is_certain(const Filter& filter, uint32_t before, uint32_t behind) {
    uint32_t left = character_before(before), right = character_at(behind);
    bool by_bytes = has_bit(filter.byte_borders, before >> 24 << 8 | (behind & 0xFF));
    if (AT_ONCE)
        return !(by_bytes | may_lie_across(filter, left, right) | may_lie_across(filter, left, ANY_CHARACTER) |
                 may_lie_across(filter, ANY_CHARACTER, right));
    if (by_bytes) return false;
    return !may_lie_across(filter, left, right) && !may_lie_across(filter, left, ANY_CHARACTER) &&
           !may_lie_across(filter, ANY_CHARACTER, right);
}

// Of 16 bytes: a bit for each that is not ASCII.
DEVICE uint32_t high_bits(uint4 bytes) {
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
    uint32_t bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        bits |= ((words[i] & 0x80808080) * 0x00204081u >> 28) << (4 * i);
    return bits;
}

// Of 16 bytes: a bit for each that continues a character.
DEVICE uint32_t continuation_bits(uint4 bytes) {
    uint4 second = {bytes.x & ~(bytes.x << 1), bytes.y & ~(bytes.y << 1), bytes.z & ~(bytes.z << 1),
                    bytes.w & ~(bytes.w << 1)};
    return high_bits(second);
}

// The 4 bytes in front of `place` and the 4 from it on.
DEVICE void bytes_around(const uint8_t* text, uint64_t place, uint32_t& before, uint32_t& behind) {
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(text) + place / 4;
    uint32_t shift = (place & 3) * 8, middle = aligned[0];
    before = shift_right(place >= 4 ? aligned[-1] : 0, middle, shift);
    behind = shift_right(middle, aligned[1], shift);
}

// The bytes of a word of start bits, or a lane's part of them: which are not ASCII, which continue a
// character.
template <uint32_t SIZE> DEVICE void look_at(const uint8_t* place, uint64_t& high, uint64_t& continued) {
    const uint4* text = reinterpret_cast<const uint4*>(place);
    high = continued = 0;
#pragma unroll
    for (uint32_t i = 0; i < SIZE / 16; i++) {
        uint4 bytes = text[i];
        high |= static_cast<uint64_t>(high_bits(bytes)) << (16 * i);
        continued |= static_cast<uint64_t>(continuation_bits(bytes)) << (16 * i);
    }
}

// The certain borders among SIZE bytes from `begin` on, a bit each, where no piece begins yet.
template <uint32_t SIZE>
DEVICE uint64_t certain_borders(const Job& job, const Filter& filter, uint64_t begin) {
    uint64_t high, continued, certain = 0;
    look_at<SIZE>(job.text + begin, high, continued);
    bool high_before = begin && job.text[begin - 1] >= 0x80;
    uint64_t borders = (high | high << 1 | high_before) & ~continued & (~0ull >> (64 - SIZE));
    if (!borders) return 0;
    if (job.num_bytes - begin < SIZE) borders &= (1ull << (job.num_bytes - begin)) - 1;
    for (borders &= ~(job.starts[begin / 64] >> begin % 64); borders; borders &= borders - 1) {
        uint32_t bit = lowest_bit(borders), before, behind;
        bytes_around(job.text, begin + bit, before, behind);
        if (is_certain<SIZE != 64>(filter, before, behind)) certain |= 1ull << bit;
    }
    return certain;
}

// LANES neighbouring threads take 64 bytes and so own their word of start bits: one of them, or four
// in a small batch, in which nobody else would have anything to do.
template <uint32_t LANES>
DEVICE void cut_words(const Job& job, const Filter& filter, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t SIZE = 64 / LANES;
    uint64_t before = threadIdx.x % 32 * SIZE;  // What the lanes before this one take.
    uint64_t begin = (static_cast<uint64_t>(block) * blockDim.x + threadIdx.x) * SIZE;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * blockDim.x * SIZE;
    for (; begin - before < job.num_bytes; begin += stride) {
        uint64_t word = begin / 64, added = 0;
        if (begin < job.num_bytes) added = certain_borders<SIZE>(job, filter, begin) << begin % 64;
        for (uint32_t distance = 1; distance < LANES; distance *= 2)
            added |= __shfl_xor_sync(0xFFFFFFFF, added, distance);
        if (!added || begin % 64) continue;
        job.starts[word] |= added;
        if (job.cuts) job.cuts[word] = added;
    }
}

DEVICE void cut_certain_stage(const Job& job, CertainShared& shared, uint32_t block,
                              uint32_t num_blocks) {
    for (uint32_t i = threadIdx.x; i < BORDER_WORDS; i += CERTAIN_BLOCK) shared.borders[i] = job.borders[i];
    for (uint32_t i = threadIdx.x; i < BYTE_BORDER_WORDS; i += CERTAIN_BLOCK)
        shared.byte_borders[i] = job.byte_borders[i];
    __syncthreads();
    Filter filter = {shared.borders, shared.byte_borders, static_cast<uint32_t>(job.seed)};
    cut_words<1>(job, filter, block, num_blocks);
}
