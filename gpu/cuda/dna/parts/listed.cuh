// Finds the last tokens of places where the latest letters leave more than two tokens. These tokens are listed, and the
// lanes of a warp test them together.
//
//     list of "ca"     aca  ca  a      lanes 0, 1, 2: exactly one may follow the last token where it begins
#pragma once
#include "dna/parts/mixed_letters.cuh"

namespace warptok::dna {

constexpr uint32_t MOST_WAITING = 4;       // Places of a warp that wait at a time; those behind them mostly wait, too.

// Where letters repeat, neighbouring places are listed, and each waits for one in front of it. A part with many such
// places in a round fails at once, because waiting takes longer than encoding the batch by the kernels of dna/.
constexpr uint32_t MANY_LISTED = 5;        // Listed places among 32 neighbours from which on these are dense.
constexpr uint32_t MOST_DENSE = 48;        // Dense neighbourhoods in a round, of 128.

// Whether a listed token may end at a place: MAY_NOT, MAY, WAITS or NEVER.
DEVICE uint32_t test_token(const Job& job, PartShared& shared, uint32_t first, uint32_t place, uint2 token) {
    uint32_t length = token.y & 0xFF, key = token.y >> 8;
    if (has_certain(shared, place, length) || length > bases_behind(shared, place)) return MAY_NOT;
    if (length > place) return NEVER;      // Nothing is known of what is in front of the view.
    if (key && !begin_alike(key_before(shared, place), job.dna.ending_keys[key - 1], length)) return MAY_NOT;
    return may_begin(job, shared, first, place - length, token.x >> 16);
}

// Finds the last token of a place where tokens are listed; the lanes of a warp test 32 of them at a time. Returns false
// if the place waits. Exactly one token of the list may end there. So a token that may is right, whatever other tests
// wait for, and the last one of the list is right if no other may. A list has at least two tokens, so the lanes vote,
// and all have read the place's classes before its last token is noted.
DEVICE_NOINLINE bool resolve_listed(const Job& job, PartShared& shared, uint32_t first, uint32_t place) {
    uint32_t number = classes_at(shared, first, place) & ~(IS_LISTED | IS_AT_BORDER), lane = threadIdx.x & 31;
    if (number == NEAR_MIXED) return resolve_near_mixed(job, shared, first, place);
    uint32_t item = __ldg(job.dna.ending_begins + number), last = __ldg(job.dna.ending_begins + number + 1) - 1;
    bool waits = false, is_never = false;
    for (; item < last; item += 32) {
        uint2 token = {0, 0};
        uint32_t answer = MAY_NOT;
        if (item + lane < last) {
            token = __ldg(job.dna.ending_listed + item + lane);
            answer = test_token(job, shared, first, place, token);
        }
        bool is_found = __any_sync(ALL_LANES, answer == MAY);
        if (answer == MAY) note_last(shared, first, place, token.x & 0xFFFF, token.y & 0xFF);
        if (is_found) return true;
        waits |= __any_sync(ALL_LANES, answer == WAITS);
        is_never |= __any_sync(ALL_LANES, answer == NEVER);
    }
    if (waits) return false;
    uint2 token = __ldg(job.dna.ending_listed + last);
    if (lane == 0 && is_never) length_at(shared, place) = NEVER_KNOWN;
    if (lane == 0 && !is_never) note_last(shared, first, place, token.x & 0xFFFF, token.y & 0xFF);
    return true;
}

// The listed places of a round that a warp resolves: one of each 32 neighbours, so that neighbours, which may wait for
// each other, are resolved at the same time, the first ones first.
struct ListedPlaces {
    uint32_t number;                       // The number of the warp, and of its place among 32.
    uint32_t dense;                        // Neighbourhoods of 32 places of which MANY_LISTED or more are listed.
    uint32_t bits[LETTERS_A_THREAD];       // Bits of every 32nd place: it is not resolved yet.

    // All lanes call it.
    DEVICE_METHOD ListedPlaces(const PartShared& shared, uint32_t number) : number(number), dense(0) {
#pragma unroll
        for (uint32_t group = 0; group < LETTERS_A_THREAD; group++) {
            uint32_t neighbours = shared.listed[32 * group + (threadIdx.x & 31)];
            bits[group] = __ballot_sync(ALL_LANES, neighbours >> number & 1);
            dense += count_bits(__ballot_sync(ALL_LANES, count_bits(neighbours) >= MANY_LISTED));
        }
    }

    DEVICE_METHOD uint32_t any() const {
        uint32_t remaining = 0;
#pragma unroll
        for (uint32_t group = 0; group < LETTERS_A_THREAD; group++) remaining |= bits[group];
        return remaining;
    }

    // Resolves one place after the other, until MOST_WAITING wait.
    DEVICE_METHOD void resolve(const Job& job, PartShared& shared, uint32_t first) {
        uint32_t waiting = 0;
#pragma unroll
        for (uint32_t group = 0; group < LETTERS_A_THREAD; group++) {
            for (uint32_t rest = bits[group]; rest && waiting < MOST_WAITING; rest &= rest - 1) {
                uint32_t place = first + 1 + PART_THREADS * group + 32 * lowest_bit(rest) + number;
                if (resolve_listed(job, shared, first, place)) bits[group] &= ~(rest & (0 - rest));
                else waiting++;
            }
        }
    }
};
static_assert(PART_THREADS == 32 * 32, "a warp for each of 32 neighbours");

}  // namespace warptok::dna
