// Finds the number of ids before each row where rows are short: a block has a tile and all rows that begin in it.
//
//     pieces    0   1     2   3        records of the tile
//     ids       2   1     3   1        before each: 0 2 3 6
//     rows      ^         ^            pieces before each: 0 2, so ids 0 3 behind those of the tiles before
//
// Invariant: a row begins behind the ids of all pieces that begin before its first byte.
#pragma once
#include "common/block_reduce.cuh"
#include "text/compact/compact.cuh"
#include "batch/rows.cuh"

namespace warptok::text {

constexpr uint32_t MANY_ROWS = 16;           // Rows of a tile from which on its records are added up once for all.

struct RowOffsetsShared {
    uint16_t ids_before[TILE + 1];           // Ids of the tile before each of its pieces.
    uint16_t pieces_before[WORDS_A_TILE];    // Pieces of the tile before each word of start bits.
    uint32_t scratch[BLOCK / 32 + 1];
    uint64_t rows[2], ids;                   // The tile's first row and the next one's; ids before the tile.
};

// Finds which rows begin in a tile, and the ids before it. All rows behind the last tile's begin belong to it.
template <class Count>
DEVICE void find_rows(const Job& job, const Count* group_offsets, RowOffsetsShared& shared, uint64_t tile) {
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    if (warp < 2) {
        uint64_t row = job.batch.num_rows + 1;
        if (tile + warp < num_tiles(job))
            row = first_not_before_by_warp(job.rows.row_begins, row, (tile + warp) * TILE);
        if (lane == 0) shared.rows[warp] = row;
    } else if (warp == 2) {
        uint32_t unit = static_cast<uint32_t>(tile) * (is_small_batch(job) ? SMALL_PARTS : 1);
        uint64_t ids = ids_before(job, group_offsets, unit);
        if (lane == 0) shared.ids = ids;
    }
    __syncthreads();
}

// Fills pieces_before; a thread has a word. Words behind the text are not read.
DEVICE void sum_starts(const Job& job, RowOffsetsShared& shared, uint64_t tile) {
    uint64_t word = tile * WORDS_A_TILE + threadIdx.x;
    bool is_word = threadIdx.x < WORDS_A_TILE && word * 64 < job.batch.num_bytes;
    uint32_t total, before = sum_before(is_word ? count_bits(job.text.starts[word]) : 0, shared.scratch, total);
    if (threadIdx.x < WORDS_A_TILE) shared.pieces_before[threadIdx.x] = static_cast<uint16_t>(before);
}

// Fills ids_before; a thread has neighbouring records.
DEVICE void sum_records(const Job& job, RowOffsetsShared& shared, uint64_t tile) {
    uint32_t pieces = job.text.tile_pieces[tile], each = (pieces + BLOCK - 1) / BLOCK, ids = 0, total;
    uint32_t first = min_of(threadIdx.x * each, pieces), end = min_of(first + each, pieces);
    for (uint32_t i = first; i < end; i++) {
        uint32_t count = count_of(job, job.text.records[tile * TILE + i]);
        shared.ids_before[i] = static_cast<uint16_t>(count);
        ids += count;
    }
    ids = sum_before(ids, shared.scratch, total);
    for (uint32_t i = first; i < end; i++) {
        uint32_t count = shared.ids_before[i];
        shared.ids_before[i] = static_cast<uint16_t>(ids);
        ids += count;
    }
    if (threadIdx.x == 0) shared.ids_before[pieces] = static_cast<uint16_t>(total);
    __syncthreads();
}

// The pieces of a tile before a place in it, or before its end.
DEVICE uint32_t pieces_before(const Job& job, const RowOffsetsShared& shared, uint64_t tile, uint64_t place) {
    if (place >= TILE) return job.text.tile_pieces[tile];
    uint64_t bits = job.text.starts[tile * WORDS_A_TILE + place / 64] & ((1ull << place % 64) - 1);
    return shared.pieces_before[place / 64] + count_bits(bits);
}

template <class Count>
DEVICE void short_row_offsets(const Job& job, const Count* group_offsets, RowOffsetsShared& shared, uint32_t block,
                              uint32_t num_blocks) {
    for (uint64_t tile = block; tile < num_tiles(job); tile += num_blocks) {
        find_rows(job, group_offsets, shared, tile);
        sum_starts(job, shared, tile);
        sum_records(job, shared, tile);
        for (uint64_t row = shared.rows[0] + threadIdx.x; row < shared.rows[1]; row += BLOCK) {
            uint32_t pieces = pieces_before(job, shared, tile, job.rows.row_begins[row] - tile * TILE);
            job.answer.id_offsets[row] = shared.ids + shared.ids_before[pieces];
        }
        __syncthreads();
    }
}

// Writes id_offsets of any batch.
template <class Count>
DEVICE void all_row_offsets(const Job& job, const GroupSums<Count>& sums, RowOffsetsShared& shared, uint32_t block,
                            uint32_t num_blocks) {
    bool many = num_tiles(job) && job.batch.num_rows > MANY_ROWS * num_tiles(job);
    if (many) short_row_offsets(job, sums.before, shared, block, num_blocks);
    else if (is_small_batch(job)) row_offsets_stage<SMALL_PARTS>(job, sums, job.answer.id_offsets, block, num_blocks);
    else row_offsets_stage<ONE_PART>(job, sums, job.answer.id_offsets, block, num_blocks);
}

}  // namespace warptok::text
