// Byte-pair encoding of one piece by one thread.
//
// The lowest rank is merged first, the leftmost of equal ones first, until no pair has a rank: the
// definition itself. What is clever is only where things lie: a thread's state is two columns of
// shared memory, `keys` (rank << 5 | place of each pair, in groups of four so that four are read at
// once) and `ids` (of each symbol, at the place of its first byte), and one register of bits for the
// places that are still a symbol's first byte.
//
//     a b a b c      alive 11111   keys ab ba ab bc
//     ab . ab . c    alive 10101   ids  ab  - ab  - c
#pragma once
#include "hash.cuh"
#include "job.cuh"

constexpr uint32_t NO_KEY = 0xFFFFFFFF;

// Rank of two neighbouring symbols, NO_RANK where they do not merge.
DEVICE uint32_t rank_of(const Job& job, uint32_t left, uint32_t right) {
    uint64_t key = static_cast<uint64_t>(left) << 21 | right;
    uint32_t bucket = hash_pair(left, right, job.seed) & job.pair_mask;
    for (;;) {
        const ulonglong2 entries = __ldg(reinterpret_cast<const ulonglong2*>(job.pairs) + bucket);
        if (entries.x >> 22 == key) return entries.x & 0x3FFFFF;
        if (entries.y >> 22 == key) return entries.y & 0x3FFFFF;
        if (entries.y == ~0ull) return NO_RANK;
        bucket = (bucket + 1) & job.pair_mask;
    }
}

// A thread's columns in shared memory: N places for each of THREADS threads.
template <int N, int THREADS> struct Columns {
    uint32_t keys[N * THREADS];
    uint32_t ids[N * THREADS];

    DEVICE_METHOD uint32_t& key(uint32_t place, uint32_t thread) {
        return keys[(place >> 2) * (4 * THREADS) + 4 * thread + (place & 3)];
    }
    DEVICE_METHOD uint32_t& id(uint32_t place, uint32_t thread) { return ids[place * THREADS + thread]; }
    DEVICE_METHOD uint4 four_keys(uint32_t group, uint32_t thread) const {
        return *reinterpret_cast<const uint4*>(keys + group * (4 * THREADS) + 4 * thread);
    }
};

// Writes a rank as a key; the last place of a piece has none.
DEVICE uint32_t key_of(uint32_t rank, uint32_t place) {
    return rank == NO_RANK ? NO_KEY : rank << 5 | place;
}

// Fills the columns for `length` bytes (2..N).
template <int N, int THREADS>
DEVICE void begin_piece(const Job& job, Columns<N, THREADS>& columns, uint32_t thread,
                        const uint8_t* text, uint32_t length) {
    uint32_t byte = text[0];
    for (uint32_t place = 0; place < length; place++) {
        columns.id(place, thread) = __ldg(job.byte_ids + byte);
        uint32_t next = text[place + 1];
        uint32_t rank = place + 1 < length ? __ldg(job.byte_pairs + (byte << 8 | next)) : NO_RANK;
        columns.key(place, thread) = key_of(rank, place);
        byte = next;
    }
    for (uint32_t place = length; place & 3; place++) columns.key(place, thread) = NO_KEY;
}

// Encodes `length` bytes (2..N): returns the places where a token begins; `columns.id` there is it.
template <int N, int THREADS>
DEVICE uint32_t merge_piece(const Job& job, Columns<N, THREADS>& columns, uint32_t thread,
                            const uint8_t* text, uint32_t length) {
    begin_piece(job, columns, thread, text, length);
    uint32_t alive = length == 32 ? 0xFFFFFFFFu : (1u << length) - 1;
    uint32_t groups = (length + 3) / 4;
    for (;;) {
        uint32_t best = NO_KEY;
        for (uint32_t group = 0; group < groups; group++) {
            uint4 four = columns.four_keys(group, thread);
            best = min_of(best, min_of(min_of(four.x, four.y), min_of(four.z, four.w)));
        }
        if (best == NO_KEY) return alive;
        uint32_t place = best & 31, id = __ldg(job.merged + (best >> 5));
        uint32_t behind = alive & (0xFFFFFFFEu << place);
        uint32_t second = lowest_bit(behind);
        behind &= behind - 1;
        uint32_t before = alive & ((1u << place) - 1);
        alive &= ~(1u << second);
        columns.key(second, thread) = NO_KEY;
        columns.id(place, thread) = id;
        uint32_t next_rank = NO_RANK, last_rank = NO_RANK, last = 0;
        if (behind) next_rank = rank_of(job, id, columns.id(lowest_bit(behind), thread));
        if (before) {
            last = highest_bit(before);
            last_rank = rank_of(job, columns.id(last, thread), id);
        }
        columns.key(place, thread) = key_of(next_rank, place);
        if (before) columns.key(last, thread) = key_of(last_rank, last);
    }
}
