// The rows of a tile of letters, of any lengths, and which of their ids belong to the tile.
//
// Each id belongs to a letter: k-mer n of a row to its letter n * stride, the id of a letter behind the k-mers to that
// letter.
//
// Example, k = 3, stride 1, tiles of 8 letters, a row of 12: of its ids 0 .. 9 the first 8 belong to tile 0.
#pragma once
#include "kmers/packed_tile.cuh"

namespace warptok::kmers {

// Rows of a tile that a warp handles together, and their ids that belong to the tile.
struct TileRows {
    uint32_t first_row, count, circles;    // Bit i of circles: row i is a circle.
    uint32_t begin_id, end_id;             // Ids of the batch.
    uint32_t shared_from;                  // The letter of the batch that is first in shared memory.
    bool any_strange;                      // A letter of the tile is none of the four.
};

template <class Tile>
DEVICE PlainRow tile_row(const Tile& tile, const TileRows& rows, uint32_t i) {
    return {rows.first_row + i, tile.rows[i].first, tile.begins[i], tile.lengths[i], (rows.circles >> i & 1) != 0};
}

// The number of ids of a row that belong to its first `letters` letters.
DEVICE uint32_t ids_of_first(const Job& job, const FourLetters& four, const PlainRow& row, uint32_t letters) {
    if (letters > row.length) letters = row.length;
    if (row.wraps) return letters;
    uint32_t kmers = kmers_of(four, row.length), covered = kmers ? (kmers - 1) * four.stride + four.k : 0;
    uint32_t begun = min_of(kmers, four.stride == 1 ? letters : four.strides.quotient(letters + four.stride - 1));
    return job.kmers.keeps_remainder && letters > covered ? begun + letters - covered : begun;
}

DEVICE RowIds row_ids(const FourLetters& four, const TileRows& rows, const PlainRow& row) {
    uint32_t shift = row.wraps ? four.shift : 0, begin = row.first + shift;
    return {row.first, begin, begin + kmers_of(four, row.length), row.begin - begin * four.stride - rows.shared_from};
}

// Up to KMER_ROWS rows as they are loaded, a lane each. A row that does not exist begins at NO_ROW.
constexpr uint32_t NO_ROW = 0xFFFFFFFF;

struct LoadedRows {
    uint32_t first_row, begin, end, first_id;
};

DEVICE LoadedRows load_rows(const Job& job, uint32_t first_row) {
    uint32_t num_rows = job.batch.num_rows, first = min_of(first_row, num_rows);
    uint32_t row = min_of(first + (threadIdx.x & 31), num_rows);
    uint32_t begin = static_cast<uint32_t>(job.rows.row_begins[row]);
    uint32_t end = job.rows.row_begins[min_of(row + 1, num_rows)];
    return {first, row < num_rows ? begin : NO_ROW, end, static_cast<uint32_t>(job.answer.id_offsets[row])};
}

// The row of a letter, by a search; a warp calls it.
DEVICE_NOINLINE uint32_t searched_row(const Job& job, uint32_t letter) {
    return static_cast<uint32_t>(first_row_not_before(job, letter + 1ull)) - 1;
}

// The rows from that of a letter on: those that are loaded, unless the mark was wrong.
DEVICE LoadedRows rows_of_letter(const Job& job, const LoadedRows& loaded, uint32_t letter) {
    if (__shfl_sync(ALL_LANES, loaded.begin <= letter && letter < loaded.end, 0)) return loaded;
    return load_rows(job, searched_row(job, letter));
}

// Selects the loaded rows that have letters before the tile's end; every lane gets the same.
template <class Tile>
DEVICE TileRows select_rows(const Job& job, const FourLetters& four, Tile& tile, const LoadedRows& loaded,
                            uint32_t begin) {
    uint32_t lane = threadIdx.x & 31, row = loaded.first_row + lane;
    uint32_t end = begin + min_of(Tile::OWN_LETTERS, NO_ROW - begin);
    bool here = loaded.begin < end, wraps = Tile::CAN_WRAP && here && job.kmers.can_wrap && is_circle(job, row);
    TileRows rows = {loaded.first_row, count_bits(__ballot_sync(ALL_LANES, here)), 0, 0, 0, begin - AROUND, false};
    rows.circles = Tile::CAN_WRAP ? __ballot_sync(ALL_LANES, wraps) : 0;
    if (rows.count == 0) return rows;
    PlainRow own = {row, loaded.first_id, loaded.begin, loaded.end - loaded.begin, wraps};
    uint32_t before = own.begin < begin ? ids_of_first(job, four, own, begin - own.begin) : 0;
    uint32_t up_to_end = ids_of_first(job, four, own, end - own.begin);
    rows.begin_id = __shfl_sync(ALL_LANES, own.first + before, 0);
    rows.end_id = __shfl_sync(ALL_LANES, own.first + up_to_end, rows.count - 1);
    tile.rows[lane] = row_ids(four, rows, own);
    tile.begins[lane] = own.begin, tile.lengths[lane] = own.length;
    __syncwarp();
    return rows;
}

}  // namespace warptok::kmers
