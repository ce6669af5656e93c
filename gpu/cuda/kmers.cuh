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
    return {rows.first_row + i, tile.rows[i].first, tile.begins[i], tile.lengths[i], (rows.circles >> i & 1) != 0};
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
    tile.begins[lane] = own.begin, tile.lengths[lane] = own.length;
    __syncwarp();
    PlainRow first = tile_row(tile, rows, 0), last = tile_row(tile, rows, rows.count - 1);
    rows.begin_id = first.first + (first.begin < begin ? ids_of_first(job, four, first, begin - first.begin) : 0);
    rows.end_id = last.first + ids_of_first(job, four, last, end - last.begin);
    return rows;
}

// The ids of k-mers that begin with neighbouring letters, as many as a word holds, of which `letters` are the first
// sixteen. Each id is turned to its place in the word.
template <class Id>
DEVICE uint32_t word_of_kmers(const FourLetters& four, uint32_t letters) {
    constexpr uint32_t BITS = 8 * sizeof(Id);
    uint32_t unused = 32 - 2 * four.k, ids = letters >> unused, own = ALL_LANES >> unused;
#pragma unroll
    for (uint32_t i = 1; i < 32 / BITS; i++)
        ids |= shift_right(letters, letters, (unused - (BITS + 2) * i) % 32) & own << BITS * i;
    return ids;
}

// The ids of a word, each with `id` added.
template <class Id>
DEVICE uint32_t in_all_ids(uint32_t id) {
    return sizeof(Id) == 4 ? id : sizeof(Id) == 2 ? id * 0x00010001u : id * 0x01010101u;
}

// Sixteen letters from letter `at` of the shared ones on, the first one highest.
DEVICE uint32_t letters_from(const PackedTile& tile, uint32_t at) {
    return shift_left(tile.codes[at / 16 + 1], tile.codes[at / 16], at % 16 * 2);
}

// Strides: k-mers of neighbouring letters, those of Nucleotide Transformer, and any others.
constexpr uint32_t NEIGHBOURS = 1, BY_SIX = 6, ANY_STRIDE = 0;

// Reads k-mers that begin six letters apart, as many as 16 bytes hold, from shared letter `at` on.
template <uint32_t COUNT>
struct BySix {
    static constexpr uint32_t WORDS = (12 * (COUNT - 1) + 31) / 32 + 1;
    uint32_t words[WORDS];                 // 16 letters each, the first one highest.

    DEVICE_METHOD BySix(const PackedTile& tile, uint32_t at) {
        uint32_t next = tile.codes[at / 16];
#pragma unroll
        for (uint32_t i = 0; i < WORDS; i++) {
            uint32_t word = next;
            next = tile.codes[at / 16 + i + 1];
            words[i] = shift_left(next, word, at % 16 * 2);
        }
    }

    // Letters from the i-th k-mer on.
    DEVICE_METHOD uint32_t letters(uint32_t i) const {
        uint32_t bit = 12 * i;
        return shift_left(bit / 32 + 1 < WORDS ? words[bit / 32 + 1] : 0, words[bit / 32], bit % 32);
    }
};

// 16 bytes of ids, of which letters(i) is what the i-th k-mer begins with.
template <class Id, class Letters>
DEVICE void join_ids(const FourLetters& four, Letters letters, uint32_t* words) {
    constexpr uint32_t EACH = 4 / sizeof(Id);
    uint32_t first = in_all_ids<Id>(four.first_id), unused = 32 - 2 * four.k;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        words[i] = first;
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) words[i] += letters(i * EACH + j) >> unused << 32 / EACH * j;
    }
}

// 16 bytes of ids of k-mers from shared letter `at` on, of known letters.
template <class Id, uint32_t STRIDE>
DEVICE void read_vector(const FourLetters& four, const PackedTile& tile, uint32_t at, uint32_t* words) {
    constexpr uint32_t EACH = 4 / sizeof(Id);
    if constexpr (STRIDE == NEIGHBOURS) {
        Letters32 letters(tile, at);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            words[i] = in_all_ids<Id>(four.first_id) + word_of_kmers<Id>(four, shift_left(letters.low, letters.high, 2 * EACH * i));
    } else if constexpr (STRIDE == BY_SIX) {
        BySix<4 * EACH> six(tile, at);
        join_ids<Id>(four, [&](uint32_t i) { return six.letters(i); }, words);
    } else {
        join_ids<Id>(four, [&](uint32_t i) { return letters_from(tile, at + i * four.stride); }, words);
    }
}

