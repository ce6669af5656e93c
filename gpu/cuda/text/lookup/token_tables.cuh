// Finds the token that a piece is, by three hash tables: of tokens of 1 .. 12 bytes (entries of 16 bytes, read by one
// load), of tokens of 13 .. 28 bytes (entries of 32 bytes), and of longer ones (ids, whose bytes are compared in
// place).
//
// A token is in a table if encoding its bytes gives its id alone: with `ignore_merges` every token, without it those
// that merges reach.
//
// Invariant: a token is found by comparing all of its bytes; no id rests on a hash.
#pragma once
#include "common/hash.cuh"
#include "common/job.cuh"

namespace warptok::text {

constexpr uint32_t MAX_SHORT = 12;
constexpr uint32_t MAX_LONG = 28;
constexpr uint32_t LISTED_IDS = 1u << 27;  // What is found is no id: job.text.listed_ids has several.

// Reads `length` bytes as words, zeros behind them; the aligned words that hold them are read.
template <int WORDS>
DEVICE void read_words(const uint8_t* text, uint32_t length, uint32_t* words) {
    uint64_t address = reinterpret_cast<uint64_t>(text);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~3ull);
    uint32_t shift = (address & 3) * 8;
    uint32_t low = aligned[0];
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        uint32_t high = aligned[i + 1];
        uint32_t word = shift_right(low, high, shift);
        int rest = static_cast<int>(length) - 4 * i;
        if (rest < 4) word = rest <= 0 ? 0 : word & (0xFFFFFFFFu >> (32 - 8 * rest));
        words[i] = word;
        low = high;
    }
}

DEVICE bool same_words(const uint32_t* entry, const uint32_t* words, int count) {
    uint32_t difference = 0;
#pragma unroll
    for (int i = 0; i < count; i++) difference |= entry[i] ^ words[i];
    return difference == 0;
}

// Whether find_short found a list of ids instead of an id.
DEVICE bool are_listed(uint32_t found) { return found >> 27 == LISTED_IDS >> 27; }

// A piece of 1 .. 12 bytes while it is looked up.
struct ShortToken {
    uint32_t words[3], length;             // Its bytes, zeros behind them.
    uint32_t place;                        // The bucket that is compared next,
    uint4 entry;                           // and its entry, which may still be in flight.
};

DEVICE uint4 short_entry(const Job& job, uint32_t place) {
    return __ldg(reinterpret_cast<const uint4*>(job.text.short_tokens + place));
}

// Starts to look up a piece: its entry is in flight then.
DEVICE ShortToken start_lookup(const Job& job, const uint8_t* text, uint32_t length) {
    ShortToken token;
    read_words<3>(text, length, token.words);
    token.length = length;
    token.place = bucket_of(hash_short(token.words, length, job.tokens.seed), job.text.short_shift);
    token.entry = short_entry(job, token.place);
    return token;
}

// The id of a piece whose look-up is started, NO_ID where it is no token. For a character that is no token it is
// LISTED_IDS | where its ids are listed, if they are.
DEVICE uint32_t find_short(const Job& job, ShortToken token) {
    const uint32_t* words = token.words;
    for (;;) {
        uint4 entry = token.entry;
        if (entry.x == words[0] && entry.y == words[1] && entry.z == words[2] && entry.w >> 28 == token.length)
            return entry.w & 0xFFFFFFF;
        if (entry.w == 0) return NO_ID;
        token.place = (token.place + 1) & (0xFFFFFFFFu >> job.text.short_shift);
        token.entry = short_entry(job, token.place);
    }
}

// The id of a piece of 13 .. 28 bytes, seven words.
DEVICE uint32_t find_long(const Job& job, const uint32_t* words, uint32_t length) {
    uint32_t place = bucket_of(hash_long(words, length, job.tokens.seed), job.text.long_shift);
    for (;;) {
        const LongEntry& entry = job.text.long_tokens[place];
        if (entry.meta == 0) return NO_ID;
        if (entry.meta >> 27 == length && same_words(entry.bytes, words, 7))
            return entry.meta & 0x7FFFFFF;
        place = (place + 1) & (0xFFFFFFFFu >> job.text.long_shift);
    }
}

// The first four bytes of a text of `length` bytes, zeros behind them.
DEVICE uint32_t first_word(const uint8_t* text, uint32_t length) {
    uint32_t word;
    read_words<1>(text, length, &word);
    return word;
}

// The id of a piece of 29 bytes or more.
DEVICE uint32_t find_any(const Job& job, const uint8_t* text, uint32_t length) {
    if (length > job.tokens.max_token) return NO_ID;
    uint32_t hash = job.tokens.seed ^ length;
    for (uint32_t i = 0; i < length; i += 4) hash = hash_next(hash, first_word(text + i, length - i));
    uint32_t mask = 0xFFFFFFFFu >> job.text.token_shift;
    for (uint32_t place = bucket_of(hash, job.text.token_shift);; place = (place + 1) & mask) {
        uint32_t id = job.text.token_places[place];
        if (id == NO_ID) return NO_ID;
        uint32_t own = id & ((1u << 26) - 1), begin = job.tokens.token_begins[own], i = 0;
        if (job.tokens.token_begins[own + 1] - begin != length) continue;
        const uint8_t* token = job.tokens.token_bytes + begin;
        while (i < length && first_word(token + i, length - i) == first_word(text + i, length - i)) i += 4;
        if (i >= length) return id;
    }
}

// The id of a piece, NO_ID where it is no token.
DEVICE uint32_t find_token(const Job& job, const uint8_t* text, uint32_t length) {
    uint32_t words[7];
    if (length <= MAX_SHORT) {
        uint32_t found = find_short(job, start_lookup(job, text, length));
        return are_listed(found) ? NO_ID : found;
    }
    if (length > MAX_LONG) return find_any(job, text, length);
    read_words<7>(text, length, words);
    return find_long(job, words, length);
}

}  // namespace warptok::text
