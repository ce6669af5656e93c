// Byte-pair encoding of one piece by one thread.
//
// The lowest rank is merged first, the leftmost of equal ones first, until no pair has a rank: the
// definition itself. Symbols are numbered so that a rank is also what it gives: a byte is its value,
// what the merge of rank r gives is 256 + r, and `symbol_ids` knows their ids in the end. A thread's
// state is two columns of shared memory, `keys` (rank << PLACE_BITS | place of each pair, in groups
// of four, read together) and `symbols` (at the place of their first byte), and one bit in registers
// for every place that is still a symbol's first byte.
//
//     a b a b c      alive 11111   keys ab ba ab bc
//     ab . ab . c    alive 10101   symbols ab . ab . c
#pragma once
#include "hash.cuh"
#include "job.cuh"

constexpr uint32_t NO_KEY = 0xFFFFFFFF;
constexpr uint32_t FIRST_MERGED = 256;

// Rank of two neighbouring symbols, NO_RANK where they do not merge.
DEVICE uint32_t rank_in_table(const Job& job, uint32_t left, uint32_t right, uint32_t bucket) {
    uint64_t key = static_cast<uint64_t>(left) << 21 | right;
    for (;;) {
        const ulonglong2 two = __ldg(reinterpret_cast<const ulonglong2*>(job.pairs) + bucket);
        if (two.x >> 22 == key) return static_cast<uint32_t>(two.x) & 0x3FFFFF;
        if (two.y >> 22 == key) return static_cast<uint32_t>(two.y) & 0x3FFFFF;
        if (two.y == ~0ull) return NO_RANK;
        bucket = (bucket + 1) & (0xFFFFFFFFu >> job.pair_shift);
    }
}

DEVICE uint32_t rank_of(const Job& job, uint32_t left, uint32_t right) {
    uint32_t hash = mixed(hash_pair(left, right, job.seed));
    return rank_in_table(job, left, right, hash >> job.pair_shift);
}

constexpr uint32_t FILTER_BITS = 19;
constexpr uint32_t FILTER_WORDS = 1 << (FILTER_BITS - 5);
constexpr uint32_t NUM_ASCII = 128;
constexpr uint32_t ASK_AGAIN = 0xFFFE, NO_ASCII_PAIR = 0xFFFF;

// What all threads of a merging block look up in shared memory before they ask the tables: a gather
// from global memory costs a warp a cycle for each lane, one from shared memory only a few.
struct PairCache {
    uint16_t ascii[NUM_ASCII * NUM_ASCII];
    uint32_t filter[FILTER_WORDS];
};

// Fills the cache; every thread of the block calls it.
DEVICE void load_cache(const Job& job, PairCache& cache) {
    constexpr uint32_t NUM_ASCII_WORDS = NUM_ASCII * NUM_ASCII / 8;
    const uint4* ascii = reinterpret_cast<const uint4*>(job.ascii_pairs);
    const uint4* filter = reinterpret_cast<const uint4*>(job.pair_filter);
    for (uint32_t i = threadIdx.x; i < NUM_ASCII_WORDS; i += blockDim.x)
        reinterpret_cast<uint4*>(cache.ascii)[i] = ascii[i];
    for (uint32_t i = threadIdx.x; i < FILTER_WORDS / 4; i += blockDim.x)
        reinterpret_cast<uint4*>(cache.filter)[i] = filter[i];
    __syncthreads();
}

// The same as rank_of; most pairs that do not merge are known from the filter.
DEVICE uint32_t rank_of(const Job& job, const PairCache& cache, uint32_t left, uint32_t right) {
    uint32_t hash = mixed(hash_pair(left, right, job.seed)), bit = hash >> (32 - FILTER_BITS);
    if (!(cache.filter[bit >> 5] >> (bit & 31) & 1)) return NO_RANK;
    return rank_in_table(job, left, right, hash >> job.pair_shift);
}

// Rank of two bytes, the first in the lower 8 bits.
DEVICE uint32_t rank_of_bytes(const Job& job, const PairCache& cache, uint32_t bytes) {
    if (!(bytes & 0x8080)) {
        uint32_t rank = cache.ascii[(bytes & 0x7F) << 7 | bytes >> 8];
        if (rank < ASK_AGAIN) return rank;
        if (rank == NO_ASCII_PAIR) return NO_RANK;
    }
    return __ldg(job.byte_pairs + bytes);
}

