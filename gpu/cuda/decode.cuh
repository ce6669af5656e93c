// Ids back to the bytes they stand for.
//
//     size    the bytes before every tile of ids; rows with an id that has no bytes are noted
//     resize  once more where there are such rows: they have no bytes at all
//     spell   the bytes, 16 a thread, whatever the lengths of the tokens that these come from
//
// An entry of the token table holds the bytes of a token that has at most 12:
//
//     flags | length, bytes 0-3, bytes 4-7, bytes 8-11
//     flags | length, place in token_bytes, 0, 0           a longer one
#pragma once
#include "row_places.cuh"
#include "scan.cuh"

constexpr uint32_t DECODE_TILE = 1024;     // Ids that a block spells at a time.
constexpr uint32_t NO_BYTES = 1u << 31;    // Flags: an id that means nothing ...
constexpr uint32_t IS_SPECIAL = 1u << 30;  // ... or that skip_special leaves out.
constexpr uint32_t LENGTH_BITS = IS_SPECIAL - 1;
constexpr uint32_t MAX_INLINE = 12;

struct SpellShared {
    uint4 tokens[DECODE_TILE];
    uint32_t begins[DECODE_TILE + 1];      // Where each begins in the tile's bytes.
    uint32_t scratch[BLOCK / 32 + 1];
};

DEVICE uint64_t decode_tiles(const Job& job) { return job.num_decode_ids / DECODE_TILE + 1; }

// An id of the batch; a negative one is beyond every vocabulary.
DEVICE uint64_t decode_id(const Job& job, uint64_t place) {
    if (job.decode_wide) return static_cast<const uint64_t*>(job.decode_ids)[place];
    return static_cast<int64_t>(static_cast<const int32_t*>(job.decode_ids)[place]);
}

DEVICE uint64_t row_of_id(const Job& job, uint64_t place) {
    return last_not_behind(job.decode_offsets, job.num_rows, place);
}

// Bytes that a token adds to the text.
DEVICE uint32_t shown_length(const Job& job, uint32_t meta) {
    if (job.skip_special && (meta & IS_SPECIAL)) return 0;
    return meta & LENGTH_BITS;
}

// The first word of an id's entry in the token table; NO_BYTES beyond its end.
DEVICE uint32_t token_meta(const Job& job, uint64_t id) {
    return id < job.num_ids ? __ldg(job.token_table + 4 * id) : NO_BYTES;
}

// The bytes that an id adds, none in a row that is at fault; notes ids without bytes.
template <bool AGAIN>
DEVICE uint64_t size_of_id(const Job& job, uint64_t place) {
    uint32_t meta = token_meta(job, decode_id(job, place));
    if (AGAIN && job.row_errors[row_of_id(job, place)] != NO_BYTE) return 0;
    if (meta & NO_BYTES) {
        note_fault(job.row_errors, row_of_id(job, place), static_cast<uint32_t>(place));
        job.decode_faults[0] = 1;
        return 0;
    }
    return shown_length(job, meta);
}

// Sizes of all tiles; the first time also the first row that begins in each or behind it.
template <bool AGAIN>
DEVICE void size_stage(const Job& job, ScanShared& shared, uint32_t block, uint32_t num_blocks) {
    if (AGAIN && !job.decode_faults[0]) return;
    uint64_t tiles = decode_tiles(job), stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    for (uint64_t tile = first; !AGAIN && tile <= tiles; tile += stride) {
        uint64_t begin = tile * DECODE_TILE;
        job.decode_rows[tile] = first_not_before(job.decode_offsets, job.num_rows + 1, begin);
    }
    uint64_t* states = job.decode_states + (AGAIN ? scan_tiles(job.num_decode_ids) + 1 : 0);
    scan(states, job.num_decode_ids, shared,
         [&](uint64_t place) { return size_of_id<AGAIN>(job, place); },
         [&](uint64_t place, uint64_t before) {
             if (place % DECODE_TILE == 0) job.decode_begins[place / DECODE_TILE] = before;
             if (place == job.num_decode_ids) job.decode_begins[decode_tiles(job)] = before;
         });
}

