// Splits pretokens at certain borders. Long words of Chinese, Japanese or Korean become pieces of one to three
// characters, most of which are tokens. White space is split where its kind changes.
//
// Candidates are borders between two characters of which at least one is not ASCII, and between two bytes of white
// space. There are two exceptions. A run of one byte is split only where a word of start bits begins (GPT-2 has no
// token with two blanks). The first border of a piece is not split, since look_up has implicit pieces for this case:
//
//     "\n\n\t\t\t\t  x"   pieces "\n\n", "\t\t\t\t", " ", " x"
//
// A lane reads 16 bytes, a warp 512. As a few lanes have most of the candidates, the warp lists them, and
// each lane checks the same number of them:
//
//     lane          0      1      2     3 ...
//     candidates    ..1.   ....   111.  .1..
//     places        2 8 9 10 13 ...             certain  1 0 1 1 0 ...
//     added         ..1.   ....   .11.  ....
//
// Invariant: a start is set only where no token of the vocabulary can lie across, so that enc of both sides, joined, is
// enc of the piece.
#pragma once
#include "common/block_reduce.cuh"
#include "text/split/boundary_filter.cuh"
#include "common/bit_masks.cuh"

namespace warptok::text {

constexpr uint32_t CERTAIN_BLOCK = 256;
constexpr uint32_t CERTAIN_BLOCKS = 4;     // A multiprocessor.
constexpr uint32_t CERTAIN_BYTES = 16;  // A lane's.

// What a warp shares.
struct CertainWarp {
    alignas(16) uint32_t text[4 + 128 + 4];  // From the fourth word on: that before its bytes, they, one more.
    uint16_t places[32 * CERTAIN_BYTES];
    uint32_t certain[CERTAIN_BYTES + 2];     // A bit for each place of the list.
};

struct CertainShared {
    uint32_t borders[BORDER_WORDS];
    uint32_t byte_borders[BYTE_BORDER_WORDS];
    CertainWarp warps[CERTAIN_BLOCK / 32];
};
constexpr uint32_t CERTAIN_SHARED = 53 * 1024;
static_assert(sizeof(CertainShared) <= CERTAIN_SHARED, "the launch asks for so much");

// The upper bits of the bytes that are neither blanks nor control characters. Other bits of the result have no meaning,
// here and in continuing_bytes.
DEVICE uint32_t printed_bytes(uint32_t word) { return ((word & 0x7F7F7F7F) + 0x5F5F5F5F) | word; }

// The upper bits of the bytes that continue a character.
DEVICE uint32_t continuing_bytes(uint32_t word) { return word & ~(word << 1); }

// 16 bytes of the text, and where pieces begin in them; bytes behind the text count as begins, which no stage reads.
struct Sixteen {
    uint4 bytes;
    uint32_t starts, before;  // The word in front of them, of the warp's first lane.
};

DEVICE Sixteen sixteen_at(const Job& job, uint64_t begin) {
    if (begin >= job.batch.num_bytes) return {{0, 0, 0, 0}, 0xFFFF, 0};
    Sixteen here = {*reinterpret_cast<const uint4*>(job.batch.text + begin),
                    reinterpret_cast<const uint16_t*>(job.text.starts)[begin / CERTAIN_BYTES], 0};
    if (job.batch.num_bytes - begin < CERTAIN_BYTES) here.starts |= 0xFFFFu << (job.batch.num_bytes - begin);
    if (lane_of_thread() == 0 && begin) here.before = *reinterpret_cast<const uint32_t*>(job.batch.text + begin - 4);
    return here;
}

// The borders to test, a bit for the byte behind each. All lanes of the warp call it.
DEVICE uint32_t candidate_borders(const Sixteen& here, uint32_t before, bool begins_word) {
    const uint32_t words[4] = {here.bytes.x, here.bytes.y, here.bytes.z, here.bytes.w};
    uint32_t left[4], white[4], high[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        left[i] = shift_right(i ? words[i - 1] : before, words[i], 24);
        uint32_t changed = nonzero_bytes(words[i] ^ left[i]) | (i == 0 && begins_word ? 0x80 : 0);
        white[i] = ~(printed_bytes(words[i]) | printed_bytes(left[i])) & changed;
        high[i] = (words[i] | left[i]) & ~continuing_bytes(words[i]);
    }
    uint32_t candidates = upper_bits(white) & ~(here.starts << 1);
    if (__any_sync(ALL_LANES, (words[0] | words[1] | words[2] | words[3] | before) & 0x80808080))
        candidates |= upper_bits(high);
    return candidates & ~here.starts;
}

// Tests the `total` places of a warp's list.
DEVICE void look_at_places(const Filter& filter, CertainWarp& warp, uint32_t total) {
    for (uint32_t first = 0; first < total; first += 32) {
        uint32_t number = first + lane_of_thread();
        bool certain = false;
        if (number < total) {
            uint32_t place = warp.places[number], shift = place % 4 * 8;
            const uint32_t* words = warp.text + 3 + place / 4;
            uint32_t before = shift_right(words[0], words[1], shift), behind = shift_right(words[1], words[2], shift);
            certain = is_certain(filter, before, behind);
        }
        uint32_t bits = __ballot_sync(ALL_LANES, certain);
        if (lane_of_thread() == 0) warp.certain[first / 32] = bits;
    }
    __syncwarp();
}

// Splits at certain borders in the 16 bytes of each lane of the warp.
DEVICE void split_sixteen(const Job& job, const Filter& filter, CertainWarp& warp, uint64_t begin,
                          const Sixteen& here) {
    uint32_t lane = lane_of_thread(), before = __shfl_up_sync(ALL_LANES, here.bytes.w, 1);
    if (lane == 0) before = here.before;
    uint32_t candidates = candidate_borders(here, before, begin % 64 == 0);
    if (!__any_sync(ALL_LANES, candidates)) return;
    uint32_t number = sum_of_lanes(count_bits(candidates)), total = __shfl_sync(ALL_LANES, number, 31);
    number -= count_bits(candidates);
    *reinterpret_cast<uint4*>(warp.text + 4 + 4 * lane) = here.bytes;
    if (lane == 0) warp.text[3] = before;
    if (lane == 31 && begin < job.batch.num_bytes)
        warp.text[4 + 128] = *reinterpret_cast<const uint32_t*>(job.batch.text + begin + CERTAIN_BYTES);
    uint32_t next = number;
    for (uint32_t bits = candidates; bits; bits &= bits - 1)
        warp.places[next++] = lane * CERTAIN_BYTES + lowest_bit(bits);
    __syncwarp();
    look_at_places(filter, warp, total);
    uint32_t certain = shift_right(warp.certain[number / 32], warp.certain[number / 32 + 1], number % 32), added = 0;
    for (; candidates; candidates &= candidates - 1, certain >>= 1)
        if (certain & 1) added |= candidates & -candidates;
    if (added) {
        reinterpret_cast<uint16_t*>(job.text.starts)[begin / CERTAIN_BYTES] |= added;
        if (job.text.splits) reinterpret_cast<uint16_t*>(job.text.splits)[begin / CERTAIN_BYTES] = added;
    }
    __syncwarp();
}

// Splits all of the text; blocks may have any number of warps. The next bytes are loaded one step ahead.
DEVICE void split_text(const Job& job, const Filter& filter, CertainWarp* warps, uint32_t block, uint32_t num_blocks) {
    uint64_t begin = (static_cast<uint64_t>(block) * blockDim.x + threadIdx.x) * CERTAIN_BYTES;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * blockDim.x * CERTAIN_BYTES;
    Sixteen here = sixteen_at(job, begin);
    for (; begin - lane_of_thread() * CERTAIN_BYTES < job.batch.num_bytes; begin += stride) {
        Sixteen next = sixteen_at(job, begin + stride);
        split_sixteen(job, filter, warps[threadIdx.x / 32], begin, here);
        here = next;
    }
}

DEVICE void split_at_certain_stage(const Job& job, CertainShared& shared, uint32_t block, uint32_t num_blocks) {
    for (uint32_t i = threadIdx.x; i < BORDER_WORDS; i += CERTAIN_BLOCK) shared.borders[i] = job.text.borders[i];
    for (uint32_t i = threadIdx.x; i < BYTE_BORDER_WORDS; i += CERTAIN_BLOCK)
        shared.byte_borders[i] = job.text.byte_borders[i];
    __syncthreads();
    Filter filter = {shared.borders, shared.byte_borders, static_cast<uint32_t>(job.tokens.seed)};
    split_text(job, filter, shared.warps, block, num_blocks);
}

}  // namespace warptok::text
