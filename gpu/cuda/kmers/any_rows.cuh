// K-mers of four letters in batches that are plain, by tiles of letters.
//
// A warp takes a tile of letters and the rows in it (kmers/tile_rows.cuh), puts the ids that belong to it into shared
// memory and stores them as a whole (common/bulk_store.cuh):
//
//     pack_text           the letters as two bits each (kmers/packed_tile.cuh), with those around the tile
//     write_simple_rows   k-mers of neighbouring letters: vectors of 16 bytes, those at seams of two rows joined
//     write_inside        for circles, rows of few letters and unknown letters: the vectors that lie within a row
//     write_seams         for the same: all other ids, a thread an id (kmers/row_ends.cuh)
//     stage_known         k-mers that are no neighbours (kmers/strided_rows.cuh)
#pragma once
#include "kmers/row_ends.cuh"
#include "kmers/row_offsets.cuh"
#include "kmers/strided_rows.cuh"

namespace warptok::kmers {

// Writes the vectors of ids whose k-mers lie within one row.
template <class Id, class Tile>
DEVICE void write_inside(const FourLetters& four, const Tile& tile, const TileRows& rows, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t i = 0, first = (rows.begin_id + ITEMS - 1) / ITEMS * ITEMS + (threadIdx.x & 31) * ITEMS;
    for (uint32_t id = first; id + ITEMS <= rows.end_id; id += 32 * ITEMS) {
        while (i + 1 < rows.count && tile.rows[i + 1].first <= id) i++;
        RowIds row = tile.rows[i];
        if (id < row.inner_begin || id + ITEMS > row.inner_end) continue;
        write_vector<Id, NEIGHBOURS>(four, tile, rows.any_strange, row.at + id, out + id);
    }
}

// Whether the rows of a tile are simple: all k-mers are known, and no vector holds ids of more than two rows.
template <class Id, class Tile>
DEVICE bool has_simple_rows(const Job& job, const Tile& tile, const TileRows& rows, bool is_first) {
    uint32_t lane = threadIdx.x & 31;
    bool is_long = lane >= rows.count || tile.rows[lane].inner_end - tile.rows[lane].first >= 16 / sizeof(Id);
    bool is_plain = !rows.circles && !job.kmers.keeps_remainder && !rows.any_strange;
    return __all_sync(ALL_LANES, is_long) && is_plain && is_first && rows.count < KMER_ROWS;
}

// Writes the vectors of simple rows; the first row may begin before the tile, and the last one may end behind it. Each
// vector is written as if all its ids were of the row of its first id in the tile. Then each row joins its own ids into
// the vector in which it begins. No two rows begin in the same vector. So a mask of 32 vectors, one for each lane, has
// a bit where a row begins, and counting its bits gives the row of each vector.
//
//     vector           0          1          2            ids of 32 bits, rows of 6, 5 ... ids: row 1 begins with id 6
//     ids              0 1 2 3    4 5 6 7    8 9 10 11
//     row of the first 0          0          1            own_vector of row 1 is 2
//     joined                          ^ ^                 the ids 6 and 7 are put there by lane 1
template <class Id, class Tile>
DEVICE void write_simple_rows(const FourLetters& four, const Tile& tile, const TileRows& rows, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id), FAR = 1u << 31;
    uint32_t lane = threadIdx.x & 31, own_first = lane < rows.count ? tile.rows[lane].first : 0;
    uint32_t up_to_own = bit_at(lane + 1) - 1;
    uint32_t base = rows.begin_id / ITEMS * ITEMS, last = (rows.end_id - 1 - base) / ITEMS;
    uint32_t own_vector = (own_first - base + ITEMS - 1) / ITEMS;
    bool begins_inside = own_first > rows.begin_id;
    uint32_t begun = rows.count - count_bits(__ballot_sync(ALL_LANES, begins_inside));
    if (!begins_inside || own_vector > last) own_vector = FAR;
    for (uint32_t first = 0; first <= last; first += 32, own_vector -= 32) {
        uint32_t begins = __reduce_add_sync(ALL_LANES, bit_at(own_vector));
        uint32_t i = begun + count_bits(begins & up_to_own) - 1, id = base + min_of(first + lane, last) * ITEMS;
        write_vector<Id, NEIGHBOURS>(four, tile, NONE_STRANGE, tile.rows[i].at + id, out + id);
        begun += count_bits(begins);
    }
    __syncwarp();
    uint32_t before = own_first % ITEMS;
    if (begins_inside && before)
        join_vector<Id, NEIGHBOURS>(four, tile, tile.rows[lane].at + own_first - before, before,
                                    out + own_first - before);
}

