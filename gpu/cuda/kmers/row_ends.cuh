// Writes the ids that no vector holds, a thread an id: at the ends of rows, and where circles close.
//
// Example, k = 3, stride 1, rows ACGTA and CCCC, ids of 16 bits: five ids, and no vector of eight lies within a row.
#pragma once
#include "kmers/tile_rows.cuh"
#include "kmers/vectors.cuh"

namespace warptok::kmers {

// The row of an id, among those of a tile.
template <class Tile>
DEVICE uint32_t tile_row_of(const Tile& tile, const TileRows& rows, uint32_t id) {
    uint32_t low = 0, high = rows.count - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (tile.rows[middle].first <= id) low = middle;
        else high = middle - 1;
    }
    return low;
}

// The row of an id near the first id of row `seam`; mostly it is this row or the one before.
template <class Tile>
DEVICE uint32_t row_at_seam(const Tile& tile, const TileRows& rows, uint32_t seam, uint32_t id) {
    if (seam == 0 || tile.rows[seam - 1].first > id) return tile_row_of(tile, rows, id);
    if (seam == rows.count || tile.rows[seam].first > id) return seam - 1;
    return seam + 1 == rows.count || tile.rows[seam + 1].first > id ? seam : tile_row_of(tile, rows, id);
}

// Whether the k letters from a letter of the batch on are among the shared ones.
template <class Tile>
DEVICE bool are_shared(const FourLetters& four, const Tile&, const TileRows& rows, uint32_t letter) {
    return letter - rows.shared_from <= Tile::SHARED_LETTERS - four.k;
}

// The id of a letter behind a row's k-mers.
template <class Tile>
DEVICE uint32_t single_id(const Job& job, const FourLetters& four, const uint32_t* table, const Tile& tile,
                          const TileRows& rows, const PlainRow& row, uint32_t letter, uint32_t number, uint32_t& seen) {
    uint32_t at = row.begin + letter - rows.shared_from;
    bool is_known = are_shared(four, tile, rows, row.begin + letter) && !(rows.any_strange && has_strange(tile, at, 1));
    return is_known ? tile.singles[Letters32(tile, at).kmer(0, 1)] : plain_id(job, table, row, number, seen);
}

// An id, from the shared letters where these hold all of its letters, else letter by letter. A circle's k-mer may
// consist of the last `before` letters of the row and its first `behind` letters.
template <class Tile>
DEVICE uint32_t seam_id(const Job& job, const FourLetters& four, const uint32_t* table, const Tile& tile,
                        const TileRows& rows, const PlainRow& row, uint32_t number, uint32_t& seen) {
    uint32_t kmers = kmers_of(four, row.length);
    if (number >= kmers && !row.wraps) {
        uint32_t behind = number - kmers + (kmers ? (kmers - 1) * four.stride + four.k : 0);
        return single_id(job, four, table, tile, rows, row, behind, number, seen);
    }
    uint32_t letter = row.wraps ? circle_begin(job, number, row.length) : number * four.stride;
    uint32_t before = row.length - letter, at = row.begin + letter - rows.shared_from;
    bool is_whole = before >= four.k, shared = are_shared(four, tile, rows, row.begin + letter);
    if (!shared || (!is_whole && !are_shared(four, tile, rows, row.begin)))
        return plain_id(job, table, row, number, seen);
    uint32_t kmer = Letters32(tile, at).kmer(0, four.k);
    uint32_t behind = is_whole ? 0 : four.k - before, begin = row.begin - rows.shared_from;
    if (rows.any_strange && (has_strange(tile, at, four.k - behind) || (behind && has_strange(tile, begin, behind))))
        return four.unknown_id;
    if (is_whole) return four.first_id + kmer;
    return four.first_id + (kmer >> 2 * behind << 2 * behind | Letters32(tile, begin).kmer(0, behind));
}

// Writes the ids that no vector holds: around the begin of each row, and around both ends of the tile's ids.
template <class Id, class Tile>
DEVICE uint32_t write_seams(const Job& job, const FourLetters& four, const uint32_t* table, const Tile& tile,
                            const TileRows& rows, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    bool is_inside = tile.rows[0].inner_begin <= rows.begin_id && rows.end_id <= tile.rows[0].inner_end;
    if (is_inside && (rows.begin_id | rows.end_id) % ITEMS == 0) return 0;
    bool ends_vary = rows.circles || job.kmers.keeps_remainder;
    uint32_t back = ends_vary ? four.k - 1 : 0, ahead = rows.circles ? four.shift : 0, seen = 0;
    uint32_t each = ((back + ahead + ITEMS - 1) / ITEMS + 1) * ITEMS, seams = rows.count + 1;
    for (uint32_t i = threadIdx.x & 31; i < seams * each; i += 32) {
        uint32_t seam = i / each, middle = seam < rows.count ? tile.rows[seam].first : rows.end_id;
        if (middle < rows.begin_id) middle = rows.begin_id;
        uint32_t id = (middle < back ? 0 : middle - back) / ITEMS * ITEMS + i % each;
        if (id < rows.begin_id || id >= rows.end_id) continue;
        PlainRow row = tile_row(tile, rows, row_at_seam(tile, rows, seam, id));
        out[id] = static_cast<Id>(seam_id(job, four, table, tile, rows, row, id - row.first, seen));
    }
    return seen;
}

}  // namespace warptok::kmers
