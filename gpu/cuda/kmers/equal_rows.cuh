// K-mers of four letters in plain batches whose rows are of one length, but for the last one, which may be shorter.
//
// All rows have equally many ids, so a division gives the row of an id and no sums are needed: one launch places the
// ids and writes them. The host only samples the rows' lengths. Where a row has another length, the kernel sets
// FALLBACK_LENGTHS and the ids are void.
//
//     place_even_rows    where the ids of each row begin
//     write_even_inside  vectors of 16 bytes, as if each lay within the k-mers of a row
//     write_seams_by_vectors, write_seams_by_rows, write_seams_by_ids   ids at the ends of rows; a lane has a vector, a
//                        row or an id
//
// A warp takes a tile of letters (kmers/packed_tile.cuh) and writes the vectors whose first id belongs to one of them:
// to shared memory, and from there as a whole (common/bulk_store.cuh).
//
// Example, k = 3, stride 1, rows ACGTACGTAC and CCCCCC, ids of 32 bits: row 1 begins with id 8; the vectors 0, 1
// and 2 lie within rows. Of rows of 9 letters ids 4 .. 7 do not: they are one seam.
#pragma once
#include "kmers/tile_rows.cuh"
#include "kmers/vectors.cuh"

namespace warptok::kmers {

// The rows and their ids. Rows that adjacent k-mers fill without a rest count as one row.
struct EvenRows {
    uint32_t count, kmers, last_kmers, total;
    Divider length, ids;

    DEVICE_METHOD explicit EvenRows(const Job& job)
        : count(job.kmers.even_count),
          kmers(job.kmers.even_kmers),
          last_kmers(job.kmers.even_last_kmers),
          total(job.kmers.even_total),
          length(job.kmers.even_length, job.kmers.even_length_inverse),
          ids(job.kmers.even_ids, job.kmers.even_ids_inverse) {}

    // The last row may have more ids than others, for letters that no k-mer covers.
    DEVICE_METHOD uint32_t row_of(uint32_t id) const { return min_of(ids.quotient(id), count - 1); }

    DEVICE_METHOD uint32_t kmers_of(uint32_t row) const { return row + 1 == count ? last_kmers : kmers; }

    // The most ids of a row that are no k-mers.
    DEVICE_METHOD uint32_t singles() const {
        uint32_t of_each = ids.number - kmers, of_last = total - inside();
        return of_each < of_last ? of_last : of_each;
    }

    // The number of ids up to the last row's last k-mer.
    DEVICE_METHOD uint32_t inside() const { return (count - 1) * ids.number + last_kmers; }