// The id of the k-mer from shared letter `at` on.
DEVICE uint32_t read_id(const FourLetters& four, const PackedTile& tile, bool any_strange, uint32_t at) {
    if (any_strange && has_strange(tile, at, four.k)) return four.unknown_id;
    return four.first_id + (letters_from(tile, at) >> (32 - 2 * four.k));
}

// Writes 16 bytes of neighbouring ids; one by one where some may be unknown.
template <class Id, uint32_t STRIDE>
DEVICE void write_vector(const FourLetters& four, const PackedTile& tile, bool any_strange, uint32_t at, Id* to) {
    constexpr uint32_t COUNT = 16 / sizeof(Id);
    if (any_strange && has_strange_near(tile, at, (COUNT - 1) * four.stride + four.k)) {
#pragma unroll 1
        for (uint32_t i = 0; i < COUNT; i++) to[i] = static_cast<Id>(read_id(four, tile, true, at + i * four.stride));
        return;
    }
    uint32_t words[4];
    read_vector<Id, STRIDE>(four, tile, at, words);
    store_once(reinterpret_cast<uint4*>(to), {words[0], words[1], words[2], words[3]});
}

// The vectors of ids whose k-mers lie within a row.
template <class Id, uint32_t STRIDE>
DEVICE void write_inside(const FourLetters& four, const KmerTile& tile, const TileRows& rows, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t i = 0, first = (rows.begin_id + ITEMS - 1) / ITEMS * ITEMS + (threadIdx.x & 31) * ITEMS;
    for (uint32_t id = first; id + ITEMS <= rows.end_id; id += 32 * ITEMS) {
        while (i + 1 < rows.count && tile.rows[i + 1].first <= id) i++;
        RowIds row = tile.rows[i];
        if (id < row.inner_begin || id + ITEMS > row.inner_end) continue;
        uint32_t at = row.at + id * (STRIDE == ANY_STRIDE ? four.stride : STRIDE);
        write_vector<Id, STRIDE>(four, tile, rows.any_strange, at, out + id);
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
    return letter - rows.shared_from <= TILE_LETTERS - four.k;
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
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    bool any_strange = pack_tile<KMER_TILE>(four, table, begin, tile, seen);
    while (true) {
        TileRows rows = take_rows(job, four, tile, row, begin);
        bool has_ids = rows.begin_id < rows.end_id;
        rows.any_strange = any_strange;
        if (has_ids) {
            if (!IS_STRIDED) write_inside<Id, NEIGHBOURS>(four, tile, rows, ids_out<Id>(job));
            else if (four.stride == BY_SIX) write_inside<Id, BY_SIX>(four, tile, rows, ids_out<Id>(job));
            else write_inside<Id, ANY_STRIDE>(four, tile, rows, ids_out<Id>(job));
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
DEVICE void load_singles(const Job& job, uint32_t* table) {
    if (threadIdx.x >= 4) return;
    uint32_t letter = job.four_letters >> 16 * threadIdx.x & 0xFF, code = job.four_codes >> 16 * threadIdx.x & 0xFF;
    table[NUM_LETTERS + code] = job.letter_ids[letter];
}

// A warp takes a tile at a time.
template <class Id, bool IS_STRIDED>
DEVICE void write_kmers_stage(const Job& job, uint32_t* table, KmerTile* tiles, uint32_t block, uint32_t num_blocks) {
    FourLetters four(job);
    if (job.four_letters) load_singles(job, table);
    load_letters(job, table);
    if (!job.four_letters) return write_any_kmers<Id>(job, table, block, num_blocks);
    uint32_t warp = threadIdx.x / 32, stride = num_blocks * (BLOCK / 32) * KMER_TILE, seen = 0;
    for (uint64_t begin = (block * (BLOCK / 32) + warp) * KMER_TILE; begin < four.num_bytes; begin += stride) {
        uint32_t row = first_not_before_by_warp(job.row_begins, job.num_rows, begin + 1) - 1;
        write_tile<Id, IS_STRIDED>(job, four, table, tiles[warp], begin, row, seen);
    }
    note_rare(job, seen);
}
