// Batches in which every row is one run of letters.
//
//     place_rows (kmers/row_offsets.cuh)    how many ids each row has, from its length alone, where they begin, and
//                                           the first row of each tile
//     write_kmers (kmers/any_rows.cuh)      the ids; this header has those that are found letter by letter
//     write_letters (kmers/characters.cuh)  both at once where every letter is an id
//
// The kernels read every byte of every row. If they meet a letter that is not plain (a character that is not ASCII, one
// that may be in a special token, or one that ends a run), the ids are void, STATUS_FALLBACK says which it was, and the
// kernels of kmers/kernels.cu write the ids again.
//
// Example, k = 3, stride 1: the rows ACGTA and CC have 3 and 0 ids.
#pragma once
#include "kmers/letters.cuh"

namespace warptok::kmers {

// A byte for each of four letters, each followed by an unused byte.
struct OfFour {
    uint32_t low, high;

    DEVICE_METHOD explicit OfFour(uint64_t bytes)
        : low(static_cast<uint32_t>(bytes)), high(static_cast<uint32_t>(bytes >> 32)) {}

    // The bytes of the four letters that a selector chooses, see four_selector.
    DEVICE_METHOD uint32_t chosen(uint32_t selector) const { return permute_bytes(low, high, selector); }
};

// Divides by a number that is not 0.
struct Divider {
    uint32_t number, inverse;

    DEVICE_METHOD Divider(uint64_t number, uint64_t inverse)
        : number(static_cast<uint32_t>(number)), inverse(static_cast<uint32_t>(inverse)) {}

    DEVICE_METHOD explicit Divider(uint32_t number) : number(number), inverse(ALL_LANES / number) {}

    // The product is the quotient, or one less.
    DEVICE_METHOD uint32_t quotient(uint32_t value) const {
        uint32_t product = high_product(value, inverse);
        return product + (value - product * number >= number);
    }

    DEVICE_METHOD uint32_t rest(uint32_t value) const { return value - quotient(value) * number; }
};

// Four letters that differ in their bits 1 and 2, as A, C, T and G do, and the fields of the Job that ids need. They
// are copies in registers, because the compiler must assume that a store changes the Job. Codes are those of k-mers, or
// the ids of characters.
struct FourLetters {
    OfFour letters, codes;
    uint32_t fold;
    uint32_t k, stride, shift, first_id, unknown_id;
    uint32_t num_bytes;                    // Places in a batch have 32 bits (gpu/memory/workspace_pool.py).
    uint32_t last_place;                   // Of sixteen letters, a multiple of 16.
    const uint8_t* text;
    Divider strides;
    const Job& job;                        // For fields that are seldom read.

    DEVICE_METHOD explicit FourLetters(const Job& job)
        : letters(job.kmers.four_letters), codes(job.kmers.four_codes), fold(job.kmers.four_fold), k(job.kmers.kmer_k),
          stride(job.kmers.kmer_stride), shift(job.kmers.kmer_shift), first_id(job.kmers.kmer_first_id),
          unknown_id(job.kmers.kmer_unknown_id), num_bytes(job.batch.num_bytes),
          last_place((num_bytes ? num_bytes - 1 : 0) / 16 * 16), text(job.batch.text), strides(stride), job(job) {}

    // The four letters of k-mers of neighbouring letters: the stride of 1 is known to the compiler.
    DEVICE_METHOD static FourLetters of_neighbours(const Job& job) {
        FourLetters four(job);
        four.stride = 1;
        return four;
    }
};

// Whether an id begins at each letter, or at every letter that is a multiple of the stride.
enum class KmerStep { NEIGHBOURS, STRIDED };

template <KmerStep STEP>
DEVICE FourLetters four_letters(const Job& job) {
    return STEP == KmerStep::STRIDED ? FourLetters(job) : FourLetters::of_neighbours(job);
}

// The selector of permute_bytes for four letters: a nibble for each letter, the first one lowest.
DEVICE uint32_t four_selector(uint32_t word) {
    uint32_t places = word & 0x06060606;   // Twice the two bits.
    return permute_bytes(places | places >> 4, 0, 0x3120);
}

// The number of k-mers in a run of `length` letters.
DEVICE uint32_t kmers_of(const FourLetters& four, uint32_t length) {
    uint32_t more = length - four.k, steps = four.stride == 1 ? more : four.strides.quotient(more);
    return length < four.k ? 0 : steps + 1;
}

// The number of ids of a row of `length` letters that does not wrap.
DEVICE uint32_t ids_of_letters(const FourLetters& four, bool keeps_remainder, uint32_t length) {
    uint32_t kmers = kmers_of(four, length);
    if (!keeps_remainder) return kmers;
    return kmers ? length - (kmers - 1) * (four.stride - 1) - (four.k - 1) : length;
}

// Whether a row is at fault: it cannot be the circle that it should be, or was augmented and is not ASCII.
DEVICE bool is_no_row(const Job& job, uint64_t row) {
    uint64_t length = job.rows.row_begins[row + 1] - job.rows.row_begins[row];
    return (is_circle(job, row) && (!job.kmers.can_wrap || length < job.kmers.kmer_k)) || is_no_sequence(job, row);
}

// Notes the faults of rows. Most batches have no row that may be refused, which is noted once for all rows.
struct RowFaults {
    const Job& job;
    bool may_refuse;