// A set of places 0 .. N - 1.
template <int N> struct Places {
    uint64_t bits[(N + 63) / 64];

    DEVICE_METHOD void fill(uint32_t count) {
        bits[0] = count >= 64 ? ~0ull : (1ull << count) - 1;
        if (N > 64) bits[N > 64] = count <= 64 ? 0 : count >= 128 ? ~0ull : (1ull << (count - 64)) - 1;
    }
    DEVICE_METHOD void remove(uint32_t place) {
        if (N > 64 && place >= 64) bits[N > 64] &= ~(1ull << (place - 64));
        else bits[0] &= ~(1ull << place);
    }
    // The first member behind `place`, N where there is none.
    DEVICE_METHOD uint32_t next(uint32_t place) const {
        if (N > 64 && place >= 63) {
            uint64_t behind = place == 63 ? bits[N > 64] : bits[N > 64] & (~1ull << (place - 64));
            return behind ? 64 + lowest_bit(behind) : N;
        }
        uint64_t behind = bits[0] & (~1ull << place);
        if (behind) return lowest_bit(behind);
        return N > 64 && bits[N > 64] ? 64 + lowest_bit(bits[N > 64]) : N;
    }
    // The last member before `place`, N where there is none.
    DEVICE_METHOD uint32_t last(uint32_t place) const {
        if (N > 64 && place > 64) {
            uint64_t before = bits[N > 64] & ((1ull << (place - 64)) - 1);
            if (before) return 64 + highest_bit(before);
        }
        uint64_t before = place >= 64 ? bits[0] : bits[0] & ((1ull << place) - 1);
        return before ? highest_bit(before) : N;
    }
    DEVICE_METHOD uint32_t count() const {
        return count_bits(bits[0]) + (N > 64 ? count_bits(bits[N > 64]) : 0);
    }
};

template <> struct Places<32> {
    uint32_t bits;

    DEVICE_METHOD void fill(uint32_t count) { bits = count >= 32 ? 0xFFFFFFFFu : (1u << count) - 1; }
    DEVICE_METHOD void remove(uint32_t place) { bits &= ~(1u << place); }
    DEVICE_METHOD uint32_t next(uint32_t place) const {
        uint32_t behind = bits & (0xFFFFFFFEu << place);
        return behind ? lowest_bit(behind) : 32;
    }
    DEVICE_METHOD uint32_t last(uint32_t place) const {
        uint32_t before = bits & ((1u << place) - 1);
        return before ? highest_bit(before) : 32;
    }
    DEVICE_METHOD uint32_t count() const { return count_bits(bits); }
};

// A thread's columns in shared memory: N places for each of THREADS threads.
template <int N, int THREADS> struct Columns {
    static constexpr uint32_t NONE = N < 32 ? 32 : N;  // What Places answers where there is none.
    static constexpr uint32_t PLACE_BITS = N <= 32 ? 5 : 7;
    alignas(16) uint32_t keys[N * THREADS];
    uint32_t symbols[N * THREADS];
    using Alive = Places<NONE>;

    DEVICE_METHOD uint32_t& key(uint32_t place, uint32_t thread) {
        return keys[(place >> 2) * (4 * THREADS) + 4 * thread + (place & 3)];
    }
    DEVICE_METHOD uint4& four_keys(uint32_t group, uint32_t thread) {
        return *reinterpret_cast<uint4*>(keys + group * (4 * THREADS) + 4 * thread);
    }
    DEVICE_METHOD uint32_t& symbol(uint32_t place, uint32_t thread) {
        return symbols[place * THREADS + thread];
    }
    // A rank as a key.
    DEVICE_METHOD static uint32_t key_of(uint32_t rank, uint32_t place) {
        return rank == NO_RANK ? NO_KEY : rank << PLACE_BITS | place;
    }
};

// The key of two bytes, first in the lower 8 bits, the later of which is place `place + 1`.
template <class C>
DEVICE uint32_t byte_key(const Job& job, const PairCache& cache, uint32_t bytes, uint32_t place,
                         uint32_t length) {
    if (place + 1 >= length) return NO_KEY;
    return C::key_of(rank_of_bytes(job, cache, bytes & 0xFFFF), place);
}

