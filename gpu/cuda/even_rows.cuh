// K-mers of four letters in plain batches whose rows are of one length, but for the last one, which may be shorter.
//
// All rows have as many ids, so that a division tells the row of an id and nothing has to be added up: one launch
// places the ids and writes them. The host only samples the rows' lengths. Where one is another, RARE_UNEVEN
// says so and the ids are void.
//
//     place_even_rows    where the ids of each row begin
//     write_even_inside  vectors of 16 bytes that lie within the k-mers of a row
//     write_even_seams   the vectors at the ends of rows, a lane a vector or a lane an id
//
// A warp takes a tile of letters (kmer_tile.cuh) and writes the vectors whose first id belongs to one of them.
//
// Example, k = 3, stride 1, rows ACGTACGTAC and CCCCCC, ids of 32 bits: row 1 begins with id 8; the vectors 0, 1
// and 2 lie within rows. Of rows of 9 letters ids 4 .. 7 do not: they are one seam.
#pragma once
#include "kmers.cuh"

// Divides by a number that is not 0.
struct Divider {
    uint32_t number, inverse;

    DEVICE_METHOD explicit Divider(uint32_t number) : number(number), inverse(ALL_LANES / number) {}

    // The product is the quotient, or one less.
    DEVICE_METHOD uint32_t quotient(uint32_t value) const {
        uint32_t product = high_product(value, inverse);
        return product + (value - product * number >= number);
    }
};

// Rows and their ids. Rows that k-mers side by side fill are taken as one.
struct EvenRows {
    uint32_t count, length, kmers, last_kmers, total;
    Divider ids;

    DEVICE_METHOD explicit EvenRows(const Job& job)
        : count(job.even_count), length(count == 1 ? job.num_bytes : job.row_length), kmers(job.even_kmers),
          last_kmers(job.even_last_kmers), total(job.even_total), ids(job.even_ids) {}

    // Letters that no k-mer covers may give the last row more ids than others have.
    DEVICE_METHOD uint32_t row_of(uint32_t id) const { return min_of(ids.quotient(id), count - 1); }

    DEVICE_METHOD uint32_t kmers_of(uint32_t row) const { return row + 1 == count ? last_kmers : kmers; }

    // Ids of a row that are no k-mers, at most.
    DEVICE_METHOD uint32_t singles() const {
        uint32_t of_each = ids.number - kmers, of_last = total - inside();
        return of_each < of_last ? of_last : of_each;
    }

    // The ids up to the last row's last k-mer.
    DEVICE_METHOD uint32_t inside() const { return (count - 1) * ids.number + last_kmers; }

    // Ids that belong to the letters before one.
    DEVICE_METHOD uint32_t ids_before(const Job& job, const FourLetters& four, uint64_t letter) const {
        if (letter >= four.num_bytes) return total;
        uint32_t row = count == 1 ? 0 : static_cast<uint32_t>(letter) / length, begin = row * length;
        PlainRow own = {row, 0, begin, row + 1 == count ? four.num_bytes - begin : length, false};
        return row * ids.number + ids_of_first(job, four, own, static_cast<uint32_t>(letter) - begin);
    }
};

// Letters of a warp. Of neighbouring k-mers a tile's ids are more, and are all stored before they leave the caches.
constexpr uint32_t EVEN_TILE = 2048;
constexpr uint32_t EVEN_STRIDED_TILE = KMER_TILE;

// The vectors of a tile, by their first ids, and the shared letters: the first one, and how many.
struct EvenPart {
    uint32_t first, end, shared_from, num_shared;
    bool any_strange;
};

// Where the ids of all rows begin, from the number of ids of each; whether a row is of another length.
DEVICE bool place_even_rows(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t length = job.row_length, ids = job.row_ids, first = block * static_cast<uint64_t>(BLOCK) + threadIdx.x;
    bool is_uneven = false;
    for (uint64_t row = first; row < job.num_rows; row += num_blocks * BLOCK) {
        job.id_offsets[row] = row * ids;
        refuse_row(job, row);
        is_uneven |= static_cast<uint64_t>(job.row_begins[row]) != row * length;
    }
    return is_uneven;
}

// Every second lane finds where the part ends, the others where it begins.
template <uint32_t ITEMS, uint32_t LETTERS>
DEVICE EvenPart even_part(const Job& job, const FourLetters& four, const EvenRows& rows, uint64_t begin, bool any_strange) {
    uint32_t ids = rows.ids_before(job, four, begin + (threadIdx.x & 1) * LETTERS);
    uint32_t first = (ids + ITEMS - 1) / ITEMS * ITEMS;
    uint32_t shared_from = static_cast<uint32_t>(begin) - AROUND;
    uint32_t begin_id = __shfl_sync(ALL_LANES, first, 0), end_id = __shfl_sync(ALL_LANES, first, 1);
    return {begin_id, end_id, shared_from, AROUND + LETTERS + BEHIND, any_strange};
}

template <class Id, uint32_t STRIDE>
DEVICE void write_even_inside(const FourLetters& four, const EvenRows& rows, const PackedTile& tile, const EvenPart& part,
                              Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t inside = rows.inside();
    for (uint32_t id = part.first + (threadIdx.x & 31) * ITEMS; id < part.end; id += 32 * ITEMS) {
        uint32_t row = rows.ids.quotient(id), number = id - row * rows.ids.number;
        if (number + ITEMS > rows.kmers || id + ITEMS > inside) continue;
        uint32_t at = row * rows.length - part.shared_from + number * (STRIDE == ANY_STRIDE ? four.stride : STRIDE);
        write_vector<Id, STRIDE>(four, tile, part.any_strange, at, out + id);
    }
}