    DEVICE_METHOD explicit RowFaults(const Job& job)
        : job(job), may_refuse(job.rows.row_flags || job.kmers.wraps || job.augmentation.sent_text) {}

    DEVICE_METHOD void look_at(uint64_t row) const {
        if (!may_refuse) return;
        job.rows.row_errors[row] = NO_BYTE;
        job.rows.row_refused[row] = is_no_row(job, row) ? static_cast<uint32_t>(job.rows.row_begins[row]) : NO_BYTE;
    }

    // One thread of the launch calls it.
    DEVICE_METHOD void finish() const {
        if (!may_refuse) atomic_or(job.answer.status + STATUS_ROWS, ROWS_ARE_RIGHT);
    }
};

// The numbers of ids of rows, which follow from their lengths alone.
struct RowLengths {
    const int64_t* begins;
    FourLetters four;
    bool can_wrap, keeps_remainder;

    DEVICE_METHOD explicit RowLengths(const Job& job)
        : begins(job.rows.row_begins),
          four(job),
          can_wrap(job.kmers.can_wrap),
          keeps_remainder(job.kmers.keeps_remainder) {}

    DEVICE_METHOD uint32_t ids_of(const Job& job, uint64_t row) const {
        uint32_t length = static_cast<uint32_t>(__ldg(begins + row + 1) - __ldg(begins + row));
        return can_wrap && is_circle(job, row) ? length : ids_of_letters(four, keeps_remainder, length);
    }
};

// Stores neighbouring ids as one vector of at most 16 bytes.
template <class Id, uint32_t COUNT>
DEVICE void store_ids(Id* to, const uint32_t* ids) {
    constexpr uint32_t WORDS = COUNT * sizeof(Id) / 4, EACH = 4 / sizeof(Id);
    uint32_t words[WORDS];
#pragma unroll
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = ids[i * EACH];
        if constexpr (EACH == 2) words[i] = low_halves(ids[2 * i], ids[2 * i + 1]);
        if constexpr (EACH == 4)
            words[i] = low_halves(ids[4 * i] | ids[4 * i + 1] << 8, ids[4 * i + 2] | ids[4 * i + 3] << 8);
    }
    if constexpr (WORDS == 4) store_once(reinterpret_cast<uint4*>(to), {words[0], words[1], words[2], words[3]});
    if constexpr (WORDS == 2) *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
    if constexpr (WORDS == 1) *reinterpret_cast<uint32_t*>(to) = words[0];
}

template <class Id>
DEVICE Id* ids_out(const Job& job) {
    if constexpr (sizeof(Id) == 4) return reinterpret_cast<Id*>(job.answer.ids);
    return reinterpret_cast<Id*>(job.answer.narrow_ids);
}

// A row of which ids are written.
struct PlainRow {
    uint32_t number, first;                // Its number and its first id.
    uint32_t begin, length;                // Its letters.
    bool wraps;
};

DEVICE PlainRow plain_row(const Job& job, uint32_t row) {
    uint32_t begin = job.rows.row_begins[row], length = static_cast<uint32_t>(job.rows.row_begins[row + 1]) - begin;
    bool wraps = job.kmers.can_wrap && is_circle(job, row);
    return {row, static_cast<uint32_t>(job.answer.id_offsets[row]), begin, length, wraps};
}