    // The number of ids that belong to the letters before `letter`.
    DEVICE_METHOD uint32_t ids_before(const FourLetters& four, uint64_t letter) const {
        if (letter >= four.num_bytes) return total;
        uint32_t row = length.quotient(static_cast<uint32_t>(letter)), own = kmers_of(row);
        uint32_t letters = static_cast<uint32_t>(letter) - row * length.number;
        uint32_t covered = own ? (own - 1) * four.stride + four.k : 0;
        uint32_t begun = min_of(own, four.stride == 1 ? letters : four.strides.quotient(letters + four.stride - 1));
        return row * ids.number + begun + (singles() && letters > covered ? letters - covered : 0);
    }
};

// The most ids of a tile whose k-mers are no neighbours: one for six letters, and some more.
constexpr uint32_t STRIDED_IDS = 768;

// What a warp has in shared memory.
template <class Id, KmerStep STEP>
using EvenTile = StagedTile<Id, STEP == KmerStep::STRIDED ? TILE_LETTERS : STAGED_BYTES / sizeof(Id),
                            STEP == KmerStep::STRIDED ? STRIDED_IDS : STAGED_BYTES / sizeof(Id)>;

// The vectors of a tile, by their first ids, and the first shared letter and the number of shared letters.
struct EvenPart {
    uint32_t first, end, shared_from, num_shared;
    bool any_strange;
};

// Writes where the ids of each row begin; returns whether this thread has met a row of another length.
DEVICE bool place_even_rows(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t length = job.kmers.row_length, ids = job.kmers.row_ids;
    uint64_t first = block * static_cast<uint64_t>(BLOCK) + threadIdx.x;
    RowFaults faults(job);
    bool is_uneven = false;
    for (uint64_t row = first; row < job.batch.num_rows; row += num_blocks * BLOCK) {
        job.answer.id_offsets[row] = row * ids;
        faults.look_at(row);
        is_uneven |= static_cast<uint64_t>(job.rows.row_begins[row]) != row * length;
    }
    if (first == 0) faults.finish();
    return is_uneven;
}

// Places all rows, reports rows of another length, and writes the number of ids of the batch.
DEVICE void finish_even_rows(const Job& job, uint32_t block, uint32_t num_blocks) {
    bool is_uneven = place_even_rows(job, block, num_blocks);
    if (__any_sync(ALL_LANES, is_uneven)) atomic_or(job.answer.status + STATUS_FALLBACK, FALLBACK_LENGTHS);
    if (block + threadIdx.x == 0)
        job.answer.id_offsets[job.batch.num_rows] = job.answer.status[STATUS_NUM_IDS] = job.kmers.even_total;
}

// The part of a tile. Every second lane finds where it ends, the others where it begins.
template <uint32_t ITEMS, uint32_t LETTERS, uint32_t SHARED_LETTERS>
DEVICE EvenPart even_part(const FourLetters& four, const EvenRows& rows, uint64_t begin) {
    uint32_t ids = rows.ids_before(four, begin + (threadIdx.x & 1) * LETTERS);
    uint32_t first = (ids + ITEMS - 1) / ITEMS * ITEMS;
    uint32_t shared_from = static_cast<uint32_t>(begin) - AROUND;
    uint32_t begin_id = __shfl_sync(ALL_LANES, first, 0), end_id = __shfl_sync(ALL_LANES, first, 1);
    return {begin_id, end_id, shared_from, SHARED_LETTERS, false};
}

// A part is simple if all its letters are known, each row has a vector of k-mers, and its last row goes on behind it.
enum class PartKind { ANY, SIMPLE };

// Writes vectors of a part as if all ids of each were of the row of its first id: all vectors of a simple part, else
// only those that lie within a row. From step to step a lane moves on by the ids that the warp writes at a time, which
// are a fixed number of rows and of further ids.
template <class Id, uint32_t STRIDE, PartKind KIND, class Tile>
DEVICE void write_even_inside(const FourLetters& four, const EvenRows& rows, const Tile& tile, const EvenPart& part,
                              Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id), STEP = 32 * ITEMS;
    constexpr bool IS_SIMPLE = KIND == PartKind::SIMPLE;
    if (!IS_SIMPLE && (rows.kmers < ITEMS || rows.inside() < ITEMS)) return;
    uint32_t stride = STRIDE == ANY_STRIDE ? four.stride : STRIDE, ids = rows.ids.number, inner = rows.kmers - ITEMS;
    uint32_t id = part.first + (threadIdx.x & 31) * ITEMS, row = rows.ids.quotient(id), number = id - row * ids;
    uint32_t at = row * rows.length.number - part.shared_from + number * stride;
    uint32_t step_rows = rows.ids.quotient(STEP), step = STEP - step_rows * ids;
    uint32_t step_at = step_rows * rows.length.number + step * stride, between = rows.length.number - ids * stride;
    uint32_t end = (IS_SIMPLE ? part.end : min_of(part.end, rows.inside() - ITEMS + 1)) - part.first;
    for (id -= part.first; static_cast<int32_t>(id) < static_cast<int32_t>(end); id += STEP) {
        // Ids of letters alone are written over: what is read for them has to be shared, and no more.
        uint32_t from = IS_SIMPLE && STRIDE != NEIGHBOURS ? min_of(at, AROUND + Tile::OWN_LETTERS) : at;
        if (IS_SIMPLE || number <= inner)
            write_vector<Id, STRIDE>(four, tile, !IS_SIMPLE && part.any_strange, from, out + id);
        number += step, at += step_at;
        if (number >= ids) number -= ids, at += between;
    }
}

