// The classes, codes and ids of letters, and the letters of a batch.
//
// A letter is a byte of the text. Where the text was rewritten (kmers/general/expand_text.cuh) it is one of `letters`:
// an ASCII character, or one of the three numbers below. An entry of letter_table describes a letter:
//
//     class << 29 | flags | NOT_A_CODE | value
//
// The value is the letter's code, 0 .. base - 1; of characters, which are k-mers of one letter here,
// their id. Example, k = 2 over ACGT from id 10 on: CA is the number 1 * 4 + 0 and the id 14.
#pragma once
#include "common/lookback_scan.cuh"
#include "batch/rows.cuh"

namespace warptok::kmers {

constexpr uint32_t OTHER_LETTER = 256;     // A character that is not ASCII.
constexpr uint32_t WIDE_SPACE = 257;       // White space that is not ASCII.
constexpr uint32_t SPECIAL_LETTER = 258;   // A special token.
constexpr uint32_t NUM_LETTERS = 260;

constexpr uint32_t NOT_A_CODE = 1u << 25;  // No k-mer that holds it has a number.
constexpr uint32_t VALUE_BITS = NOT_A_CODE - 1;
constexpr uint32_t FALLBACK_SHIFT = 26;    // Three flags, bits of STATUS_FALLBACK; plain kernels do not encode ...
constexpr uint32_t FALLBACK_BREAK = 1;     // ... letters that end a run,
constexpr uint32_t FALLBACK_WIDE = 2;      // ... characters that are not ASCII,
constexpr uint32_t FALLBACK_MARK = 4;      // ... bytes that special tokens have.
constexpr uint32_t FALLBACK_FLAGS = FALLBACK_BREAK | FALLBACK_WIDE | FALLBACK_MARK;
constexpr uint32_t FALLBACK_LENGTHS = 8;   // No flag of a letter: rows are not of one length (kmers/equal_rows.cuh).
constexpr uint32_t CLASS_SHIFT = 29;
constexpr uint32_t BASE = 0;               // What k-mers are made of.
constexpr uint32_t SINGLE = 1;             // An id of its own.
constexpr uint32_t SPACE = 2;              // No id.
constexpr uint32_t OTHER = 3;              // One id for a run.
constexpr uint32_t SPECIAL = 4;            // A special token.

// Copies the table of letters to shared memory; every thread of the block calls it.
DEVICE void load_letters(const Job& job, uint32_t* table) {
    for (uint32_t i = threadIdx.x; i < NUM_LETTERS; i += BLOCK) table[i] = job.kmers.letter_table[i];
    __syncthreads();
}

DEVICE uint32_t letter_at(const Job& job, uint64_t place) {
    return job.kmers.letters ? job.kmers.letters[place] : job.batch.text[place];
}

DEVICE uint64_t num_letters(const Job& job) { return job.kmers.letter_rows[job.batch.num_rows]; }

// The row of a letter of the batch.
DEVICE uint64_t row_of_letter(const Job& job, uint64_t letter) {
    return last_not_behind(job.kmers.letter_rows, job.batch.num_rows, letter);
}

// The id of a k-mer, of which entry_of(i) is the table's entry of letter i.
template <class Entry>
DEVICE uint32_t kmer_id(const Job& job, Entry entry_of) {
    uint32_t number = 0, seen = 0;
    for (uint32_t i = 0; i < job.kmers.kmer_k; i++) {
        uint32_t entry = entry_of(i);
        seen |= entry;
        number = number * static_cast<uint32_t>(job.kmers.kmer_base) + (entry & VALUE_BITS);
    }
    return seen & NOT_A_CODE ? job.kmers.kmer_unknown_id : job.kmers.kmer_first_id + number;
}

// The number of k-mers in a run of letters.
DEVICE uint64_t num_kmers(const Job& job, uint64_t length) {
    return length < job.kmers.kmer_k ? 0 : (length - job.kmers.kmer_k) / job.kmers.kmer_stride + 1;
}

// The number of letters that the k-mers of a run cover.
DEVICE uint64_t covered_letters(const Job& job, uint64_t length) {
    uint64_t kmers = num_kmers(job, length);
    return kmers ? (kmers - 1) * job.kmers.kmer_stride + job.kmers.kmer_k : 0;
}

// The letter of its row that k-mer `number` of a circle begins with.
DEVICE uint64_t circle_begin(const Job& job, uint64_t number, uint64_t length) {
    return number >= job.kmers.kmer_shift ? number - job.kmers.kmer_shift
                                          : (number + length - job.kmers.kmer_shift % length) % length;
}

// Reports whether the batch needs other kernels than the plain ones. `seen` has the bits of all entries that a thread
// has seen. The whole warp calls it.
DEVICE void note_fallback(const Job& job, uint32_t seen) {
    uint64_t flags = seen >> FALLBACK_SHIFT & FALLBACK_FLAGS;
    if (!__any_sync(ALL_LANES, flags != 0)) return;
    if (flags & ~job.answer.status[STATUS_FALLBACK]) atomic_or(job.answer.status + STATUS_FALLBACK, flags);
}

}  // namespace warptok::kmers
