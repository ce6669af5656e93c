// Finds the pieces that are split: longer than MAX_PIECE and no token.
//
// Invariant: every piece of more than MAX_PIECE bytes that is neither a token nor a special token is in long_pieces
// once, and its windows have numbers side by side.
#pragma once
#include "text/split/windows_common.cuh"
#include "text/lookup/lookup.cuh"

namespace warptok::text {

// Adds a piece to the list; its windows follow those of the pieces before it.
DEVICE void add_piece(const Job& job, uint32_t begin, uint32_t end) {
    uint32_t windows = num_windows(end - begin);
    uint64_t before = atomic_add(job.text.window_counts + COUNT_WINDOWS, ONE_ABOVE + windows);
    job.text.long_pieces[before >> COUNT_SHIFT] = {begin, end, static_cast<uint32_t>(before), 0};
}

// Lists a piece for splitting unless it is short or a token.
DEVICE void consider_piece(const Job& job, uint64_t begin, uint64_t end) {
    uint64_t length = end - begin;
    if (length <= MAX_PIECE || is_special_piece(job, begin)) return;
    if (length <= job.tokens.max_token) {
        uint32_t id = find_token(job, job.batch.text + begin, length);
        if (checked_id(job, id, begin, end) != NO_ID) return;
    }
    add_piece(job, begin, end);
}

// Where no start is near, a warp looks through 1,024 words of start bits at a time, sixteen bytes a load.
constexpr uint32_t GAP_LOADS = 16;
constexpr uint32_t GAP_STEP = GAP_LOADS * 64;
constexpr uint32_t NEAR_WORDS = GAP_STEP;  // As far as a warp looks alone; then its block does.
constexpr uint32_t MAX_GAPS = 64;              // Of a block; a warp looks through others alone.

struct Gap {  // The last piece before it, and the first word that is not searched yet.
    uint64_t begin, word;
};

struct FindShared {
    Gap gaps[MAX_GAPS];
    uint32_t count, first;
};

// The first pair of GAP_STEP words from `word` on, an even number, that holds a start; GAP_STEP if none
// does. The whole warp calls it.
DEVICE uint32_t filled_pair(const Job& job, uint64_t word) {
    uint64_t total = (job.batch.num_bytes + 63) / 64;
    uint32_t lane = threadIdx.x & 31, first = GAP_STEP;
#pragma unroll
    for (uint32_t i = GAP_LOADS; i-- > 0;) {
        uint64_t own = word + 64 * i + 2 * lane;
        uint4 pair = {0, 0, 0, 0};
        if (own < total) pair = *reinterpret_cast<const uint4*>(job.text.starts + own);
        if (pair.x | pair.y | pair.z | pair.w) first = 64 * i + 2 * lane;
    }
    return __reduce_min_sync(ALL_LANES, first);
}

// The first start in a pair of words, num_bytes if there is none: what lies behind the data is no start.
DEVICE uint64_t start_in_pair(const Job& job, uint64_t word) {
    uint64_t bits = job.text.starts[word];
    if (bits) return word * 64 + lowest_bit(bits);
    bits = (word + 1) * 64 < job.batch.num_bytes ? job.text.starts[word + 1] : 0;
    return bits ? (word + 1) * 64 + lowest_bit(bits) : job.batch.num_bytes;
}

// Where the first piece from word `word` on begins, num_bytes if none does before word `limit`, which
// `word` has then reached; the whole warp looks.
DEVICE uint64_t next_start_by_warp(const Job& job, uint64_t& word, uint64_t limit) {
    for (; word < limit; word += GAP_STEP) {
        uint32_t pair = filled_pair(job, word);
        if (pair < GAP_STEP) return start_in_pair(job, word + pair);
    }
    return job.batch.num_bytes;
}

// As next_start_by_warp, up to the end of the data; the whole block looks, and only its first thread gets the answer.
DEVICE uint64_t next_start_by_block(const Job& job, FindShared& shared, uint64_t word) {
    uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x == 0) shared.first = NO_BYTE;
    for (; word * 64 < job.batch.num_bytes; word += BLOCK / 32 * GAP_STEP) {
        uint32_t pair = filled_pair(job, word + warp * GAP_STEP);
        if (!__syncthreads_or(pair < GAP_STEP)) continue;
        if (pair < GAP_STEP) atomicMin(&shared.first, warp * GAP_STEP + pair);
        __syncthreads();
        return start_in_pair(job, word + (threadIdx.x ? 0 : shared.first));
    }
    return job.batch.num_bytes;
}