// Loads the tokens of a tile; returns the bytes of all of them.
DEVICE uint32_t load_tokens(const Job& job, SpellShared& shared, uint64_t tile_begin) {
    bool faults = job.decode_faults[0];
    for (uint32_t i = threadIdx.x; i < DECODE_TILE; i += BLOCK) {
        uint64_t place = tile_begin + i;
        uint4 token = {0, 0, 0, 0};
        uint64_t id = place < job.num_decode_ids ? decode_id(job, place) : job.num_ids;
        if (id < job.num_ids) {
            token = __ldg(reinterpret_cast<const uint4*>(job.token_table) + id);
            if (faults && job.row_errors[row_of_id(job, place)] != NO_BYTE) token.x = 0;
        }
        shared.tokens[i] = token;
        shared.begins[i] = shown_length(job, token.x);
    }
    __syncthreads();
    constexpr uint32_t ITEMS = DECODE_TILE / BLOCK;
    uint32_t sizes[ITEMS], sum = 0, total;
    for (uint32_t i = 0; i < ITEMS; i++) sum += sizes[i] = shared.begins[threadIdx.x * ITEMS + i];
    uint32_t before = sum_before(sum, shared.scratch, total);
    for (uint32_t i = 0; i < ITEMS; i++) {
        shared.begins[threadIdx.x * ITEMS + i] = before;
        before += sizes[i];
    }
    if (threadIdx.x == 0) shared.begins[DECODE_TILE] = total;
    __syncthreads();
    return total;
}

// The token that a byte of the tile belongs to: the last one that does not begin behind it.
DEVICE uint32_t token_at(const SpellShared& shared, uint32_t place) {
    uint32_t number = 0;
    for (uint32_t step = DECODE_TILE / 2; step; step /= 2)
        if (shared.begins[number + step] <= place) number += step;
    return number;
}

// Eight bytes of a token from `skip` on, anything behind its end.
DEVICE uint64_t eight_bytes(const Job& job, const uint4& token, uint32_t skip) {
    uint32_t words[3] = {token.y, token.z, token.w}, shift = skip % 4 * 8, first = skip / 4;
    if ((token.x & LENGTH_BITS) > MAX_INLINE) {
        uint32_t place = token.y + skip;
        const uint32_t* from = reinterpret_cast<const uint32_t*>(job.token_bytes) + place / 4;
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

// The bytes from .. to - 1 of the tile, at most 16, at the bytes `at` .. of low and high.
DEVICE void spell_bytes(const Job& job, const SpellShared& shared, uint32_t from, uint32_t to,
                        uint32_t at, uint64_t& low, uint64_t& high) {
    for (uint32_t number = token_at(shared, from); from < to; number++) {
        uint32_t begin = shared.begins[number], end = min_of(shared.begins[number + 1], to);
        while (from < end) {
            uint32_t count = min_of(8, end - from);
            uint64_t bytes = eight_bytes(job, shared.tokens[number], from - begin);
            bytes &= ~0ull >> (64 - 8 * count);
            if (at < 8) low |= bytes << 8 * at;
            if (at >= 8) high |= bytes << 8 * (at - 8);
            else if (at) high |= bytes >> (64 - 8 * at);
            from += count;
            at += count;
        }
    }
}

// Writes a tile's bytes, from `place` of the text on, in vectors of 16 as the text has them; those
// at its ends, of which other tiles write the rest, byte by byte.
DEVICE void write_bytes(const Job& job, const SpellShared& shared, uint64_t place, uint32_t total) {
    uint64_t first = place / 16, shift = place % 16;
    uint32_t vectors = (shift + total + 15) / 16;
    for (uint32_t i = threadIdx.x; i < vectors; i += BLOCK) {
        uint32_t from = i ? i * 16 - shift : 0, to = min_of(total, (i + 1) * 16 - shift);
        uint32_t at = i ? 0 : shift;
        uint64_t low = 0, high = 0;
        spell_bytes(job, shared, from, to, at, low, high);
        if (to - from == 16) {
            uint4 vector = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                            static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
            reinterpret_cast<uint4*>(job.decoded)[first + i] = vector;
        } else {
            uint8_t* bytes = job.decoded + (first + i) * 16;
            for (uint32_t j = at; j < at + to - from; j++)
                bytes[j] = (j < 8 ? low >> 8 * j : high >> 8 * (j - 8)) & 0xFF;
        }
    }
}

DEVICE void spell_stage(const Job& job, SpellShared& shared, uint32_t block, uint32_t num_blocks) {
    uint64_t tiles = decode_tiles(job);
    bool fits = job.decode_begins[tiles] <= job.decoded_capacity;
    for (uint64_t tile = block; tile < tiles; tile += num_blocks) {
        uint64_t tile_begin = tile * DECODE_TILE, place = job.decode_begins[tile];
        uint32_t total = load_tokens(job, shared, tile_begin);
        uint64_t end = job.decode_rows[tile + 1];
        for (uint64_t row = job.decode_rows[tile] + threadIdx.x; row < end; row += BLOCK)
            job.decoded_offsets[row] = place + shared.begins[job.decode_offsets[row] - tile_begin];
        if (fits) write_bytes(job, shared, place, total);
        __syncthreads();
    }
}
