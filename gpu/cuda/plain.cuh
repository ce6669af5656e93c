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
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK * ITEMS;
    uint64_t first = (static_cast<uint64_t>(block) * BLOCK + threadIdx.x) * ITEMS;
    Id* out = ids_out<Id>(job);
    uint32_t seen = 0;
    for (uint64_t begin = first; begin < job.num_bytes; begin += stride) {
        uint32_t words[WORDS], ids[ITEMS];
        if constexpr (WORDS == 1) words[0] = *reinterpret_cast<const uint32_t*>(job.text + begin);
        if constexpr (WORDS == 2) {
            uint2 two = *reinterpret_cast<const uint2*>(job.text + begin);
            words[0] = two.x, words[1] = two.y;
        }
        if constexpr (WORDS == 4) {
            uint4 four = *reinterpret_cast<const uint4*>(job.text + begin);
            words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
        }
        bool is_whole = begin + ITEMS <= job.num_bytes;
#pragma unroll
        for (uint32_t i = 0; i < ITEMS; i++) {
            uint32_t entry = table[words[i / 4] >> i % 4 * 8 & 0xFF];
            if (is_whole || begin + i < job.num_bytes) seen |= entry;
            ids[i] = entry & VALUE_BITS;
        }
        if (is_whole) store_ids<Id, ITEMS>(out + begin, ids);
#pragma unroll
        for (uint32_t i = 0; i < ITEMS; i++)
            if (!is_whole && begin + i < job.num_bytes) out[begin + i] = static_cast<Id>(ids[i]);
    }
    note_rare(job, seen);
}

// A row of which ids are written.
struct PlainRow {
    uint64_t first;                        // Its first id.
    uint64_t begin, length;                // Its letters.
    uint64_t kmers;                        // Its k-mers; behind them letters that stand alone.
    bool wraps;
};

DEVICE PlainRow plain_row(const Job& job, uint64_t row) {
    uint64_t begin = job.row_begins[row], length = job.row_begins[row + 1] - begin;
    bool wraps = job.can_wrap && is_circle(job, row);
    return {static_cast<uint64_t>(job.id_offsets[row]), begin, length, wraps ? length : num_kmers(job, length), wraps};
}

