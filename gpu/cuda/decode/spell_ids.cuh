// Decodes ids to the bytes that they stand for.
//
// A block claims the next tile of ids, adds up their bytes, learns from the tiles before it where these begin
// (common/lookback_scan.cuh), and writes them, 16 a thread. If an id has no bytes its row is at fault, and a second
// pass writes all rows but those.
//
// An entry of the token table is four words. Tokens of at most 12 bytes lie in the entry itself, with zeros behind
// them:
//
//     flags | length, bytes 0-3, bytes 4-7, bytes 8-11
//     flags | length, place in token_bytes, 0, 0           a longer token
//
// Example, tokens of 2, 0, 3 and 1 bytes: they begin at 0 2 2 5 of the tile's bytes, of which there are 6.
#pragma once
#include "batch/rows.cuh"
#include "common/lookback_scan.cuh"

constexpr uint32_t DECODE_TILE = 1024;     // Ids of a tile.
constexpr uint32_t DECODE_ITEMS = 4;       // Ids of a thread.
static_assert(DECODE_TILE == DECODE_ITEMS * BLOCK, "each id has a thread");
constexpr uint32_t NO_BYTES = 1u << 31;    // Flags of an entry: the id has no bytes;
constexpr uint32_t IS_SPECIAL = 1u << 30;  // skip_special leaves it out.
constexpr uint32_t LENGTH_BITS = IS_SPECIAL - 1;
constexpr uint32_t MAX_INLINE = 12;        // Bytes of the longest token that lies in its entry.
constexpr uint32_t STAGE_BYTES = 8192;     // Bytes of a tile that are joined in shared memory, at most.
constexpr uint32_t MAX_STAGED = 64;        // Bytes of the longest token that one thread puts there.

struct SpellShared {
    union {
        uint32_t staged[STAGE_BYTES / 4 + 12];  // The tile's bytes, behind 16 others.
        uint4 tokens[DECODE_TILE];
    };
    alignas(16) uint32_t begins[DECODE_TILE + 4];  // Where each token begins in the tile's bytes.
    uint32_t scratch[BLOCK / 32 + 1];
    uint32_t tile;                         // The tile that the block has claimed.
    uint64_t before, first_row;            // Bytes before the tile; the first row that does not begin before it.
};

// The tokens of a thread's ids.
struct ThreadTokens {
    uint4 tokens[DECODE_ITEMS];            // Entries without flags; length 0 where an id has no bytes.
    uint32_t bytes;                        // The sum of their lengths.
    bool any_long;                         // One is longer than MAX_STAGED.
};

DEVICE uint64_t decode_tiles(const Job& job) { return job.decode.num_decode_ids / DECODE_TILE + 1; }

// An id of the batch; a negative one is beyond every vocabulary.
DEVICE uint64_t decode_id(const Job& job, uint64_t place) {
    if (job.decode.decode_wide) return static_cast<const uint64_t*>(job.decode.decode_ids)[place];
    return static_cast<const uint32_t*>(job.decode.decode_ids)[place];
}

// A thread's ids, 0 behind the end.
DEVICE void load_ids(const Job& job, uint64_t place, uint64_t* ids) {
    if (place + DECODE_ITEMS > job.decode.num_decode_ids) {
        for (uint32_t i = 0; i < DECODE_ITEMS; i++)
            ids[i] = place + i < job.decode.num_decode_ids ? decode_id(job, place + i) : 0;
    } else if (job.decode.decode_wide) {
        const ulonglong2* from = static_cast<const ulonglong2*>(job.decode.decode_ids) + place / 2;
        ulonglong2 low = from[0], high = from[1];
        ids[0] = low.x, ids[1] = low.y, ids[2] = high.x, ids[3] = high.y;
    } else {
        uint4 four = static_cast<const uint4*>(job.decode.decode_ids)[place / 4];
        ids[0] = four.x, ids[1] = four.y, ids[2] = four.z, ids[3] = four.w;
    }
}

DEVICE uint64_t row_of_id(const Job& job, uint64_t place) {
    return last_not_behind(job.decode.decode_offsets, job.batch.num_rows, place);
}

DEVICE uint32_t length_of_token(const uint4& token) { return token.x & LENGTH_BITS; }

// The first word of an id's entry in the token table; NO_BYTES beyond its end.
DEVICE uint32_t token_meta(const Job& job, uint64_t id) {
    return id < job.tokens.num_ids ? __ldg(job.decode.token_table + 4 * id) : NO_BYTES;
}

