// Batches in which every row is one run of letters: two kernels.
//
//     place_rows     how many ids each row has, from its length alone, and where they begin
//     write_plain    the ids, a vector of 16 bytes a thread
//
// What is not plain (a character that is not ASCII, what may be a special token, what ends a run) is
// seen on the way: then the ids are void, STATUS_RARE says what it was, and other kernels follow. Every
// byte of every row is looked at by one of the two.
//
// Example, k = 3, stride 1: the rows ACGTA and CC have 3 and 0 ids; place_rows looks at CC.
#pragma once
#include "letters.cuh"

// Ids of a row; what no k-mer covers is looked at here, where it has no id.
DEVICE uint64_t place_row(const Job& job, const uint32_t* table, uint64_t row, uint32_t& seen) {
    uint64_t begin = job.row_begins[row], length = job.row_begins[row + 1] - begin;
    job.row_errors[row] = NO_BYTE;
    job.row_refused[row] = is_no_sequence(job, row) ? static_cast<uint32_t>(begin) : NO_BYTE;
    if (is_circle(job, row)) {
        if (!job.can_wrap || length < job.kmer_k) job.row_refused[row] = begin;
        if (job.can_wrap) return length;
    }
    uint64_t covered = covered_letters(job, length);
    if (job.keeps_remainder) return num_kmers(job, length) + length - covered;
    for (uint64_t i = covered; i < length; i++) seen |= table[job.text[begin + i]];
    return num_kmers(job, length);
}

DEVICE void place_rows_stage(const Job& job, ScanShared& shared, uint32_t* table) {
    load_letters(job, table);
    uint32_t seen = 0;
    scan(job.place_states, job.num_rows, shared,
         [&](uint64_t row) { return place_row(job, table, row, seen); },
         [&](uint64_t row, uint64_t before) {
             job.id_offsets[row] = before;
             if (row == job.num_rows) job.status[STATUS_NUM_IDS] = before;
         });
    note_rare(job, seen);
}

// Neighbouring ids as one vector of at most 16 bytes.
template <class Id, uint32_t COUNT>
DEVICE void store_ids(Id* to, const uint32_t* ids) {
    constexpr uint32_t WORDS = COUNT * sizeof(Id) / 4, EACH = 4 / sizeof(Id);
    uint32_t words[WORDS];
#pragma unroll
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = 0;
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) words[i] |= ids[i * EACH + j] << j * (32 / EACH);
    }
    if constexpr (WORDS == 4) *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    if constexpr (WORDS == 2) *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
    if constexpr (WORDS == 1) *reinterpret_cast<uint32_t*>(to) = words[0];
}

template <class Id>
DEVICE Id* ids_out(const Job& job) {
    if constexpr (sizeof(Id) == 4) return reinterpret_cast<Id*>(job.ids);
    return reinterpret_cast<Id*>(job.packed);
}

// Where k is 1 and nothing wraps: id i is that of byte i.
template <class Id>
DEVICE void write_letters_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id), WORDS = ITEMS / 4;
    load_letters(job, table);
    const uint8_t* text = job.text;
    Id* out = ids_out<Id>(job);
    uint32_t stride = num_blocks * BLOCK * ITEMS, num_bytes = job.num_bytes, seen = 0;
    for (uint32_t begin = (block * BLOCK + threadIdx.x) * ITEMS; begin < num_bytes; begin += stride) {
        uint32_t words[WORDS], ids[ITEMS];
        if constexpr (WORDS == 1) words[0] = __ldg(reinterpret_cast<const uint32_t*>(text + begin));
        if constexpr (WORDS == 2) {
            uint2 two = __ldg(reinterpret_cast<const uint2*>(text + begin));
            words[0] = two.x, words[1] = two.y;
        }
        if constexpr (WORDS == 4) {
            uint4 four = __ldg(reinterpret_cast<const uint4*>(text + begin));
            words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
        }
        bool is_whole = begin + ITEMS <= num_bytes;
#pragma unroll
        for (uint32_t i = 0; i < ITEMS; i++) {
            uint32_t entry = table[words[i / 4] >> i % 4 * 8 & 0xFF];
            if (is_whole || begin + i < num_bytes) seen |= entry;
            ids[i] = entry & VALUE_BITS;
        }
        if (is_whole) store_ids<Id, ITEMS>(out + begin, ids);
#pragma unroll
        for (uint32_t i = 0; i < ITEMS; i++)
            if (!is_whole && begin + i < num_bytes) out[begin + i] = static_cast<Id>(ids[i]);
    }
    note_rare(job, seen);
}