// An id, from the shared letters, or letter by letter where these do not hold all of its letters.
template <class Tile>
DEVICE uint32_t even_id(const Job& job, const FourLetters& four, const EvenRows& rows, const Tile& tile,
                        const EvenPart& part, uint32_t id) {
    uint32_t row = rows.row_of(id), number = id - row * rows.ids.number, kmers = rows.kmers_of(row), seen = 0;
    bool is_kmer = number < kmers;
    uint32_t letter =
        is_kmer ? number * four.stride : number + (kmers ? (kmers - 1) * (four.stride - 1) + four.k - 1 : 0);
    uint32_t begin = row * rows.length.number, at = begin + letter - part.shared_from;
    bool is_shared = at + (is_kmer ? four.k : 1) <= part.num_shared;
    if (!is_kmer && is_shared && !part.any_strange) return tile.singles[letters_from(tile, at) >> 30];
    if (!is_kmer) return job.kmers.letter_ids[job.batch.text[begin + letter]];
    if (!is_shared)
        return plain_id(job, job.kmers.letter_table, {row, 0, begin, rows.length.number, false}, number, seen);
    return read_id(four, tile, part.any_strange, at);
}

// Writes the ids at seams, which are the ends of rows: the last ids of a row may belong to letters that no k-mer
// covers, and a vector may go on with the next row. Here a lane takes an id.
template <class Id, class Tile>
DEVICE void write_seams_by_ids(const Job& job, const FourLetters& four, const EvenRows& rows, const Tile& tile,
                               const EvenPart& part, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t back = rows.singles(), last = part.end - 1 + back;
    uint32_t begin = rows.row_of(part.first) + 1, end = (last < rows.total ? rows.row_of(last) : rows.count) + 1;
    for (uint32_t i = threadIdx.x & 31; i < (end - begin) * ITEMS; i += 32) {
        uint32_t row = begin + i / ITEMS, seam = row < rows.count ? row * rows.ids.number : rows.total;
        uint32_t id = (seam < back ? 0 : seam - back) / ITEMS * ITEMS + i % ITEMS;
        for (; id < min_of((seam / ITEMS + 1) * ITEMS, rows.total); id += ITEMS)
            if (id >= part.first && id < part.end)
                out[id - part.first] = static_cast<Id>(even_id(job, four, rows, tile, part, id));
    }
}

// Writes the seams of a simple part whose k-mers are neighbours: a lane takes a row and joins its first ids into the
// vector that is there.
template <class Id, class Tile>
DEVICE void write_seams_by_vectors(const FourLetters& four, const EvenRows& rows, const Tile& tile,
                                   const EvenPart& part, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t end = rows.row_of(part.end - 1);
    for (uint32_t row = rows.row_of(part.first) + 1 + (threadIdx.x & 31); row <= end; row += 32) {
        uint32_t seam = row * rows.ids.number, before = seam % ITEMS;
        uint32_t next = row * rows.length.number - part.shared_from - before;
        if (before) join_vector<Id, NEIGHBOURS>(four, tile, next, before, out + (seam - before - part.first));
    }
}

// Writes the seams of a simple part whose k-mers are no neighbours: a lane takes a row's begin, and writes the ids of
// single letters before it and the ids behind it that are in its vector.
template <class Id, class Tile>
DEVICE void write_seams_by_rows(const FourLetters& four, const EvenRows& rows, const Tile& tile, const EvenPart& part,
                                Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    constexpr uint32_t LANES = 4;          // Of a row.
    uint32_t singles = rows.ids.number - rows.kmers, end = rows.row_of(part.end - 1 + singles), lane = threadIdx.x & 31;
    for (uint32_t row = rows.row_of(part.first) + 1 + lane / LANES; row <= end; row += 32 / LANES) {
        uint32_t seam = row * rows.ids.number, at = row * rows.length.number - part.shared_from;
        uint32_t behind = min_of(part.end, (seam + ITEMS - 1) / ITEMS * ITEMS);
        for (uint32_t id = max_of(part.first, seam - singles) + lane % LANES; id < behind; id += LANES) {
            bool is_single = id < seam;
            uint32_t letters = letters_from(tile, at + (id - seam) * (is_single ? 1 : four.stride));
            uint32_t kmer = four.first_id + (letters >> (32 - 2 * four.k));
            out[id - part.first] = static_cast<Id>(is_single ? tile.singles[letters >> 30] : kmer);
        }
    }
}