// FIRST: all rows. AGAIN: all but those in which the first pass met an id without bytes.
enum class SpellPass { FIRST, AGAIN };
// APART: tokens share no bytes. OVERLAPPING: a k-mer may share letters with the one before it.
enum class SpelledTokens { APART, OVERLAPPING };

// The token of an id, of length 0 where the id or its row has no bytes; notes ids that mean nothing.
template <SpellPass PASS>
DEVICE uint4 shown_token(const Job& job, uint64_t place, uint64_t id) {
    uint4 token = {NO_BYTES, 0, 0, 0};
    if (id < job.tokens.num_ids) token = __ldg(reinterpret_cast<const uint4*>(job.decode.token_table) + id);
    if (PASS == SpellPass::AGAIN && job.rows.row_errors[row_of_id(job, place)] != NO_BYTE) return {0, 0, 0, 0};
    if (token.x & NO_BYTES) {
        note_fault(job.rows.row_errors, row_of_id(job, place), static_cast<uint32_t>(place));
        job.decode.decode_faults[0] = 1;
    }
    bool hidden = job.decode.skip_special && (token.x & IS_SPECIAL);
    token.x = hidden ? 0 : token.x & LENGTH_BITS;
    return token;
}

// Whether an id is a k-mer, and which number it has.
DEVICE bool is_kmer(const Job& job, uint64_t id, uint32_t& number) {
    number = static_cast<uint32_t>(id - job.kmers.kmer_first_id);
    return id - job.kmers.kmer_first_id < job.kmers.kmer_count;
}

// Whether the k-mer at a place begins with the letters that the k-mer before it in its row ends with. Special tokens
// that are left out may stand between the two; an unknown k-mer may not.
DEVICE bool overlaps_kmer(const Job& job, uint64_t place, uint64_t row_begin, uint32_t number) {
    while (place-- > row_begin) {
        uint64_t id = decode_id(job, place);
        uint32_t before;
        if (is_kmer(job, id, before))
            return before % static_cast<uint32_t>(job.kmers.kmer_of_shared) ==
                   number / static_cast<uint32_t>(job.kmers.kmer_of_stride);
        bool hidden = job.decode.skip_special && (token_meta(job, id) & IS_SPECIAL);
        if (!hidden || id == job.kmers.kmer_unknown_id) return false;
    }
    return false;
}

// A token of at most 12 bytes without its first `count` bytes.
DEVICE uint4 without_bytes(const uint4& token, uint32_t count) {
    uint32_t words[6] = {token.y, token.z, token.w, 0, 0, 0}, shift = count % 4 * 8;
    uint4 rest = {token.x - count, 0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < 3; i++)
        if (count / 4 == i)
            rest = {rest.x, shift_right(words[i], words[i + 1], shift),
                    shift_right(words[i + 1], words[i + 2], shift),
                    shift_right(words[i + 2], words[i + 3], shift)};
    return rest;
}

// Removes from a thread's k-mers the letters that they share with the k-mers before them.
DEVICE void share_letters(const Job& job, uint64_t place, const uint64_t* ids, uint4* tokens) {
    if (place >= job.decode.num_decode_ids) return;
    uint64_t row = row_of_id(job, place);
#pragma unroll
    for (uint32_t i = 0; i < DECODE_ITEMS; i++) {
        uint32_t number;
        if (place + i >= job.decode.num_decode_ids) continue;
        row = row_from(job.decode.decode_offsets, job.batch.num_rows, row, place + i);
        if (length_of_token(tokens[i]) < job.kmers.kmer_shared || !is_kmer(job, ids[i], number)) continue;
        if (overlaps_kmer(job, place + i, job.decode.decode_offsets[row], number))
            tokens[i] = without_bytes(tokens[i], job.kmers.kmer_shared);
    }
}

template <SpellPass PASS, SpelledTokens TOKENS>
DEVICE void load_tokens(const Job& job, uint64_t place, ThreadTokens& mine) {
    uint64_t ids[DECODE_ITEMS];
    load_ids(job, place, ids);
    mine.bytes = 0;
    mine.any_long = false;
#pragma unroll
    for (uint32_t i = 0; i < DECODE_ITEMS; i++) {
        mine.tokens[i] = {0, 0, 0, 0};
        if (place + i < job.decode.num_decode_ids)
            mine.tokens[i] = shown_token<PASS>(job, place + i, ids[i]);
    }
    if constexpr (TOKENS == SpelledTokens::OVERLAPPING) share_letters(job, place, ids, mine.tokens);
#pragma unroll
    for (uint32_t i = 0; i < DECODE_ITEMS; i++) {
        mine.bytes += length_of_token(mine.tokens[i]);
        mine.any_long |= length_of_token(mine.tokens[i]) > MAX_STAGED;
    }
}