// An id from the shared letters, or letter by letter where they do not hold it.
DEVICE uint32_t even_id(const Job& job, const FourLetters& four, const EvenRows& rows, const PackedTile& tile,
                        const EvenPart& part, uint32_t id) {
    uint32_t row = rows.row_of(id), number = id - row * rows.ids.number, kmers = rows.kmers_of(row), seen = 0;
    bool is_kmer = number < kmers;
    uint32_t letter = is_kmer ? number * four.stride : number + (kmers ? (kmers - 1) * (four.stride - 1) + four.k - 1 : 0);
    uint32_t begin = row * rows.length, at = begin + letter - part.shared_from;
    if (!is_kmer) return job.letter_ids[job.text[begin + letter]];
    if (at + four.k > part.num_shared)
        return plain_id(job, job.letter_table, {row, 0, begin, rows.length, false}, number, seen);
    return read_id(four, tile, part.any_strange, at);
}

// The ends of rows are seams: the last ids of a row may belong to letters that no k-mer covers, and a vector may go
// on with the next row. Here a lane takes an id.
template <class Id>
DEVICE void write_seams_by_ids(const Job& job, const FourLetters& four, const EvenRows& rows, const PackedTile& tile,
                               const EvenPart& part, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t back = rows.singles(), last = part.end - 1 + back;
    uint32_t begin = rows.row_of(part.first) + 1, end = (last < rows.total ? rows.row_of(last) : rows.count) + 1;
    for (uint32_t i = threadIdx.x & 31; i < (end - begin) * ITEMS; i += 32) {
        uint32_t row = begin + i / ITEMS, seam = row < rows.count ? row * rows.ids.number : rows.total;
        uint32_t id = (seam < back ? 0 : seam - back) / ITEMS * ITEMS + i % ITEMS;
        for (; id < min_of((seam / ITEMS + 1) * ITEMS, rows.total); id += ITEMS)
            if (id >= part.first && id < part.end) out[id] = static_cast<Id>(even_id(job, four, rows, tile, part, id));
    }
}

// The same where rows have k-mers only, no fewer than a vector's, and all letters are known: a lane takes a vector.
template <class Id>
DEVICE void write_seams_by_vectors(const FourLetters& four, const EvenRows& rows, const PackedTile& tile,
                                   const EvenPart& part, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t end = rows.row_of(part.end - 1), between = rows.length - rows.ids.number * four.stride;
    for (uint32_t row = rows.row_of(part.first) + 1 + (threadIdx.x & 31); row <= end; row += 32) {
        uint32_t seam = row * rows.ids.number, before = seam % ITEMS, words[4];
        if (before == 0) continue;
        uint32_t at = row * rows.length - between - before * four.stride - part.shared_from;
        join_ids<Id>(
            four,
            [&](uint32_t i) { return letters_from(tile, at + i * four.stride + (i < before ? 0 : between)); },
            words);
        store_once(reinterpret_cast<uint4*>(out + seam - before), {words[0], words[1], words[2], words[3]});
    }
}

template <class Id>
DEVICE void write_even_seams(const Job& job, const FourLetters& four, const EvenRows& rows, const PackedTile& tile,
                             const EvenPart& part, Id* out) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    bool by_vectors = rows.singles() == 0 && rows.ids.number >= ITEMS && part.end <= rows.total && !part.any_strange;
    if (by_vectors) write_seams_by_vectors(four, rows, tile, part, out);
    else write_seams_by_ids(job, four, rows, tile, part, out);
}

// A warp takes a tile at a time.
template <class Id, bool IS_STRIDED>
DEVICE void write_even_rows_stage(const Job& job, PackedTile* tiles, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t LETTERS = IS_STRIDED ? EVEN_STRIDED_TILE : EVEN_TILE;
    FourLetters four(job);
    EvenRows rows(job);
    PackedTile& tile = tiles[threadIdx.x / 32];
    uint32_t warp = block * (BLOCK / 32) + threadIdx.x / 32, seen = 0;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * (BLOCK / 32) * LETTERS;
    for (uint64_t begin = warp * static_cast<uint64_t>(LETTERS); begin < four.num_bytes; begin += stride) {
        bool any_strange = pack_tile<LETTERS>(four, job.letter_table, begin, tile, seen);
        EvenPart part = even_part<16 / sizeof(Id), LETTERS>(job, four, rows, begin, any_strange);
        if (part.first < part.end) {
            if (!IS_STRIDED) write_even_inside<Id, NEIGHBOURS>(four, rows, tile, part, ids_out<Id>(job));
            else if (four.stride == BY_SIX) write_even_inside<Id, BY_SIX>(four, rows, tile, part, ids_out<Id>(job));
            else write_even_inside<Id, ANY_STRIDE>(four, rows, tile, part, ids_out<Id>(job));
            write_even_seams<Id>(job, four, rows, tile, part, ids_out<Id>(job));
        }
        __syncwarp();
    }
    note_rare(job, seen);
    bool is_uneven = place_even_rows(job, block, num_blocks);
    if (__any_sync(ALL_LANES, is_uneven)) atomic_or(job.status + STATUS_RARE, RARE_UNEVEN);
    if (warp + (threadIdx.x & 31) > 0) return;
    job.id_offsets[job.num_rows] = job.status[STATUS_NUM_IDS] = rows.total;
}
