// K-mers of four letters in batches that are plain, by tiles of letters.
//
// A warp takes a tile of letters and the rows in it (kmer_rows.cuh), puts the ids that belong to it into shared memory
// and stores them as a whole (staged_ids.cuh):
//
//     pack_text           the letters as two bits each (kmer_tile.cuh), with those around the tile
//     write_simple_rows   k-mers of neighbouring letters: vectors of 16 bytes, those at seams of two rows joined
//     write_inside        the same of circles, of rows of few letters and where letters are unknown: vectors that lie
//                         within a row, and
//     write_seams         all others, a thread an id (kmer_seams.cuh)
//     write_strided_rows  k-mers that are no neighbours, a lane an id
#pragma once
#include "kmer_seams.cuh"

// The vectors of ids whose k-mers lie within a row.
template <class Id>
DEVICE void write_inside(const FourLetters& four, const KmerTile<Id>& tile, const TileRows& rows, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t i = 0, first = (rows.begin_id + ITEMS - 1) / ITEMS * ITEMS + (threadIdx.x & 31) * ITEMS;
    for (uint32_t id = first; id + ITEMS <= rows.end_id; id += 32 * ITEMS) {
        while (i + 1 < rows.count && tile.rows[i + 1].first <= id) i++;
        RowIds row = tile.rows[i];
        if (id < row.inner_begin || id + ITEMS > row.inner_end) continue;
        write_vector<Id, NEIGHBOURS, true>(four, tile, rows.any_strange, row.at + id, out + id);
    }
}

// Whether all k-mers of a tile's rows are known, and a vector holds those of two rows at most.
template <class Id>
DEVICE bool has_simple_rows(const Job& job, const KmerTile<Id>& tile, const TileRows& rows, bool is_first) {
    uint32_t lane = threadIdx.x & 31;
    bool is_long = lane >= rows.count || tile.rows[lane].inner_end - tile.rows[lane].first >= 16 / sizeof(Id);
    bool is_plain = !rows.circles && !job.keeps_remainder && !rows.any_strange;
    return __all_sync(ALL_LANES, is_long) && is_plain && is_first && rows.count < KMER_ROWS;
}

// The vectors of such rows, of which the first one may begin before the tile and the last one end behind it, and those
// that go on with the next row: read as if they lay in either, and joined.
template <class Id>
DEVICE void write_simple_rows(const FourLetters& four, const KmerTile<Id>& tile, const TileRows& rows, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t lane = threadIdx.x & 31, i = 0, first = rows.begin_id / ITEMS * ITEMS;
    for (uint32_t id = first + lane * ITEMS; id < rows.end_id; id += 32 * ITEMS) {
        while (i + 1 < rows.count && tile.rows[i + 1].first <= id) i++;
        RowIds row = tile.rows[i];
        if (id + ITEMS <= row.inner_end || i + 1 == rows.count)
            write_vector<Id, NEIGHBOURS, true>(four, tile, false, row.at + id, out + id);
    }
    uint32_t seam = lane > 0 && lane < rows.count ? tile.rows[lane].first : 0, before = seam % ITEMS;
    if (before == 0) return;
    uint32_t next = tile.rows[lane].at + seam - before;
    // Letters far before the tile are not shared: a row that has no id here may end with them.
    uint32_t own = seam == rows.begin_id ? next : tile.rows[lane - 1].at + seam - before;
    *reinterpret_cast<uint4*>(out + seam - before) = joined_vector<Id, NEIGHBOURS>(four, tile, own, next, before);
}

// The ids of k-mers that are no neighbours and of the letters behind them, a lane an id.
template <class Id>
DEVICE uint32_t write_strided_rows(const Job& job, const FourLetters& four, const KmerTile<Id>& tile, const TileRows& rows,
                                   Id* out) {
    uint32_t i = 0, seen = 0;
    for (uint32_t id = rows.begin_id + (threadIdx.x & 31); id < rows.end_id; id += 32) {
        while (i + 1 < rows.count && tile.rows[i + 1].first <= id) i++;
        RowIds row = tile.rows[i];
        bool is_kmer = id < row.inner_end;
        uint32_t behind = row.inner_end * four.stride + (row.inner_end > row.first ? four.k - four.stride : 0);
        uint32_t at = row.at + (is_kmer ? id * four.stride : behind + id - row.inner_end);
        uint32_t letters = letters_from(tile, at);
        uint32_t found = is_kmer ? four.first_id + (letters >> (32 - 2 * four.k)) : tile.singles[letters >> 30];
        if (rows.any_strange && has_strange(tile, at, is_kmer ? four.k : 1)) {
            if (is_kmer) found = four.unknown_id;
            else found = plain_id(job, job.letter_table, tile_row(tile, rows, i), id - row.first, seen);
        }
        out[id] = static_cast<Id>(found);
    }
    return seen;
}

// The ids that belong to a tile's letters.
template <class Id, bool IS_STRIDED>
DEVICE void write_tile(const Job& job, const FourLetters& four, KmerTile<Id>& tile, uint32_t begin, uint32_t& seen) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    const uint32_t* table = job.letter_table;
    uint32_t row = marked_row(job, begin), first = 0, end = 0;
    bool any_strange = pack_text(four, table, begin, tile, seen);
    wait_for_stores();
    while (true) {
        TileRows rows = take_rows(job, four, tile, row, begin);
        bool has_ids = rows.begin_id < rows.end_id;
        rows.any_strange = any_strange;
        if (has_ids) {
            bool is_first = first == end;
            if (is_first) first = rows.begin_id;
            end = rows.end_id;
            Id* out = tile.ids - first / ITEMS * ITEMS;
            if (IS_STRIDED) {
                seen |= write_strided_rows(job, four, tile, rows, out);
            } else if (has_simple_rows(job, tile, rows, is_first)) {
                write_simple_rows(four, tile, rows, out);
            } else {
                write_inside(four, tile, rows, out);
                seen |= write_seams<Id, ITEMS>(job, four, table, tile, rows, out);
            }
        }
        __syncwarp();
        if (rows.count < KMER_ROWS) break;
        // Rows without ids, however many, are passed over at once.
        uint64_t behind = rows.begin_id + 1ull;
        row = has_ids ? row + KMER_ROWS : first_not_before_by_warp(job.id_offsets, job.num_rows, behind) - 1;
    }
    if (first < end) store_part(tile.ids, ids_out<Id>(job), first, end);
}

// A warp takes a tile at a time.
template <class Id, bool IS_STRIDED>
DEVICE void write_kmers_stage(const Job& job, KmerTile<Id>* tiles, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t LETTERS = KmerTile<Id>::OWN_LETTERS;
    if (!job.four_letters) {
        uint32_t* table = reinterpret_cast<uint32_t*>(tiles);
        load_letters(job, table);
        return write_any_kmers<Id>(job, table, block, num_blocks);
    }
    FourLetters four(job);
    KmerTile<Id>& tile = tiles[threadIdx.x / 32];
    if (job.keeps_remainder) load_singles(job, tile.singles);
    uint64_t warp = block * (BLOCK / 32) + threadIdx.x / 32, warps = num_blocks * (BLOCK / 32);
    uint32_t seen = 0;
    for (uint64_t begin = warp * LETTERS; begin < four.num_bytes; begin += warps * LETTERS)
        write_tile<Id, IS_STRIDED>(job, four, tile, static_cast<uint32_t>(begin), seen);
    note_rare(job, seen);
    wait_for_stores();
}