// Eight bytes of a token from `skip` on, anything behind its end.
DEVICE uint64_t eight_bytes(const Job& job, const uint4& token, uint32_t skip) {
    uint32_t words[3] = {token.y, token.z, token.w}, shift = skip % 4 * 8, first = skip / 4;
    if (length_of_token(token) > MAX_INLINE) {
        uint32_t place = token.y + skip;
        const uint32_t* from = reinterpret_cast<const uint32_t*>(job.tokens.token_bytes) + place / 4;
        for (uint32_t i = 0; i < 3; i++) words[i] = __ldg(from + i);
        shift = place % 4 * 8;
        first = 0;
    }
    uint32_t low = first == 0 ? words[0] : first == 1 ? words[1] : words[2];
    uint32_t middle = first == 0 ? words[1] : first == 1 ? words[2] : 0;
    uint32_t high = first == 0 ? words[2] : 0;
    uint64_t upper = shift_right(middle, high, shift);
    return upper << 32 | shift_right(low, middle, shift);
}

// Eight bytes of a token from `skip` on, zeros behind its end.
DEVICE uint64_t masked_bytes(const Job& job, const uint4& token, uint32_t skip) {
    uint32_t rest = min_of(8, length_of_token(token) - skip);
    return eight_bytes(job, token, skip) & ~0ull >> (64 - 8 * rest);
}

// Puts a token's bytes into the tile's in shared memory, which are zeros before.
DEVICE void stage_token(const Job& job, SpellShared& shared, const uint4& token, uint32_t begin) {
    for (uint32_t done = 0; done < length_of_token(token); done += 8) {
        uint64_t bytes = masked_bytes(job, token, done);
        uint32_t place = 16 + begin + done, shift = place % 4 * 8;
        uint32_t* to = shared.staged + place / 4;
        uint64_t low = bytes << shift;
        uint32_t high = shift ? static_cast<uint32_t>(bytes >> (64 - shift)) : 0;
        if (static_cast<uint32_t>(low)) atomicOr(to, static_cast<uint32_t>(low));
        if (low >> 32) atomicOr(to + 1, static_cast<uint32_t>(low >> 32));
        if (high) atomicOr(to + 2, high);
    }
}

// The bytes from .. from + 15 of the tile's in shared memory; from may be -15 .. -1.
DEVICE uint4 staged_bytes(const SpellShared& shared, int32_t from) {
    const uint32_t* words = shared.staged + (16 + from) / 4;
    uint32_t shift = (16 + from) % 4 * 8;
    return {shift_right(words[0], words[1], shift), shift_right(words[1], words[2], shift),
            shift_right(words[2], words[3], shift), shift_right(words[3], words[4], shift)};
}

// The token that a byte of the tile belongs to: the last one that does not begin behind it.
DEVICE uint32_t token_at(const SpellShared& shared, uint32_t place) {
    uint32_t number = 0;
    for (uint32_t step = DECODE_TILE / 2; step; step /= 2)
        if (shared.begins[number + step] <= place) number += step;
    return number;
}

// The same from the tokens themselves; only bytes before `end` are read.
DEVICE uint4 spelled_bytes(const Job& job, const SpellShared& shared, int32_t from, uint32_t end) {
    uint32_t place = from < 0 ? 0 : from, number = token_at(shared, place);
    uint64_t low = 0, high = 0;
    for (end = min_of(end, from + 16); place < end; number++) {
        uint32_t begin = shared.begins[number], token_end = min_of(shared.begins[number + 1], end);
        while (place < token_end) {
            uint64_t bytes = masked_bytes(job, shared.tokens[number], place - begin);
            uint32_t at = place - from;
            if (at < 8) low |= bytes << 8 * at;
            if (at >= 8) high |= bytes << 8 * (at - 8);
            else if (at) high |= bytes >> (64 - 8 * at);
            place += 8;
        }
        place = token_end;
    }
    return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
            static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
}
