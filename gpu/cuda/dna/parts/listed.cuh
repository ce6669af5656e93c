// Places where letters leave more than two tokens, which are listed: a warp asks for all of them at a time.
#pragma once
#include "dna/parts/mixed_letters.cuh"

namespace warptok::dna {

constexpr uint32_t MOST_WAITING = 4;       // Places of a warp that wait at a time; behind them most do.

// Where letters repeat, neighbours are listed, each of which waits for one of those in front. A batch with many such
// places in a round is left to other kernels at once: to wait for them would take longer.
constexpr uint32_t MANY_LISTED = 5;        // Of 32 neighbours: these are dense.
constexpr uint32_t MOST_DENSE = 48;        // Of the 128 such in a round.

// Asks for one of the tokens that are listed.
DEVICE uint32_t ask_token(const Job& job, PartShared& shared, uint32_t first, uint32_t place, uint2 token) {
    uint32_t length = token.y & 0xFF, key = token.y >> 8;
    if (has_certain(shared, place, length) || length > bases_behind(shared, place)) return MAY_NOT;
    if (length > place) return NEVER;      // Nothing is known of what is in front of the view.
    if (key && !begin_alike(key_before(shared, place), job.dna.ending_keys[key - 1], length)) return MAY_NOT;
    return ask(job, shared, first, place - length, token.x >> 16);
}

// Asks for a place where tokens are listed, the lanes of a warp for 32 of them at a time. One that may end there is
// right, whatever others wait for, as exactly one may; the last one is if no other is. False where it waits. A list has
// two tokens or more, so that the lanes vote, and all have read the place's classes, before its last token is noted.
DEVICE_NOINLINE bool ask_listed(const Job& job, PartShared& shared, uint32_t first, uint32_t place) {
    uint32_t number = classes_at(shared, first, place) & ~(IS_LISTED | IS_AT_BORDER), lane = threadIdx.x & 31;
    if (number == NEAR_MIXED) return ask_near_mixed(job, shared, first, place);
    uint32_t item = __ldg(job.dna.ending_begins + number), last = __ldg(job.dna.ending_begins + number + 1) - 1;
    bool waits = false, is_never = false;
    for (; item < last; item += 32) {
        uint2 token = {0, 0};
        uint32_t answer = MAY_NOT;
        if (item + lane < last) {
            token = __ldg(job.dna.ending_listed + item + lane);
            answer = ask_token(job, shared, first, place, token);
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

// The places of a round where tokens are listed, of which a warp takes one of 32 neighbours. Where letters repeat they
// wait for those some letters in front, so that neighbours are asked for at a time, and the first ones first.
struct ListedPlaces {
    uint32_t number;                       // Of the warp.
    uint32_t dense;                        // How often many of 32 neighbours are listed.
    uint32_t bits[LETTERS_A_THREAD];       // Of every 32nd place, which of them are left.

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
        uint32_t left = 0;
#pragma unroll
        for (uint32_t group = 0; group < LETTERS_A_THREAD; group++) left |= bits[group];
        return left;
    }

    // Asks for one after the other, until some wait.
    DEVICE_METHOD void ask(const Job& job, PartShared& shared, uint32_t first) {
        uint32_t waiting = 0;
#pragma unroll
        for (uint32_t group = 0; group < LETTERS_A_THREAD; group++) {
            for (uint32_t left = bits[group]; left && waiting < MOST_WAITING; left &= left - 1) {
                uint32_t place = first + 1 + BASES_THREADS * group + 32 * lowest_bit(left) + number;
                if (ask_listed(job, shared, first, place)) bits[group] &= ~(left & (0 - left));
                else waiting++;
            }
        }
    }
};
static_assert(BASES_THREADS == 32 * 32, "a warp for each of 32 neighbours");

}  // namespace warptok::dna