// Id `number` of a row, letter by letter.
DEVICE uint32_t plain_id(const Job& job, const uint32_t* table, const PlainRow& row, uint64_t number, uint32_t& seen) {
    const uint8_t* text = job.text + row.begin;
    if (number >= row.kmers) {
        uint32_t letter = text[covered_letters(job, row.length) + number - row.kmers];
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

// The codes of 4 * num_words letters from a place on, two bits each, the last one lowest; whether all of
// them are among the four. Bits 1 and 2 of a letter tell the four apart, as they do A, C, T and G.
DEVICE bool four_letter_codes(const Job& job, uint64_t place, uint32_t num_words, uint64_t& codes) {
    const uint32_t* text = reinterpret_cast<const uint32_t*>(job.text) + place / 4;
    uint32_t shift = place % 4 * 8, low = text[0], differ = 0;
    codes = 0;
#pragma unroll
    for (uint32_t i = 0; i < 7; i++) {
        if (i >= num_words) break;
        uint32_t high = text[i + 1], word = shift_right(low, high, shift);
        uint32_t two_bits = word >> 1 & 0x03030303, nibbles = two_bits | two_bits >> 4;
        uint32_t selector = (nibbles & 0xFF) | (nibbles >> 8 & 0xFF00);
        uint32_t letters = permute_bytes(static_cast<uint32_t>(job.four_letters), selector);
        differ |= letters ^ (word & static_cast<uint32_t>(job.four_fold));
        // Four codes a, b, c, d in bytes, a lowest, become a << 6 | b << 4 | c << 2 | d.
        uint32_t in_bytes = permute_bytes(static_cast<uint32_t>(job.four_codes), selector);
        codes = codes << 8 | in_bytes * 0x40100401u >> 24;
        low = high;
    }
    return !differ;
}

// The first ids of k-mers at `place`, `place` + stride ...; false where a letter is none of the four.
template <uint32_t COUNT>
DEVICE bool four_letter_ids(const Job& job, uint64_t place, uint32_t* ids) {
    uint32_t k = job.kmer_k, step = job.kmer_stride;
    uint32_t num_words = ((COUNT - 1) * step + k + 3) / 4, mask = (1u << 2 * k) - 1;
    uint64_t codes;
    if (!four_letter_codes(job, place, num_words, codes)) return false;
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t behind = 4 * num_words - i * step - k;
        ids[i] = job.kmer_first_id + (static_cast<uint32_t>(codes >> 2 * behind) & mask);
    }
    return true;
}

// COUNT neighbouring ids of a row from `number` on, where they are k-mers that do not wrap.
template <uint32_t COUNT, bool IS_STRIDED>
DEVICE bool neighbouring_ids(const Job& job, const PlainRow& row, uint64_t number, uint32_t* ids) {
    if (!job.four_letters || number + COUNT > row.kmers) return false;
    uint64_t begin = row.begin + number * job.kmer_stride;
    if (row.wraps) {
        if (number < job.kmer_shift) return false;
        begin = row.begin + number - job.kmer_shift;
        if (begin + COUNT - 1 + job.kmer_k > row.begin + row.length) return false;
    }
    if constexpr (IS_STRIDED)  // 24 letters are as many as fit.
        return four_letter_ids<COUNT / 2>(job, begin, ids) &&
               four_letter_ids<COUNT / 2>(job, begin + COUNT / 2 * job.kmer_stride, ids + COUNT / 2);
    return four_letter_ids<COUNT>(job, begin, ids);
}

// The rows of a warp's part of the ids.
struct RowRange {
    uint64_t first, last;
};

DEVICE RowRange rows_of_ids(const Job& job, uint64_t begin, uint64_t end) {
    uint64_t first = first_not_before_by_warp(job.id_offsets, job.num_rows, begin + 1) - 1, last = first;
    if (static_cast<uint64_t>(job.id_offsets[first + 1]) < end)
        last = first_not_before_by_warp(job.id_offsets, job.num_rows, end) - 1;
    return {first, last};
}

// A warp takes ROUNDS * 32 * ITEMS ids at a time; a thread ITEMS neighbours.
template <class Id, bool IS_STRIDED>
DEVICE void write_kmers_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t ITEMS = IS_STRIDED ? 4 : 16 / sizeof(Id), ROUNDS = 4, PART = ROUNDS * 32 * ITEMS;
    load_letters(job, table);
    uint64_t total = job.id_offsets[job.num_rows], warp = block * (BLOCK / 32) + threadIdx.x / 32;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * (BLOCK / 32) * PART;
    Id* out = ids_out<Id>(job);
    uint32_t seen = 0;
    for (uint64_t part = warp * PART; part < total; part += stride) {
        RowRange rows = rows_of_ids(job, part, part + PART < total ? part + PART : total);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint64_t begin = part + (round * 32 + (threadIdx.x & 31)) * ITEMS;
            if (begin >= total) continue;
            uint64_t number = rows.first + last_not_behind(job.id_offsets + rows.first, rows.last - rows.first + 1, begin);
            PlainRow row = plain_row(job, number);
            uint32_t ids[ITEMS];
            if (neighbouring_ids<ITEMS, IS_STRIDED>(job, row, begin - row.first, ids)) {
                store_ids<Id, ITEMS>(out + begin, ids);
                continue;
            }
            for (uint64_t place = begin; place < begin + ITEMS && place < total; place++) {
                while (place >= static_cast<uint64_t>(job.id_offsets[number + 1])) row = plain_row(job, ++number);
                out[place] = static_cast<Id>(plain_id(job, table, row, place - row.first, seen));
            }
        }
    }
    note_rare(job, seen);
}
