// K-mers of four letters in batches that are plain, by tiles of letters.
//
// An id belongs to a letter: k-mer n of a row to letter n * stride, what stands behind the k-mers to
// itself. A warp takes a tile of letters and writes the ids that belong to them:
//
//     pack_tile      the letters as two bits each (kmer_tile.cuh), with those around the tile
//     write_inside   vectors of 16 bytes that lie within a row; a k-mer is a shift of 64 bits
//     write_seams    ids where rows end, and where a circle closes, a thread an id
//
// A k-mer with a letter that is none of the four is unknown. Example, k = 3, stride 1, rows ACGTA and
// CCCC, ids of 16 bits: five ids of which no vector of eight lies within a row, so all are written at
// the seams.
#pragma once
#include "kmer_tile.cuh"

// The rows of a tile that are taken together, and the ids of them that belong to it.
struct TileRows {
    uint32_t first_row, count, circles;    // Bit i of circles: row i wraps.
    uint32_t begin_id, end_id;
    uint32_t shared_from;                  // The letter that is the first one of the shared ones.
    bool any_strange;
};

DEVICE PlainRow tile_row(const KmerTile& tile, const TileRows& rows, uint32_t i) {
    uint32_t begin = tile.begins[i];
    return {rows.first_row + i, tile.rows[i].first, begin, tile.begins[i + 1] - begin, (rows.circles >> i & 1) != 0};
}

// Ids of a row that belong to its first `letters` letters.
DEVICE uint32_t ids_of_first(const Job& job, const FourLetters& four, const PlainRow& row, uint32_t letters) {
    if (letters > row.length) letters = row.length;
    if (row.wraps) return letters;
    uint32_t kmers = kmers_of(four, row.length), covered = kmers ? (kmers - 1) * four.stride + four.k : 0;
    uint32_t begun = min_of(kmers, four.stride == 1 ? letters : (letters + four.stride - 1) / four.stride);
    return job.keeps_remainder && letters > covered ? begun + letters - covered : begun;
}

DEVICE RowIds row_ids(const FourLetters& four, const TileRows& rows, const PlainRow& row) {
    uint32_t shift = row.wraps ? four.shift : 0, begin = row.first + shift;
    return {row.first, begin, begin + kmers_of(four, row.length), row.begin - begin * four.stride - rows.shared_from};
}

// Up to KMER_ROWS rows from `first_row` on that have letters before `end`; every lane gets the same.
DEVICE TileRows take_rows(const Job& job, const FourLetters& four, KmerTile& tile, uint32_t first_row, uint32_t begin) {
    uint64_t end = begin + static_cast<uint64_t>(KMER_TILE);
    uint32_t lane = threadIdx.x & 31, num_rows = job.num_rows, row = min_of(first_row + lane, num_rows);
    uint32_t row_begin = job.row_begins[row], row_end = job.row_begins[min_of(row + 1, num_rows)];
    bool here = row < num_rows && row_begin < end, wraps = here && job.can_wrap && is_circle(job, row);
    TileRows rows = {first_row, count_bits(__ballot_sync(ALL_LANES, here)), 0, 0, 0, begin - AROUND, false};
    rows.circles = __ballot_sync(ALL_LANES, wraps);
    if (rows.count == 0) return rows;
    PlainRow own = {row, static_cast<uint32_t>(job.id_offsets[row]), row_begin, row_end - row_begin, wraps};
    tile.rows[lane] = row_ids(four, rows, own);
    tile.begins[lane] = row_begin;
    if (lane == 31) tile.begins[32] = row_end;
    __syncwarp();
    PlainRow first = tile_row(tile, rows, 0), last = tile_row(tile, rows, rows.count - 1);
    rows.begin_id = first.first + (first.begin < begin ? ids_of_first(job, four, first, begin - first.begin) : 0);
    rows.end_id = last.first + ids_of_first(job, four, last, end - last.begin);
    return rows;
}

