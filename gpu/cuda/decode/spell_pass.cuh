// A pass of decoding over all ids (decode/spell_ids.cuh).
//
// A tile's text begins anywhere in a vector of 16 bytes, and the tiles before and behind it write the rest of its first
// and last vector:
//
//     vectors    |. . . . . . . .|. . . . . . . .|. . . . . . . .|
//     tiles       - 3 - | - - - - - 4 - - - - - - - - | - 5 - - -     tile 4 writes one whole vector, else bytes
//
// Invariant: tiles are claimed in order, so that a block only waits for blocks that are running.
#pragma once
#include "decode/spell_ids.cuh"

// Writes a tile's bytes, from `place` of the text on: whole vectors of 16 at once, those at its ends byte by byte.
DEVICE void write_bytes(const Job& job, const SpellShared& shared, uint64_t place, uint32_t total,
                        bool is_staged) {
    uint8_t* first = job.decode.decoded + place / 16 * 16;
    int32_t shift = place % 16, end = total;
    int32_t from = static_cast<int32_t>(threadIdx.x) * 16 - shift;
    for (; from < end; from += 16 * static_cast<int32_t>(BLOCK)) {
        uint4 bytes =
            is_staged ? staged_bytes(shared, from) : spelled_bytes(job, shared, from, total);
        uint4* to = reinterpret_cast<uint4*>(first + (from + shift));
        if (from >= 0 && from + 16 <= end) {
            *to = bytes;
            continue;
        }
        const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int32_t i = 0; i < 16; i++)
            if (from + i >= 0 && from + i < end)
                reinterpret_cast<uint8_t*>(to)[i] = words[i / 4] >> (i % 4 * 8) & 0xFF;
    }
}

// Writes decoded_offsets of the rows that begin in a tile.
DEVICE void write_row_offsets(const Job& job, const SpellShared& shared, uint64_t tile_begin) {
    for (uint64_t row = shared.first_row + threadIdx.x; row <= job.batch.num_rows; row += BLOCK) {
        uint64_t number = job.decode.decode_offsets[row] - tile_begin;
        if (number >= DECODE_TILE) return;
        job.decode.decoded_offsets[row] = shared.before + shared.begins[number];
    }
}

// Puts the tokens of a tile into shared memory: their bytes, or the tokens themselves where there are too many bytes or
// a long token. Returns whether it was the bytes; `total` is how many bytes they have.
DEVICE bool put_tokens(const Job& job, SpellShared& shared, const ThreadTokens& mine,
                       uint32_t& total) {
    uint32_t before = sum_before(mine.bytes, shared.scratch, total);
    uint32_t second = before + length_of_token(mine.tokens[0]);
    uint32_t third = second + length_of_token(mine.tokens[1]);
    uint4 begins = {before, second, third, third + length_of_token(mine.tokens[2])};
    reinterpret_cast<uint4*>(shared.begins)[threadIdx.x] = begins;
    if (threadIdx.x == 0) shared.begins[DECODE_TILE] = total;
    bool is_staged = !__syncthreads_or(mine.any_long || total > STAGE_BYTES);
#pragma unroll
    for (uint32_t i = 0; i < DECODE_ITEMS; i++) {
        if (is_staged) stage_token(job, shared, mine.tokens[i], before);
        else shared.tokens[threadIdx.x * DECODE_ITEMS + i] = mine.tokens[i];
        before += length_of_token(mine.tokens[i]);
    }
    return is_staged;
}

// Writes the bytes of all ids; a block claims one tile after the other. The second pass only runs if the first one met
// an id without bytes.
template <SpellPass PASS, SpelledTokens TOKENS>
DEVICE void spell_stage(const Job& job, SpellShared& shared) {
    if (PASS == SpellPass::AGAIN && !job.decode.decode_faults[0]) return;
    uint64_t tiles = decode_tiles(job);
    uint64_t* states = job.decode.decode_states + (PASS == SpellPass::AGAIN ? tiles + 1 : 0);
    for (;;) {
        if (threadIdx.x == 0) shared.tile = static_cast<uint32_t>(atomic_add(states, 1));
        for (uint32_t i = threadIdx.x; i < STAGE_BYTES / 16 + 3; i += BLOCK)
            shared.tokens[i] = {0, 0, 0, 0};
        __syncthreads();
        uint64_t tile = shared.tile, tile_begin = tile * DECODE_TILE;
        if (tile >= tiles) return;
        ThreadTokens mine;
        load_tokens<PASS, TOKENS>(job, tile_begin + threadIdx.x * DECODE_ITEMS, mine);
        uint32_t total;
        bool is_staged = put_tokens(job, shared, mine, total);
        if (threadIdx.x < 32) {
            uint64_t before = publish_tile(states + 1, tile, total);
            if (threadIdx.x == 0) shared.before = before;
        } else if (threadIdx.x < 64) {
            uint64_t row =
                first_not_before_by_warp(job.decode.decode_offsets, job.batch.num_rows + 1, tile_begin);
            if (threadIdx.x == 32) shared.first_row = row;
        }
        __syncthreads();
        write_row_offsets(job, shared, tile_begin);
        if (shared.before + total <= job.decode.decoded_capacity)
            write_bytes(job, shared, shared.before, total, is_staged);
        __syncthreads();
    }
}