// Writes the ids of a part whose k-mers are all unknown.
template <class Id>
DEVICE void stage_unknown(const FourLetters& four, const EvenPart& part, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t word = in_all_ids<Id>(four.unknown_id);
    for (uint32_t i = (threadIdx.x & 31) * ITEMS; i < part.end - part.first; i += 32 * ITEMS)
        stage_vector(out + i, {word, word, word, word});
}

// Writes the ids of a part. Most parts are simple.
template <class Id, uint32_t STRIDE, class Tile>
DEVICE void stage_even_part(const Job& job, const FourLetters& four, const EvenRows& rows, const Tile& tile,
                            const EvenPart& part, Id* out) {
    if (part.any_strange || rows.kmers < 16 / sizeof(Id) || part.end > rows.inside()) {
        bool are_kmers = STRIDE == NEIGHBOURS && part.any_strange && !rows.singles();
        if (are_kmers && are_all_strange(tile)) return stage_unknown(four, part, out);
        write_even_inside<Id, STRIDE, PartKind::ANY>(four, rows, tile, part, out);
        return write_seams_by_ids(job, four, rows, tile, part, out);
    }
    write_even_inside<Id, STRIDE, PartKind::SIMPLE>(four, rows, tile, part, out);
    __syncwarp();
    if constexpr (STRIDE == NEIGHBOURS) write_seams_by_vectors(four, rows, tile, part, out);
    else write_seams_by_rows(four, rows, tile, part, out);
}

// Writes the ids of a tile.
template <class Id, KmerStep STEP>
DEVICE void write_even_tile(const Job& job, const FourLetters& four, const EvenRows& rows, EvenTile<Id, STEP>& tile,
                            EvenPart part) {
    Id* out = ids_out<Id>(job);
    for (uint32_t end = part.end; part.first < end; part.first = part.end) {
        part.end = min_of(end, part.first + tile.MOST_IDS);
        wait_for_stores();
        if (STEP == KmerStep::NEIGHBOURS) stage_even_part<Id, NEIGHBOURS>(job, four, rows, tile, part, tile.ids);
        else if (four.stride == BY_SIX) stage_even_part<Id, BY_SIX>(job, four, rows, tile, part, tile.ids);
        else stage_even_part<Id, ANY_STRIDE>(job, four, rows, tile, part, tile.ids);
        store_staged(tile.ids, out + part.first, min_of(part.end, rows.total) - part.first);
    }
}

// Writes the ids of all tiles; a warp takes a tile at a time.
template <class Id, KmerStep STEP>
DEVICE void write_even_rows_stage(const Job& job, EvenTile<Id, STEP>* tiles, uint32_t block, uint32_t num_blocks) {
    using Tile = EvenTile<Id, STEP>;
    constexpr uint32_t LETTERS = Tile::OWN_LETTERS;
    FourLetters four = four_letters<STEP>(job);
    EvenRows rows(job);
    Tile& tile = tiles[threadIdx.x / 32];
    if (rows.singles()) load_singles(job, tile.singles);
    uint32_t warp = block * (BLOCK / 32) + threadIdx.x / 32, seen = 0;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * (BLOCK / 32) * LETTERS;
    for (uint64_t begin = warp * static_cast<uint64_t>(LETTERS); begin < four.num_bytes; begin += stride) {
        EvenPart part = even_part<16 / sizeof(Id), LETTERS, Tile::SHARED_LETTERS>(four, rows, begin);
        part.any_strange = pack_text(four, job.kmers.letter_table, begin, tile, seen, [] {});
        write_even_tile<Id, STEP>(job, four, rows, tile, part);
    }
    note_fallback(job, seen);
    finish_even_rows(job, block, num_blocks);
    wait_for_stores();
}

}  // namespace warptok::kmers
