// Finds the pieces that are cut: longer than MAX_PIECE and no token.
#pragma once
#include "cut.cuh"
#include "look_up.cuh"

// Adds a piece to the list; its windows follow those of the pieces before it.
DEVICE void add_piece(const Job& job, uint32_t begin, uint32_t end) {
    uint32_t windows = num_windows(end - begin, STRIDE_0, OVERLAP_0);
    uint64_t before = atomic_add(job.window_counts, ONE_PIECE + windows);
    job.long_pieces[before >> 40] = {begin, end, static_cast<uint32_t>(before), 0};
}

// Lists a piece for cutting unless it is short or a token.
DEVICE void consider_piece(const Job& job, uint64_t begin, uint64_t end) {
    uint64_t length = end - begin;
    if (length <= MAX_PIECE || is_special_piece(job, begin)) return;
    if (length <= job.max_token) {
        uint32_t id = find_token(job, job.text + begin, length);
        if (checked_id(job, id, begin, end) != NO_ID) return;
    }
    add_piece(job, begin, end);
}

// How many words from `word` on, an even number, hold no start: whole steps of GAP_STEP only. A warp
// alone looks through a gap of any length, so that it asks for much at a time.
constexpr uint32_t GAP_LOADS = 8, GAP_STEP = GAP_LOADS * 64;
DEVICE uint64_t gap_by_warp(const Job& job, uint64_t word) {
    uint64_t begin = word, total = (job.num_bytes + 63) / 64;
    for (; word + GAP_STEP <= total; word += GAP_STEP) {
        const uint4* fours = reinterpret_cast<const uint4*>(job.starts + word) + (threadIdx.x & 31);
        uint32_t any = 0;
#pragma unroll
        for (uint32_t i = 0; i < GAP_LOADS; i++) {
            uint4 four = fours[32 * i];
            any |= four.x | four.y | four.z | four.w;
        }
        if (__any_sync(ALL_LANES, any != 0)) break;
    }
    return word - begin;
}

// Where the first piece from word `word` on begins, an even number; the whole warp looks.
DEVICE uint64_t next_start_by_warp(const Job& job, uint64_t word) {
    uint64_t total = (job.num_bytes + 63) / 64, lane = threadIdx.x & 31;
    for (bool is_gap_known = false; word < total; word += 32) {
        uint64_t bits = word + lane < total ? job.starts[word + lane] : 0;
        uint32_t found = __ballot_sync(ALL_LANES, bits != 0);
        if (found) {
            uint32_t first = lowest_bit(found);
            bits = __shfl_sync(ALL_LANES, bits, first);
            return (word + first) * 64 + lowest_bit(bits);
        }
        if (!is_gap_known) word += gap_by_warp(job, word + 32);
        is_gap_known = true;
    }
    return job.num_bytes;
}

// Finds the pieces longer than MAX_PIECE: a warp for every 32 words of start bits. Only the last
// piece that begins in a word can be so long.
DEVICE void find_long_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t total = (job.num_bytes + 63) / 64, lane = threadIdx.x & 31;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t first = (static_cast<uint64_t>(block) * BLOCK + threadIdx.x) & ~31ull; first < total;
         first += stride) {
        uint64_t word = first + lane, bits = word < total ? job.starts[word] : 0;
        uint32_t filled = __ballot_sync(0xFFFFFFFF, bits != 0);
        if (!filled) continue;
        uint32_t behind = filled & (0xFFFFFFFEu << lane);
        uint32_t next_lane = behind ? lowest_bit(behind) : 0;
        uint64_t next_bits = __shfl_sync(0xFFFFFFFF, bits, next_lane);
        uint64_t end = (first + next_lane) * 64 + (next_bits ? lowest_bit(next_bits) : 0);
        uint64_t far = next_start_by_warp(job, first + 32);
        if (!behind) end = far;
        if (bits) consider_piece(job, word * 64 + highest_bit(bits), end);
    }
}
