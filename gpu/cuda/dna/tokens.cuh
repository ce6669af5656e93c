// Tokens of a vocabulary of letters: the longest one at a place, shorter ones, pairs.
//
// The tokens at a place of a text are the longest one and its prefixes that are tokens: with the tokens A, AC and
// ACGT these are ACGT, AC and A. The record of a token names the longest of its proper prefixes. It is found by the
// token's id:
//
//     length | id of the longest prefix << 8 | left class << 24 | right class << 40 | mixed << 56
//
// The first k letters index `longest`. Its entry names the token or, where tokens of more than k letters begin with
// these k, a number. With this number the next four letters index `longer`, which names the token or says that there
// are still longer ones. The tokens of a number are a sorted range: the longest token at the place is the last one of
// the range that does not sort behind the text, or one of its prefixes.
#pragma once
#include "dna/packed_text.cuh"

namespace warptok::dna {

constexpr uint32_t LONG_TOKENS = 0x8000;   // In `longest`: the rest is the number of a range.
constexpr uint32_t MAX_LETTERS = 64;       // Of a token.
constexpr uint32_t NEXT_LETTERS = 4;       // That index `longer`.
constexpr uint32_t PREFIX_SHIFT = 8;
constexpr uint32_t LEFT_SHIFT = 24;
constexpr uint32_t RIGHT_SHIFT = 40;
constexpr uint32_t MIXED_SHIFT = 56;

DEVICE uint32_t length_of(uint64_t record) { return record & 0xFF; }
DEVICE uint32_t shorter_of(uint64_t record) { return record >> PREFIX_SHIFT & 0xFFFF; }
DEVICE uint32_t left_class(uint64_t record) { return record >> LEFT_SHIFT & 0xFFFF; }
DEVICE uint32_t right_class(uint64_t record) { return record >> RIGHT_SHIFT & 0xFFFF; }
DEVICE bool is_mixed(uint64_t record) { return record >> MIXED_SHIFT & 1; }

// The entry of a table for the first k of sixteen letters.
DEVICE uint32_t first_letters(const Job& job, uint32_t codes) {
    return codes & static_cast<uint32_t>((1ull << 2 * job.dna.dna_k) - 1);
}

// Whether a token of a right class may follow one of a left class.
DEVICE bool may_follow(const Job& job, uint32_t left, uint32_t right) {
    uint32_t bits = __ldg(job.dna.dna_pairs + left * static_cast<uint32_t>(job.dna.dna_pair_words) + right / 32);
    return bits >> right % 32 & 1;
}

DEVICE uint64_t reversed_bits(uint64_t bits) {
#ifdef __CUDACC__
    return __brevll(bits);
#else
    uint64_t reversed = 0;
    for (uint32_t i = 0; i < 64; i++) reversed |= (bits >> i & 1) << (63 - i);
    return reversed;
#endif
}

// Sixty-four letters, in the form of `long_keys`: the first one in the highest bits.
struct LongKey {
    uint64_t high, low;
};

DEVICE LongKey key_at(const Job& job, uint64_t place) {
    uint32_t codes[4];
    for (uint32_t i = 0; i < 4; i++) codes[i] = letters_from(job, place + 16 * i).codes;
    return {reversed_bits(static_cast<uint64_t>(codes[1]) << 32 | codes[0]),
            reversed_bits(static_cast<uint64_t>(codes[3]) << 32 | codes[2])};
}

// Whether the first `length` letters of two keys are the same; `length` is 1 to 64.
DEVICE bool begin_alike(LongKey a, ulonglong2 b, uint32_t length) {
    uint64_t high = a.high ^ b.x, low = a.low ^ b.y;
    if (length <= 32) return high >> (64 - 2 * length) == 0;
    return high == 0 && low >> (128 - 2 * length) == 0;
}

// The longest token of bases at a place where tokens of more than k letters begin.
DEVICE uint32_t longest_of_range(const Job& job, uint64_t place, uint32_t number) {
    uint4 range = job.dna.long_ranges[number];
    LongKey text = key_at(job, place);
    uint32_t low = range.x, high = range.y;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        ulonglong2 key = job.dna.long_keys[middle];
        bool is_behind = key.x > text.high || (key.x == text.high && key.y > text.low);
        if (is_behind) high = middle;
        else low = middle + 1;
    }
    if (low == range.x) return range.z;
    ulonglong2 key = job.dna.long_keys[low - 1];
    uint32_t token = job.dna.long_ids[low - 1] & 0xFFFF;
    while (token != NO_TOKEN) {            // Tokens of at most k letters are prefixes of the text.
        uint32_t length = length_of(job.dna.dna_tokens[token]);
        if (length <= job.dna.dna_k || begin_alike(text, key, length)) break;
        token = shorter_of(job.dna.dna_tokens[token]);
    }
    return token;
}