// Stages the ids of k-mers of neighbouring letters.
template <class Id, class Tile>
DEVICE void stage_neighbours(const Job& job, const FourLetters& four, const Tile& tile, const TileRows& rows,
                             bool is_first, Id* staged, uint32_t& seen) {
    if (has_simple_rows<Id>(job, tile, rows, is_first)) return write_simple_rows(four, tile, rows, staged);
    write_inside(four, tile, rows, staged);
    seen |= write_seams(job, four, job.kmers.letter_table, tile, rows, staged);
}

// Stages the ids of rows behind those that are staged already. All ids of neighbouring k-mers have room; other ids are
// stored first where they have none.
template <class Id, KmerStep STEP>
DEVICE void stage_rows(const Job& job, const FourLetters& four, KmerTile<Id, STEP>& tile, const TileRows& rows,
                       StagedIds& staged, uint32_t& seen) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    if constexpr (STEP == KmerStep::STRIDED) {
        stage_in_parts<Id>(job, tile, rows.begin_id, rows.end_id, staged, [&](uint32_t begin, uint32_t end, Id* to) {
            if (!rows.any_strange) stage_known(job, four, tile, rows, begin, end, to);
            else stage_one_by_one(job, four, tile, rows, begin, end, to, seen);
        });
    } else if (rows.begin_id < rows.end_id) {
        bool is_first = staged.first == staged.end;
        if (is_first) staged.first = rows.begin_id;
        staged.end = rows.end_id;
        stage_neighbours(job, four, tile, rows, is_first, tile.ids - staged.first / ITEMS * ITEMS, seen);
    }
}

// Writes the ids that belong to a tile's letters.
template <class Id, KmerStep STEP>
DEVICE void write_tile(const Job& job, const FourLetters& four, KmerTile<Id, STEP>& tile, uint32_t number,
                       uint32_t& seen) {
    const uint32_t* table = job.kmers.letter_table;
    const uint32_t begin = number * tile.OWN_LETTERS, mark = job.kmers.row_marks[number];
    LoadedRows loaded;
    auto load = [&] { loaded = load_rows(job, mark); };
    bool any_strange = pack_text(four, table, begin, tile, seen, load);
    loaded = rows_of_letter(job, loaded, begin);
    wait_for_stores();
    StagedIds staged = {0, 0};
    while (true) {
        TileRows rows = select_rows(job, four, tile, loaded, begin);
        rows.any_strange = any_strange;
        stage_rows(job, four, tile, rows, staged, seen);
        __syncwarp();
        if (rows.count < KMER_ROWS) break;
        // All rows without ids are skipped at once.
        bool has_ids = rows.begin_id < rows.end_id;
        uint64_t row =
            has_ids ? rows.first_row + KMER_ROWS
                    : first_not_before_by_warp(job.answer.id_offsets, job.batch.num_rows, rows.begin_id + 1ull) - 1;
        loaded = load_rows(job, static_cast<uint32_t>(row));
    }
    staged.store(tile.ids, ids_out<Id>(job));
}

// Writes the ids of all tiles; a warp takes a tile at a time.
template <class Id, KmerStep STEP>
DEVICE void write_kmers_stage(const Job& job, KmerTile<Id, STEP>* tiles, uint32_t block, uint32_t num_blocks) {
    if (!job.kmers.four_letters) {
        uint32_t* table = reinterpret_cast<uint32_t*>(tiles);
        load_letters(job, table);
        return write_any_kmers<Id>(job, table, block, num_blocks);
    }
    FourLetters four = four_letters<STEP>(job);
    KmerTile<Id, STEP>& tile = tiles[threadIdx.x / 32];
    if (job.kmers.keeps_remainder) load_singles(job, tile.singles);
    uint32_t num_tiles = (four.num_bytes + tile.OWN_LETTERS - 1ull) / tile.OWN_LETTERS, seen = 0;
    for (uint32_t number = block * (BLOCK / 32) + threadIdx.x / 32; number < num_tiles;
         number += num_blocks * (BLOCK / 32))
        write_tile(job, four, tile, number, seen);
    note_fallback(job, seen);
    wait_for_stores();
}

}  // namespace warptok::kmers