// Fills the columns for `length` bytes (2..N), four places at a time.
template <int N, int THREADS>
DEVICE void begin_piece(const Job& job, const PairCache& cache, Columns<N, THREADS>& columns,
                        uint32_t thread, const uint8_t* text, uint32_t length) {
    using C = Columns<N, THREADS>;
    uint64_t address = reinterpret_cast<uint64_t>(text);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~3ull);
    uint32_t shift = (address & 3) * 8, low = aligned[0];
#pragma unroll 4
    for (uint32_t group = 0; group < N / 4; group++) {
        uint32_t place = 4 * group;
        if (place >= length) break;
        uint32_t high = aligned[group + 1];
        uint32_t bytes = shift_right(low, high, shift), fifth = high >> shift << 8;
        low = high;
        uint4 keys;
        keys.x = byte_key<C>(job, cache, bytes, place, length);
        keys.y = byte_key<C>(job, cache, bytes >> 8, place + 1, length);
        keys.z = byte_key<C>(job, cache, bytes >> 16, place + 2, length);
        keys.w = byte_key<C>(job, cache, bytes >> 24 | (fifth & 0xFF00), place + 3, length);
        columns.four_keys(group, thread) = keys;
        columns.symbol(place, thread) = bytes & 0xFF;
        columns.symbol(place + 1, thread) = bytes >> 8 & 0xFF;
        columns.symbol(place + 2, thread) = bytes >> 16 & 0xFF;
        columns.symbol(place + 3, thread) = bytes >> 24;
    }
}

// The lowest key, NO_KEY where nothing merges.
template <int N, int THREADS>
DEVICE uint32_t lowest_key(Columns<N, THREADS>& columns, uint32_t thread, uint32_t groups) {
    uint32_t best = NO_KEY;
#pragma unroll 4
    for (uint32_t group = 0; group < groups; group++) {
        uint4 four = columns.four_keys(group, thread);
        best = min_of(best, min_of(min_of(four.x, four.y), min_of(four.z, four.w)));
    }
    return best;
}

// The next key of the same rank in the eight places from `place` on or the group behind them; NO_KEY
// where there is none. In runs ("------") it is the next to be merged: nothing before it has so low a
// rank, and the whole column need not be read again.
template <int N, int THREADS>
DEVICE uint32_t near_key(Columns<N, THREADS>& columns, uint32_t thread, uint32_t rank, uint32_t place,
                         uint32_t groups) {
    using C = Columns<N, THREADS>;
    uint32_t low = rank << C::PLACE_BITS | place, high = (rank + 1) << C::PLACE_BITS, best = NO_KEY;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t group = place / 4 + i;
        if (group >= groups) break;
        uint4 four = columns.four_keys(group, thread);
        const uint32_t keys[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (keys[j] >= low && keys[j] < high) best = min_of(best, keys[j]);
    }
    return best;
}

// Encodes `length` bytes (2..N): the places where a token begins; `columns.symbol` there is it.
template <int N, int THREADS>
DEVICE typename Columns<N, THREADS>::Alive merge_piece(const Job& job, const PairCache& cache,
                                                       Columns<N, THREADS>& columns, uint32_t thread,
                                                       const uint8_t* text, uint32_t length) {
    using C = Columns<N, THREADS>;
    begin_piece(job, cache, columns, thread, text, length);
    typename C::Alive alive;
    alive.fill(length);
    uint32_t groups = (length + 3) / 4, best = lowest_key(columns, thread, groups);
    while (best != NO_KEY) {
        uint32_t place = best & ((1u << C::PLACE_BITS) - 1), rank = best >> C::PLACE_BITS;
        uint32_t symbol = FIRST_MERGED + rank;
        uint32_t second = alive.next(place), third = alive.next(second), last = alive.last(place);
        alive.remove(second);
        columns.key(second, thread) = NO_KEY;
        columns.symbol(place, thread) = symbol;
        uint32_t next_rank = NO_RANK, last_rank = NO_RANK;
        if (third != C::NONE) next_rank = rank_of(job, cache, symbol, columns.symbol(third, thread));
        if (last != C::NONE) last_rank = rank_of(job, cache, columns.symbol(last, thread), symbol);
        columns.key(place, thread) = C::key_of(next_rank, place);
        if (last != C::NONE) columns.key(last, thread) = C::key_of(last_rank, last);
        best = NO_KEY;
        if (N > 16 && next_rank > rank && last_rank > rank)
            best = near_key(columns, thread, rank, second + 1, groups);
        if (best == NO_KEY) best = lowest_key(columns, thread, groups);
    }
    return alive;
}
