// K-mers of six of four letters, side by side, in rows of one length that they fill: as if all rows were one, an id for every
// six letters. Only what is behind the last k-mer of one row alone may be more.
//
// A warp packs a tile of letters (kmers/packed_tile.cuh) and writes its ids where they belong, 16 bytes a lane: a tile is whole lines of
// ids, and no k-mer reaches into another one. The last tile, which may be shorter, goes id by id.
#pragma once
#include "kmers/equal_rows.cuh"

constexpr uint32_t FILLED_LETTERS = 3072;

struct FilledTile : PackedLetters<FILLED_LETTERS> {
    uint32_t singles[4];                   // As those of a StagedTile.
};

template <class Id>
DEVICE void write_filled_tile(const Job& job, const FourLetters& four, FilledTile& tile, uint32_t begin, uint32_t& seen) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id), IDS = FILLED_LETTERS / BY_SIX;
    Id* out = ids_out<Id>(job) + begin / BY_SIX;
    bool any_strange = pack_text(four, job.kmers.letter_table, begin + AROUND, tile, seen, [] {});
#pragma unroll
    for (uint32_t first = 0; first < IDS; first += 32 * ITEMS) {
        uint32_t id = first + (threadIdx.x & 31) * ITEMS;
        write_vector<Id, BY_SIX>(four, tile, any_strange, id * BY_SIX, out + id);
    }
    __syncwarp();
}

template <class Id>
DEVICE void write_last_filled_tile(const Job& job, const FourLetters& four, FilledTile& tile, uint32_t begin, uint32_t& seen) {
    EvenRows rows(job);
    EvenPart part = {begin / BY_SIX, rows.total, begin, FILLED_LETTERS, false};
    load_singles(job, tile.singles);
    part.any_strange = pack_text(four, job.kmers.letter_table, begin + AROUND, tile, seen, [] {});
    for (uint32_t id = part.first + (threadIdx.x & 31); id < part.end; id += 32)
        ids_out<Id>(job)[id] = static_cast<Id>(even_id(job, four, rows, tile, part, id));
}

// A warp takes a tile at a time.
template <class Id>
DEVICE void write_filled_rows_stage(const Job& job, FilledTile* tiles, uint32_t block, uint32_t num_blocks) {
    FourLetters four(job);
    FilledTile& tile = tiles[threadIdx.x / 32];
    uint32_t warp = block * (BLOCK / 32) + threadIdx.x / 32, step = num_blocks * (BLOCK / 32), seen = 0;
    uint32_t whole = four.num_bytes / FILLED_LETTERS;
    for (uint32_t number = warp; number < whole; number += step)
        write_filled_tile<Id>(job, four, tile, number * FILLED_LETTERS, seen);
    if (whole % step == warp) write_last_filled_tile<Id>(job, four, tile, whole * FILLED_LETTERS, seen);
    note_rare(job, seen);
    finish_even_rows(job, block, num_blocks);
}