// COUNT neighbouring ids of k-mers from shared letter `at` on.
template <uint32_t COUNT, bool IS_STRIDED>
DEVICE void read_ids(const FourLetters& four, const KmerTile& tile, bool any_strange, uint32_t at, uint32_t* ids) {
    if constexpr (IS_STRIDED) {
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++) ids[i] = four.first_id + Letters32(tile, at + i * four.stride).kmer(0, four.k);
    } else {
        Letters32 letters(tile, at);
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++) ids[i] = four.first_id + letters.kmer(i, four.k);
    }
    if (!any_strange) return;
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i++)
        if (has_strange(tile, at + i * four.stride, four.k)) ids[i] = four.unknown_id;
}

// The vectors of ids whose k-mers lie within a row.
template <class Id, bool IS_STRIDED, uint32_t ITEMS>
DEVICE void write_inside(const FourLetters& four, const KmerTile& tile, const TileRows& rows, Id* out) {
    uint32_t i = 0, first = (rows.begin_id + ITEMS - 1) / ITEMS * ITEMS + (threadIdx.x & 31) * ITEMS;
    for (uint32_t id = first; id + ITEMS <= rows.end_id; id += 32 * ITEMS) {
        while (i + 1 < rows.count && tile.rows[i + 1].first <= id) i++;
        RowIds row = tile.rows[i];
        if (id < row.inner_begin || id + ITEMS > row.inner_end) continue;
        uint32_t ids[ITEMS], at = row.at + (IS_STRIDED ? id * four.stride : id);
        read_ids<ITEMS, IS_STRIDED>(four, tile, rows.any_strange, at, ids);
        store_ids<Id, ITEMS>(out + id, ids);
    }
}

// The row of an id, among those of a tile.
DEVICE uint32_t tile_row_of(const KmerTile& tile, const TileRows& rows, uint32_t id) {
    uint32_t low = 0, high = rows.count - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (tile.rows[middle].first <= id) low = middle;
        else high = middle - 1;
    }
    return low;
}

// The same of an id near the first one of row `seam`, mostly in this row or the one before.
DEVICE uint32_t row_at_seam(const KmerTile& tile, const TileRows& rows, uint32_t seam, uint32_t id) {
    if (seam == 0 || tile.rows[seam - 1].first > id) return tile_row_of(tile, rows, id);
    if (seam == rows.count || tile.rows[seam].first > id) return seam - 1;
    return seam + 1 == rows.count || tile.rows[seam + 1].first > id ? seam : tile_row_of(tile, rows, id);
}

// Whether the k letters from a letter of the batch on are among the shared ones.
DEVICE bool are_shared(const FourLetters& four, const TileRows& rows, uint32_t letter) {
    return letter - rows.shared_from <= KMER_TILE + 2 * AROUND - four.k;
}

// The id of a letter behind a row's k-mers.
DEVICE uint32_t single_id(const Job& job, const FourLetters& four, const uint32_t* table, const KmerTile& tile,
                          const TileRows& rows, const PlainRow& row, uint32_t letter, uint32_t number, uint32_t& seen) {
    uint32_t at = row.begin + letter - rows.shared_from;
    bool is_known = are_shared(four, rows, row.begin + letter) && !(rows.any_strange && has_strange(tile, at, 1));
    return is_known ? table[NUM_LETTERS + Letters32(tile, at).kmer(0, 1)] : plain_id(job, table, row, number, seen);
}