// Where the first piece of 32 words from word `word` on begins, num_bytes if none does; the whole warp
// looks.
DEVICE uint64_t start_in_words(const Job& job, uint64_t word) {
    uint64_t own = word + (threadIdx.x & 31), bits = own * 64 < job.batch.num_bytes ? job.text.starts[own] : 0;
    uint32_t found = __ballot_sync(ALL_LANES, bits != 0);
    if (!found) return job.batch.num_bytes;
    bits = __shfl_sync(ALL_LANES, bits, lowest_bit(found));
    return (word + lowest_bit(found)) * 64 + lowest_bit(bits);
}

// The end of the last piece that begins before word `word`. It begins at `begin` of the lane whose `is_mine` is true.
// The whole warp looks. Returns 0 where that is left to the block.
DEVICE uint64_t end_of_last(const Job& job, FindShared& shared, uint64_t word, uint64_t begin,
                            bool is_mine) {
    uint64_t end = start_in_words(job, word), total = (job.batch.num_bytes + 63) / 64;
    word += 32;
    if (end < job.batch.num_bytes || word >= total) return end;
    end = next_start_by_warp(job, word, word + NEAR_WORDS < total ? word + NEAR_WORDS : total);
    if (end < job.batch.num_bytes || word >= total) return end;
    uint32_t slot = (threadIdx.x & 31) == 0 ? atomicAdd(&shared.count, 1) : 0;
    slot = __shfl_sync(ALL_LANES, slot, 0);
    if (slot >= MAX_GAPS) return next_start_by_warp(job, word, total);
    if (is_mine) shared.gaps[slot] = {begin, word};
    return 0;
}

// Finds the pieces longer than MAX_PIECE: a warp for every 32 words of start bits. Only the last
// piece that begins in a word can be so long; it ends where the next word that has any begins its first one.
//
//     lane       0           1           2           31                       the words behind
//     starts     . 1 . 1 .   . . . . .   . . 1 . .   . . . . .                . . . . . ... 1
//     pieces           |-----------------|   lane 0's      |---- lane 2's: end_of_last finds its end ----|
//
// That end may be megabytes away: a warp looks so far alone, then notes a Gap, and the block looks when all warps are
// done.
DEVICE void find_long_stage(const Job& job, FindShared& shared, uint32_t block, uint32_t num_blocks) {
    uint64_t total = (job.batch.num_bytes + 63) / 64, lane = threadIdx.x & 31;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    if (threadIdx.x == 0) shared.count = 0;
    __syncthreads();
    for (uint64_t first = (static_cast<uint64_t>(block) * BLOCK + threadIdx.x) & ~31ull; first < total;
         first += stride) {
        uint64_t word = first + lane, bits = word < total ? job.text.starts[word] : 0;
        uint32_t filled = __ballot_sync(ALL_LANES, bits != 0);
        if (!filled) continue;
        uint32_t behind = filled & (0xFFFFFFFEu << lane);
        uint32_t next_lane = behind ? lowest_bit(behind) : 0;
        uint64_t next_bits = __shfl_sync(ALL_LANES, bits, next_lane);
        uint64_t end = (first + next_lane) * 64 + (next_bits ? lowest_bit(next_bits) : 0);
        uint64_t begin = word * 64 + (bits ? highest_bit(bits) : 0);
        uint64_t far = end_of_last(job, shared, first + 32, begin, bits && !behind);
        if (!behind) end = far;
        if (bits && end) consider_piece(job, begin, end);
    }
    __syncthreads();
    for (uint32_t i = 0; i < min_of(shared.count, MAX_GAPS); i++) {
        uint64_t end = next_start_by_block(job, shared, shared.gaps[i].word);
        if (threadIdx.x == 0) consider_piece(job, shared.gaps[i].begin, end);
    }
}

}  // namespace warptok::text