// A row of which ids are written. Places in a batch have 32 bits (gpu/workspaces.py).
struct PlainRow {
    uint32_t number, first;                // Its number and its first id.
    uint32_t begin, length;                // Its letters.
    bool wraps;
};

DEVICE PlainRow plain_row(const Job& job, uint32_t row) {
    uint32_t begin = job.row_begins[row], length = static_cast<uint32_t>(job.row_begins[row + 1]) - begin;
    bool wraps = job.can_wrap && is_circle(job, row);
    return {row, static_cast<uint32_t>(job.id_offsets[row]), begin, length, wraps};
}

// Id `number` of a row, letter by letter.
DEVICE uint32_t plain_id(const Job& job, const uint32_t* table, const PlainRow& row, uint32_t number, uint32_t& seen) {
    const uint8_t* text = job.text + row.begin;
    if (!row.wraps && number * job.kmer_stride + job.kmer_k > row.length) {  // Behind the k-mers.
        uint32_t letter = text[covered_letters(job, row.length) + number - num_kmers(job, row.length)];
        seen |= table[letter];
        return job.letter_ids[letter];
    }
    uint64_t begin = row.wraps ? circle_begin(job, number, row.length) : number * job.kmer_stride;
    return kmer_id(job, [&](uint64_t i) {
        uint32_t entry = table[text[row.wraps ? (begin + i) % row.length : begin + i]];
        seen |= entry;
        return entry;
    });
}

// What the fast way needs of the Job, in registers: a store might change the Job's own.
struct FourLetters {
    const uint32_t* text;
    uint32_t letters, codes, fold;
    uint32_t k, stride, shift, first_id;

    DEVICE_METHOD explicit FourLetters(const Job& job)
        : text(reinterpret_cast<const uint32_t*>(job.text)), letters(job.four_letters), codes(job.four_codes),
          fold(job.four_fold), k(job.kmer_k), stride(job.kmer_stride), shift(job.kmer_shift),
          first_id(job.kmer_first_id) {}
};

// The codes of 4 * num_words letters from a place on, two bits each, the last one lowest; whether all of
// them are among the four. Bits 1 and 2 of a letter tell the four apart, as they do A, C, T and G.
DEVICE bool four_letter_codes(const FourLetters& four, uint32_t place, uint32_t num_words, uint64_t& codes) {
    const uint32_t* text = four.text + place / 4;
    uint32_t shift = place % 4 * 8, low = __ldg(text), differ = 0;
    codes = 0;
#pragma unroll
    for (uint32_t i = 0; i < 7; i++) {
        if (i >= num_words) break;
        uint32_t high = __ldg(text + i + 1), word = shift_right(low, high, shift);
        uint32_t two_bits = word >> 1 & 0x03030303, nibbles = two_bits | two_bits >> 4;
        uint32_t selector = (nibbles & 0xFF) | (nibbles >> 8 & 0xFF00);
        differ |= permute_bytes(four.letters, selector) ^ (word & four.fold);
        // Four codes a, b, c, d in bytes, a lowest, become a << 6 | b << 4 | c << 2 | d.
        codes = codes << 8 | permute_bytes(four.codes, selector) * 0x40100401u >> 24;
        low = high;
    }
    return !differ;
}

// The ids of the k-mers at `place`, `place` + stride ...; false where a letter is none of the four.
template <uint32_t COUNT>
DEVICE bool four_letter_ids(const FourLetters& four, uint32_t place, uint32_t* ids) {
    uint32_t num_words = ((COUNT - 1) * four.stride + four.k + 3) / 4, mask = (1u << 2 * four.k) - 1;
    uint64_t codes;
    if (!four_letter_codes(four, place, num_words, codes)) return false;
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t behind = 4 * num_words - i * four.stride - four.k;
        ids[i] = four.first_id + (static_cast<uint32_t>(codes >> 2 * behind) & mask);
    }
    return true;
}