// Id `number` of a row, found letter by letter.
DEVICE uint32_t plain_id(const Job& job, const uint32_t* table, const PlainRow& row, uint32_t number, uint32_t& seen) {
    const uint8_t* text = job.batch.text + row.begin;
    if (!row.wraps && number * job.kmers.kmer_stride + job.kmers.kmer_k > row.length) {  // Behind the k-mers.
        uint32_t letter = text[covered_letters(job, row.length) + number - num_kmers(job, row.length)];
        seen |= table[letter];
        return job.kmers.letter_ids[letter];
    }
    uint64_t begin = row.wraps ? circle_begin(job, number, row.length) : number * job.kmers.kmer_stride;
    return kmer_id(job, [&](uint64_t i) {
        uint64_t at = begin + i < row.length ? begin + i : (begin + i) % row.length;
        uint32_t entry = table[text[at]];
        seen |= entry;
        return entry;
    });
}

// The rows of a warp's part of the ids.
struct RowRange {
    uint32_t first, last;
};

DEVICE RowRange rows_of_ids(const Job& job, uint64_t begin, uint64_t end) {
    uint64_t first = first_not_before_by_warp(job.answer.id_offsets, job.batch.num_rows, begin + 1) - 1, last = first;
    if (static_cast<uint64_t>(job.answer.id_offsets[first + 1]) < end)
        last = first_not_before_by_warp(job.answer.id_offsets, job.batch.num_rows, end) - 1;
    return {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
}

// The row of an id of a warp's part.
DEVICE uint32_t row_of_id_in(const Job& job, const RowRange& rows, uint32_t place) {
    return rows.first + last_not_behind(job.answer.id_offsets + rows.first, rows.last - rows.first + 1, place);
}

// Writes up to `count` ids from `begin` on, one by one; returns the entries of the table that were seen.
template <class Id>
DEVICE uint32_t write_slowly(const Job& job, const uint32_t* table, const RowRange& rows, uint32_t begin,
                             uint32_t count) {
    uint32_t seen = 0, end = job.answer.id_offsets[job.batch.num_rows];
    if (end > begin + count) end = begin + count;
    if (begin >= end) return 0;
    PlainRow row = plain_row(job, row_of_id_in(job, rows, begin));
    for (uint32_t place = begin; place < end; place++) {
        uint64_t number = row_from(job.answer.id_offsets, job.batch.num_rows, row.number, place);
        if (number != row.number) row = plain_row(job, static_cast<uint32_t>(number));
        ids_out<Id>(job)[place] = static_cast<Id>(plain_id(job, table, row, place - row.first, seen));
    }
    return seen;
}

// The entries of the letters of a row that no k-mer covers, or-ed.
DEVICE uint32_t look_behind_kmers(const Job& job, const uint32_t* table, uint64_t row) {
    uint64_t begin = job.rows.row_begins[row], length = job.rows.row_begins[row + 1] - begin;
    uint32_t seen = 0;
    for (uint64_t i = covered_letters(job, length); i < length; i++) seen |= table[job.batch.text[begin + i]];
    return seen;
}

// Writes the ids of k-mers over other letters than kmers/any_rows.cuh reads: a warp takes a part of the ids, and a
// thread takes neighbouring ids of it.
template <class Id>
DEVICE void write_any_kmers(const Job& job, const uint32_t* table, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t ITEMS = 4, ROUNDS = 8, PART = ROUNDS * 32 * ITEMS;
    uint32_t total = job.answer.id_offsets[job.batch.num_rows], warp = block * (BLOCK / 32) + threadIdx.x / 32;
    uint32_t stride = num_blocks * (BLOCK / 32) * PART, seen = 0;
    for (uint64_t row = block * BLOCK + threadIdx.x; row < job.batch.num_rows; row += num_blocks * BLOCK)
        seen |= look_behind_kmers(job, table, row);
    for (uint32_t part = warp * PART; part < total; part += stride) {
        RowRange rows = rows_of_ids(job, part, min_of(part + PART, total));
        uint32_t first = part + (threadIdx.x & 31) * ITEMS;
        for (uint32_t round = 0; round < ROUNDS; round++)
            seen |= write_slowly<Id>(job, table, rows, first + round * 32 * ITEMS, ITEMS);
    }
    note_fallback(job, seen);
}

}  // namespace warptok::kmers
