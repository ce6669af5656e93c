// Augments rows: a row is encoded as its reverse complement, as a random part of it (a crop), or with random letters
// substituted. vocabularies/sequences/augmentation.py and vocabularies/sequences/strand.py define the three. Letters
// are substituted first, then the row is cropped, then it is reversed and complemented.
//
// Example: the row ACGTA, cropped to 3 letters from letter 1 on, is CGT; its reverse complement is ACG.
//
// Invariant: a letter's random numbers (Philox 4x32, ten rounds: Salmon et al., 2011) follow from the seed, the row's
// number and the letter's place in the row as it was sent, so that they are the same in any batch and any launch shape.
#pragma once
#include "batch/rows.cuh"

constexpr uint32_t RANDOM_CROP = 0, RANDOM_LETTER = 1;  // The purposes of random numbers.

// Four random words, by a key and a counter of four words.
DEVICE uint4 philox(uint64_t key, uint4 counter) {
    uint32_t low = key, high = key >> 32;
    for (uint32_t round = 0; round < 10; round++) {
        uint64_t first = static_cast<uint64_t>(0xD2511F53u) * counter.x;
        uint64_t second = static_cast<uint64_t>(0xCD9E8D57u) * counter.z;
        counter = {static_cast<uint32_t>(second >> 32) ^ counter.y ^ low, static_cast<uint32_t>(second),
                   static_cast<uint32_t>(first >> 32) ^ counter.w ^ high, static_cast<uint32_t>(first)};
        low += 0x9E3779B9u, high += 0xBB67AE85u;
    }
    return counter;
}

DEVICE uint4 random_words(const Job& job, uint64_t row, uint32_t number, uint32_t purpose) {
    uint64_t of_row = job.augmentation.first_row + row;
    return philox(job.augmentation.random_seed,
                  {number, purpose, static_cast<uint32_t>(of_row), static_cast<uint32_t>(of_row >> 32)});
}

// The upper 64 bits of a product.
DEVICE uint64_t multiply_high(uint64_t a, uint64_t b) {
    uint64_t low = (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF), left = (a >> 32) * (b & 0xFFFFFFFF);
    uint64_t right = (a & 0xFFFFFFFF) * (b >> 32), middle = (low >> 32) + (left & 0xFFFFFFFF) + (right & 0xFFFFFFFF);
    return (a >> 32) * (b >> 32) + (left >> 32) + (right >> 32) + (middle >> 32);
}

// A row as it is encoded: which letters of the batch as it was sent.
struct AugmentedRow {
    uint64_t number;                       // The row's.
    uint64_t sent_begin;                   // Where the row begins in sent_text.
    uint64_t first, length;                // The letters of it that are encoded; `first` counts from sent_begin.
    bool is_reverse_complement;                  // They are reversed and complemented.
};

DEVICE AugmentedRow augmented_row(const Job& job, uint64_t row) {
    uint64_t begin = job.augmentation.sent_begins[row], sent = job.augmentation.sent_begins[row + 1] - begin;
    uint64_t length = job.rows.row_begins[row + 1] - job.rows.row_begins[row], first = 0;
    if (length < sent) {
        uint4 words = random_words(job, row, 0, RANDOM_CROP);
        first = multiply_high(static_cast<uint64_t>(words.y) << 32 | words.x, sent - length + 1);
    }
    bool is_reverse_complement = job.rows.row_flags && job.rows.row_flags[row] & ROW_REVERSE_COMPLEMENT;
    return {row, begin, first, length, is_reverse_complement};
}

// A letter of A, C, G and T becomes another of them, in the same case; all other letters stay.
DEVICE uint32_t substituted(uint32_t letter, uint32_t word) {
    constexpr uint32_t LETTERS = 0x54474341;  // A C G T.
    for (uint32_t i = 0; i < 4; i++)
        if ((letter & 0xDF) == (LETTERS >> 8 * i & 0xFF)) {
            uint32_t other = (i + 1 + ((word & 0xFF) * 3 >> 8)) % 4;
            return (LETTERS >> 8 * other & 0xFF) | (letter & 0x20);
        }
    return letter;
}

// Letter i of a row as it is encoded.
DEVICE uint32_t augmented_letter(const Job& job, const uint8_t* complement, const AugmentedRow& row, uint64_t i) {
    uint64_t place = row.first + (row.is_reverse_complement ? row.length - 1 - i : i);
    uint32_t letter = job.augmentation.sent_text[row.sent_begin + place];
    if (job.augmentation.substitution_rate) {
        uint4 four = random_words(job, row.number, static_cast<uint32_t>(place / 4), RANDOM_LETTER);
        uint32_t low = place & 1 ? four.y : four.x, high = place & 1 ? four.w : four.z;
        uint32_t word = place & 2 ? high : low;
        if (word >> 8 < job.augmentation.substitution_rate) letter = substituted(letter, word);
    }
    if (!row.is_reverse_complement) return letter;
    if (letter >= 0x80) job.augmentation.row_not_ascii[row.number] = 1;
    return complement[letter];
}

// Sixteen letters of a row as it is encoded, from letter i on, without substitution. A reversed row is read from its
// end.
DEVICE uint4 augmented_sixteen(const Job& job, const uint8_t* complement, const AugmentedRow& row, uint64_t i) {
    uint64_t place = row.sent_begin + row.first + (row.is_reverse_complement ? row.length - 16 - i : i);
    const uint32_t* from = reinterpret_cast<const uint32_t*>(job.augmentation.sent_text) + place / 4;
    uint32_t words[4], low = from[0], shift = place % 4 * 8, all = 0;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t high = from[j + 1];
        words[j] = shift_right(low, high, shift);
        low = high;
        all |= words[j];
    }
    if (!row.is_reverse_complement) return {words[0], words[1], words[2], words[3]};
    if (all & 0x80808080) job.augmentation.row_not_ascii[row.number] = 1;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t reversed = 0;
#pragma unroll
        for (uint32_t b = 0; b < 4; b++) reversed = reversed << 8 | complement[words[j] >> 8 * b & 0xFF];
        words[j] = reversed;
    }
    return {words[3], words[2], words[1], words[0]};
}

// Writes `text` from sent_text; a thread writes sixteen bytes at a time.
DEVICE void augment_rows_stage(const Job& job, uint8_t* complement, uint32_t block, uint32_t num_blocks) {
    for (uint32_t i = threadIdx.x; i < 256; i += BLOCK) complement[i] = job.augmentation.complement[i];
    __syncthreads();
    uint8_t* text = const_cast<uint8_t*>(job.batch.text);
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK * 16;
    uint64_t first = (static_cast<uint64_t>(block) * BLOCK + threadIdx.x) * 16;
    for (uint64_t begin = first; begin < job.batch.num_bytes; begin += stride) {
        uint64_t number = row_of(job, begin);
        AugmentedRow row = augmented_row(job, number);
        uint64_t letter = begin - job.rows.row_begins[number];
        if (letter + 16 <= row.length && !job.augmentation.substitution_rate) {
            *reinterpret_cast<uint4*>(text + begin) = augmented_sixteen(job, complement, row, letter);
            continue;
        }
        for (uint64_t place = begin; place < begin + 16 && place < job.batch.num_bytes; place++) {
            uint64_t own = row_from(job.rows.row_begins, job.batch.num_rows, number, place);
            if (own != number) row = augmented_row(job, number = own);
            text[place] = augmented_letter(job, complement, row, place - job.rows.row_begins[number]);
        }
    }
}