// An id from the shared letters where they hold it, else letter by letter. A circle's k-mer may be
// `before` letters of the row's end and `behind` letters of its begin.
DEVICE uint32_t seam_id(const Job& job, const FourLetters& four, const uint32_t* table, const KmerTile& tile,
                        const TileRows& rows, const PlainRow& row, uint32_t number, uint32_t& seen) {
    uint32_t kmers = kmers_of(four, row.length);
    if (number >= kmers && !row.wraps) {
        uint32_t behind = number - kmers + (kmers ? (kmers - 1) * four.stride + four.k : 0);
        return single_id(job, four, table, tile, rows, row, behind, number, seen);
    }
    uint32_t letter = row.wraps ? circle_begin(job, number, row.length) : number * four.stride;
    uint32_t before = row.length - letter, at = row.begin + letter - rows.shared_from;
    bool is_whole = before >= four.k, shared = are_shared(four, rows, row.begin + letter);
    if (!shared || (!is_whole && !are_shared(four, rows, row.begin))) return plain_id(job, table, row, number, seen);
    uint32_t kmer = Letters32(tile, at).kmer(0, four.k);
    uint32_t behind = is_whole ? 0 : four.k - before, begin = row.begin - rows.shared_from;
    if (rows.any_strange && (has_strange(tile, at, four.k - behind) || (behind && has_strange(tile, begin, behind))))
        return four.unknown_id;
    if (is_whole) return four.first_id + kmer;
    return four.first_id + (kmer >> 2 * behind << 2 * behind | Letters32(tile, begin).kmer(0, behind));
}

// The ids around the begin of each row and around both ends of the tile's: those that no vector held.
template <class Id, uint32_t ITEMS>
DEVICE uint32_t write_seams(const Job& job, const FourLetters& four, const uint32_t* table, const KmerTile& tile,
                            const TileRows& rows, Id* out) {
    bool is_inside = tile.rows[0].inner_begin <= rows.begin_id && rows.end_id <= tile.rows[0].inner_end;
    if (is_inside && (rows.begin_id | rows.end_id) % ITEMS == 0) return 0;
    bool ends_vary = rows.circles || job.keeps_remainder;
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

// The ids that belong to a tile's letters, of which the first one lies in `row` or a row behind it.
template <class Id, bool IS_STRIDED>
DEVICE void write_tile(const Job& job, const FourLetters& four, const uint32_t* table, KmerTile& tile, uint32_t begin,
                       uint32_t row, uint32_t& seen) {
    constexpr uint32_t ITEMS = IS_STRIDED ? 4 : 16 / sizeof(Id);
    bool any_strange = pack_tile(job, four, table, begin, tile, seen);
    while (true) {
        TileRows rows = take_rows(job, four, tile, row, begin);
        bool has_ids = rows.begin_id < rows.end_id;
        rows.any_strange = any_strange;
        if (has_ids) {
            write_inside<Id, IS_STRIDED, ITEMS>(four, tile, rows, ids_out<Id>(job));
            seen |= write_seams<Id, ITEMS>(job, four, table, tile, rows, ids_out<Id>(job));
        }
        __syncwarp();
        if (rows.count < KMER_ROWS) return;
        // Rows without ids, however many, are passed over at once.
        uint64_t behind = rows.begin_id + 1ull;
        row = has_ids ? row + KMER_ROWS : first_not_before_by_warp(job.id_offsets, job.num_rows, behind) - 1;
    }
}

// The ids that the four letters have alone, by their codes, behind the table.
DEVICE void load_singles(const Job& job, const FourLetters& four, uint32_t* table) {
    if (threadIdx.x >= 4) return;
    uint32_t letter = byte_of(four.letters, threadIdx.x), code = byte_of(four.codes, threadIdx.x);
    table[NUM_LETTERS + code] = job.letter_ids[letter];
}

// A warp takes a tile at a time.
template <class Id, bool IS_STRIDED>
DEVICE void write_kmers_stage(const Job& job, uint32_t* table, KmerTile* tiles, uint32_t block, uint32_t num_blocks) {
    FourLetters four(job);
    if (four.letters) load_singles(job, four, table);
    load_letters(job, table);
    if (!four.letters) return write_any_kmers<Id>(job, table, block, num_blocks);
    uint32_t warp = threadIdx.x / 32, stride = num_blocks * (BLOCK / 32) * KMER_TILE, seen = 0;
    for (uint64_t begin = (block * (BLOCK / 32) + warp) * KMER_TILE; begin < four.num_bytes; begin += stride) {
        uint32_t row = first_not_before_by_warp(job.row_begins, job.num_rows, begin + 1) - 1;
        write_tile<Id, IS_STRIDED>(job, four, table, tiles[warp], begin, row, seen);
    }
    note_rare(job, seen);
}
