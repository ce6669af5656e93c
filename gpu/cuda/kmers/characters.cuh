// Characters in plain batches: id i is that of byte i, and a row has as many ids as letters.
//
// Launch: BLOCK threads, any number of blocks. A thread writes 16 bytes of ids at a time, LETTER_ROUNDS times. Many
// short blocks keep the memory busier than few blocks that loop over the text. The ids of the four letters of which
// most texts consist are looked up by one permutation of bytes, all others in the table.
//
// Example: A, C, T and G with the ids 7, 8, 10 and 9 stand in the slots 0, 1, 2 and 3 of their bits 1 and 2.
#pragma once
#include "kmers/plain_rows.cuh"

namespace warptok::kmers {

constexpr uint32_t LETTER_ROUNDS = 4;

DEVICE void place_letter_rows(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = block * static_cast<uint64_t>(BLOCK) + threadIdx.x;
    RowFaults faults(job);
    for (uint64_t row = first; row <= job.batch.num_rows; row += num_blocks * BLOCK) {
        job.answer.id_offsets[row] = job.rows.row_begins[row];
        if (row < job.batch.num_rows) faults.look_at(row);
    }
    if (first == 0) job.answer.status[STATUS_NUM_IDS] = job.batch.num_bytes, faults.finish();
}

// Loads COUNT letters in the order of memory.
template <uint32_t COUNT>
DEVICE void load_text(const uint8_t* text, uint32_t* words) {
    if constexpr (COUNT == 4) words[0] = __ldg(reinterpret_cast<const uint32_t*>(text));
    if constexpr (COUNT == 8) {
        uint2 two = __ldg(reinterpret_cast<const uint2*>(text));
        words[0] = two.x, words[1] = two.y;
    }
    if constexpr (COUNT == 16) {
        uint4 four = __ldg(reinterpret_cast<const uint4*>(text));
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    }
}

// Looks up the ids of four letters.
DEVICE void ids_of_word(const FourLetters& four, const uint32_t* table, uint32_t word, uint32_t* ids, uint32_t& seen) {
    uint32_t selector = four_selector(word), packed = four.codes.chosen(selector);
    if (four.letters.chosen(selector) == (word & four.fold)) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) ids[i] = byte_of(packed, i);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t entry = __ldg(table + byte_of(word, i));
        seen |= entry;
        ids[i] = entry & VALUE_BITS;
    }
}

// Writes the ids of the letters from `begin` on, which are fewer than a thread writes at a time. Reads nothing behind
// the text, which may end where memory ends. Returns the entry of the table that this thread has seen.
template <class Id>
DEVICE uint32_t last_letters_to_ids(const Job& job, const uint8_t* text, Id* out, uint32_t begin) {
    uint32_t place = begin + threadIdx.x;
    if (place >= job.batch.num_bytes) return 0;
    uint32_t entry = __ldg(job.kmers.letter_table + __ldg(text + place));
    out[place] = static_cast<Id>(entry & VALUE_BITS);
    return entry;
}

// Writes the ids of all letters; returns the entries of the table that this thread has seen, or-ed.
template <class Id>
DEVICE uint32_t letters_to_ids(const Job& job, const uint8_t* text, Id* out, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id), WORDS = ITEMS / 4;
    FourLetters four(job);
    const uint32_t* table = job.kmers.letter_table;
    uint32_t end = four.num_bytes / ITEMS * ITEMS;
    uint32_t seen = block == 0 ? last_letters_to_ids(job, text, out, end) : 0;
    uint64_t each = LETTER_ROUNDS * BLOCK * ITEMS;
    for (uint64_t first = block * each + threadIdx.x * ITEMS; first < end; first += num_blocks * each) {
        uint32_t words[LETTER_ROUNDS][WORDS];
#pragma unroll
        for (uint32_t round = 0; round < LETTER_ROUNDS; round++) {
            uint64_t begin = first + round * BLOCK * ITEMS;
            if (begin < end) load_text<ITEMS>(text + begin, words[round]);
        }
#pragma unroll
        for (uint32_t round = 0; round < LETTER_ROUNDS; round++) {
            uint64_t begin = first + round * BLOCK * ITEMS;
            if (begin >= end) break;
            uint32_t ids[ITEMS];
#pragma unroll
            for (uint32_t i = 0; i < ITEMS; i += 4) ids_of_word(four, table, words[round][i / 4], ids + i, seen);
            store_ids<Id, ITEMS>(out + begin, ids);
        }
    }
    return seen;
}

template <class Id>
DEVICE void write_letters_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    place_letter_rows(job, block, num_blocks);
    note_fallback(job, letters_to_ids(job, job.batch.text, ids_out<Id>(job), block, num_blocks));
}

// Writes the ids of a text in pinned host memory to host_ids. The host has cleared STATUS_FALLBACK of host_status; at
// the end it holds the flags of one of the threads that met any.
template <class Id>
DEVICE void fetch_letters_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t seen =
        letters_to_ids(job, job.host.host_text, reinterpret_cast<Id*>(job.host.host_ids), block, num_blocks);
    uint32_t fallback = seen >> FALLBACK_SHIFT & FALLBACK_FLAGS;
    if (fallback) job.host.host_status[STATUS_FALLBACK] = fallback;
}

}  // namespace warptok::kmers