// Whether the text goes on with the first `length` bytes of a mixed token.
DEVICE bool goes_on_with(const uint8_t* text, const uint8_t* token, uint32_t length) {
    for (uint32_t i = 0; i < length; i++)
        if (text[i] != token[i]) return false;
    return true;
}

// The longest token with a mixed letter at a place, NO_TOKEN where there is none.
DEVICE uint32_t longest_mixed(const Job& job, uint64_t place) {
    const uint8_t* text = job.batch.text + place;
    uint32_t low = 0, high = job.dna.num_mixed;
    while (low < high) {                   // Tokens before `low` do not sort behind the text.
        uint32_t middle = (low + high) / 2, i = 0;
        const uint8_t* token = job.dna.mixed_bytes + middle * MAX_LETTERS;
        while (i < MAX_LETTERS - 1 && token[i] == text[i]) i++;
        if (token[i] > text[i]) high = middle;
        else low = middle + 1;
    }
    if (low == 0) return NO_TOKEN;
    const uint8_t* spelled = job.dna.mixed_bytes + (low - 1) * MAX_LETTERS;
    uint32_t token = job.dna.mixed_ids[low - 1] & 0xFFFF;
    while (token != NO_TOKEN && is_mixed(job.dna.dna_tokens[token])) {
        uint64_t record = job.dna.dna_tokens[token];
        if (goes_on_with(text, spelled, length_of(record))) return token;
        token = shorter_of(record);
    }
    return NO_TOKEN;
}

// A token to try, and the most letters of a token at its place.
struct Candidate {
    uint32_t token, most;
};

// Whether another letter than a base may be in a token that begins at a place.
DEVICE bool is_near_other(const Job& job, const Ahead& ahead, uint64_t place) {
    return job.dna.num_mixed &&
           (bases_ahead(ahead) <= job.dna.mixed_reach || (ahead.stops & 1 && !bit_of(job.dna.certain, place)) ||
            class_of(job, place) == LETTER_MIXED);
}

// The number of bases from a place on, as far as a token may reach.
DEVICE uint32_t bases_at(const Job& job, const Ahead& ahead, uint64_t place) {
    uint32_t bases = bases_ahead(ahead);
    if (bases <= 16) return bases;
    uint32_t most = to_certain(job, place);
    if (!job.dna.num_mixed) return most;
    for (bases = 16; bases < most && class_of(job, place + bases) != LETTER_MIXED;) bases++;
    return bases;
}

// The longest token at a place, in all cases; NO_TOKEN where the letter itself is none.
DEVICE Candidate longest_at(const Job& job, uint64_t place) {
    Ahead ahead = letters_from(job, place);
    if (is_near_other(job, ahead, place)) {
        uint32_t token = longest_mixed(job, place);
        if (token != NO_TOKEN) return {token, to_certain(job, place)};
        if (class_of(job, place) == LETTER_MIXED) return {NO_TOKEN, 0};
    }
    uint32_t entry = __ldg(job.dna.dna_longest + first_letters(job, ahead.codes));
    if (entry & LONG_TOKENS && entry != NO_TOKEN)
        return {longest_of_range(job, place, entry & (LONG_TOKENS - 1)), bases_at(job, ahead, place)};
    return {entry, bases_ahead(ahead)};
}

// The token that the letters `begin` to `end - 1` spell.
DEVICE uint32_t token_of(const Job& job, uint64_t begin, uint64_t end) {
    Ahead ahead = letters_from(job, begin);
    uint32_t length = static_cast<uint32_t>(end - begin);
    if (length <= job.dna.dna_k && length <= bases_ahead(ahead) && !is_near_other(job, ahead, begin)) {
        uint32_t all = (1u << 2 * length) - 1;
        return __ldg(job.dna.dna_spelled + (all + 1 - 4) / 3 + (ahead.codes & all));
    }
    uint32_t token = longest_at(job, begin).token;
    while (token != NO_TOKEN && length_of(job.dna.dna_tokens[token]) != length)
        token = shorter_of(job.dna.dna_tokens[token]);
    return token;
}

}  // namespace warptok::dna