// COUNT neighbouring ids of a row from `number` on, where they are k-mers that do not wrap.
template <uint32_t COUNT, bool IS_STRIDED>
DEVICE bool neighbouring_ids(const FourLetters& four, const PlainRow& row, uint32_t number, uint32_t* ids) {
    if (!four.letters || (row.wraps && number < four.shift)) return false;
    uint32_t letter = (row.wraps ? number - four.shift : number) * four.stride;
    if (letter + (COUNT - 1) * four.stride + four.k > row.length) return false;
    uint32_t begin = row.begin + letter;
    if constexpr (IS_STRIDED)              // As many letters as fit in 64 bits.
        return four_letter_ids<COUNT / 2>(four, begin, ids) &&
               four_letter_ids<COUNT / 2>(four, begin + COUNT / 2 * four.stride, ids + COUNT / 2);
    return four_letter_ids<COUNT>(four, begin, ids);
}

// The rows of a warp's part of the ids.
struct RowRange {
    uint32_t first, last;
};

DEVICE RowRange rows_of_ids(const Job& job, uint64_t begin, uint64_t end) {
    uint64_t first = first_not_before_by_warp(job.id_offsets, job.num_rows, begin + 1) - 1, last = first;
    if (static_cast<uint64_t>(job.id_offsets[first + 1]) < end)
        last = first_not_before_by_warp(job.id_offsets, job.num_rows, end) - 1;
    return {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
}

// The row of an id of such a part.
DEVICE uint32_t row_of_id_in(const Job& job, const RowRange& rows, uint32_t place) {
    return rows.first + last_not_behind(job.id_offsets + rows.first, rows.last - rows.first + 1, place);
}

// Up to `count` ids from `begin` on, one by one; returns what was seen on the way.
template <class Id>
DEVICE uint32_t write_slowly(const Job& job, const uint32_t* table, const RowRange& rows, uint32_t begin, uint32_t count) {
    uint32_t seen = 0, end = job.id_offsets[job.num_rows];
    if (end > begin + count) end = begin + count;
    if (begin >= end) return 0;
    PlainRow row = plain_row(job, row_of_id_in(job, rows, begin));
    for (uint32_t place = begin; place < end; place++) {
        while (place >= static_cast<uint64_t>(job.id_offsets[row.number + 1])) row = plain_row(job, row.number + 1);
        ids_out<Id>(job)[place] = static_cast<Id>(plain_id(job, table, row, place - row.first, seen));
    }
    return seen;
}

// A warp takes ROUNDS * 32 * ITEMS ids at a time, a thread ITEMS neighbours; those that cross a row's end
// or hold other letters are left for last, so that they take no registers from the others.
template <class Id, bool IS_STRIDED>
DEVICE void write_kmers_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t ITEMS = IS_STRIDED ? 4 : 16 / sizeof(Id), ROUNDS = 4, PART = ROUNDS * 32 * ITEMS;
    load_letters(job, table);
    FourLetters four(job);
    uint32_t total = job.id_offsets[job.num_rows], warp = block * (BLOCK / 32) + threadIdx.x / 32;
    uint32_t stride = num_blocks * (BLOCK / 32) * PART, seen = 0;
    Id* out = ids_out<Id>(job);
    for (uint32_t part = warp * PART; part < total; part += stride) {
        RowRange rows = rows_of_ids(job, part, min_of(part + PART, total));
        PlainRow row = plain_row(job, rows.first);
        uint32_t first = part + (threadIdx.x & 31) * ITEMS, left = 0;
#pragma unroll
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t begin = first + round * 32 * ITEMS, ids[ITEMS];
            if (begin < total && rows.first != rows.last) {
                uint32_t number = row_of_id_in(job, rows, begin);
                if (number != row.number) row = plain_row(job, number);
            }
            bool fits = begin + ITEMS <= total && neighbouring_ids<ITEMS, IS_STRIDED>(four, row, begin - row.first, ids);
            if (fits) store_ids<Id, ITEMS>(out + begin, ids);
            else left |= 1u << round;
        }
        for (; left; left &= left - 1)
            seen |= write_slowly<Id>(job, table, rows, first + lowest_bit(left) * 32 * ITEMS, ITEMS);
    }
    note_rare(job, seen);
}
