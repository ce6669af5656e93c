// Finds last tokens near a mixed letter, which merges and is no base (GENA-LM's N).
//
// The tables by which letters decide the last token (dna/windows/suffix_tables.cuh) know bases only. At places fewer
// than k + part_tail bases behind a mixed letter all tokens are tested: each lane tests the bases of one length, or
// one of the tokens with mixed letters, which are few.
//
//     text          A C N C C A G T .          tokens NC NCC, k = 3
//     near              1 1 1 1 1 1            0 to 4 bases behind the N
#pragma once
#include "dna/parts/pair_test.cuh"

namespace warptok::dna {

constexpr uint32_t NEAR_MIXED = (1u << 28) - 1;  // Instead of a list's number.

// Bases at the end of the letters before a place, BEHIND_FAR where more than 63 or all of them are.
DEVICE uint32_t bases_behind(const PartShared& shared, uint32_t place) {
    if (!shared.has_mixed) return BEHIND_FAR;
    uint32_t bits = bits_before(shared.mixed, place + 1);
    if (bits) return 31 - highest_bit(bits);
    bits = place < 32 ? 0 : bits_before(shared.mixed, place - 31);
    return bits ? 63 - highest_bit(bits) : BEHIND_FAR;
}

// The id of up to dna_k bases before a place; NO_TOKEN where they are no token.
DEVICE uint32_t id_of_short(const Job& job, const PartShared& shared, uint32_t place, uint32_t length) {
    uint32_t first = ((1u << 2 * length) - 4) / 3;
    return __ldg(job.dna.dna_spelled + first + (codes_before(shared, place) >> (32 - 2 * length)));
}

// A token with mixed letters is two words: its letters, two bits each, the last one highest; and the id | the number of
// letters << 16 | bits of the mixed ones << 32.
DEVICE uint32_t length_of_mixed(ulonglong2 token) { return token.y >> 16 & 0xFF; }

// Whether the letters before a place end with a token that has mixed letters.
DEVICE bool ends_with_mixed(const PartShared& shared, uint32_t place, ulonglong2 token) {
    uint32_t length = length_of_mixed(token), mixed = bits_before(shared.mixed, place + 1);
    uint64_t differ = (key_before(shared, place).high ^ token.x) >> (64 - 2 * length);
    return !differ && !((mixed ^ static_cast<uint32_t>(token.y >> 32)) >> (32 - length));
}

// The id of a piece with mixed letters.
DEVICE_NOINLINE uint32_t id_of_mixed(const Job& job, const PartShared& shared, uint32_t place, uint32_t length) {
    for (uint64_t i = 0; i < job.parts.num_part_mixed; i++) {
        ulonglong2 token = job.parts.part_mixed[i];
        if (length_of_mixed(token) == length && ends_with_mixed(shared, place, token)) return token.y & 0xFFFF;
    }
    job.host.host_status[STATUS_FAULT] = 1;     // No such token: the tables are wrong.
    return 0;
}

// The token of a number that is tested near a mixed letter: numbers below 32 are the bases of each length, the others
// tokens with mixed letters. NO_TOKEN where the letters do not end with it.
DEVICE uint32_t near_token(const Job& job, const PartShared& shared, uint32_t place, uint64_t number) {
    if (number < 32) {
        uint32_t length = static_cast<uint32_t>(number) + 1;
        if (length > bases_behind(shared, place) || length > job.dna.dna_k) return NO_TOKEN;
        return id_of_short(job, shared, place, length);
    }
    if (number - 32 >= job.parts.num_part_mixed) return NO_TOKEN;
    ulonglong2 token = job.parts.part_mixed[number - 32];
    return ends_with_mixed(shared, place, token) ? token.y & 0xFFFF : NO_TOKEN;
}

// Finds the last token of a place near a mixed letter: exactly one token may end there. False where it waits.
DEVICE_NOINLINE bool resolve_near_mixed(const Job& job, PartShared& shared, uint32_t first, uint32_t place) {
    bool waits = false;
    for (uint64_t number = threadIdx.x & 31; number - (threadIdx.x & 31) < 32 + job.parts.num_part_mixed;
         number += 32) {
        uint32_t token = near_token(job, shared, place, number), answer = MAY_NOT;
        uint64_t record = token == NO_TOKEN ? 0 : job.dna.dna_tokens[token];
        uint32_t length = length_of(record);
        if (token != NO_TOKEN && !has_certain(shared, place, length))
            answer = length > place ? NEVER : may_begin(job, shared, first, place - length, right_class(record));
        waits |= __any_sync(ALL_LANES, answer == WAITS);
        bool is_found = __any_sync(ALL_LANES, answer == MAY);
        if (answer == MAY) note_last(shared, first, place, left_class(record), length);
        if (is_found) return true;
    }
    if (!waits && threadIdx.x % 32 == 0) length_at(shared, place) = NEVER_KNOWN;
    return !waits;
}

}  // namespace warptok::dna
