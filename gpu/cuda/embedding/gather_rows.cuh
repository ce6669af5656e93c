// Which word of the table goes to which word of the output; see embedding/gather_rows.cu.
#pragma once
#include "common/platform.cuh"

constexpr uint32_t GATHER_BLOCK = 128;
constexpr uint32_t GATHER_WORDS = 2;  // Words of a thread.

struct Gather {
    const void* ids;     // int32 or int64[num_ids].
    const uint4* table;  // uint4[rows][row_words].
    uint4* output;       // uint4[num_ids][row_words].
    uint64_t num_ids;
    uint64_t row_words;  // Words of 16 bytes of a row: at least 1, and less than 2^32.
    uint64_t id_bytes;   // Bytes of an id, 4 or 8.
};

DEVICE uint64_t id_at(const Gather& gather, uint64_t place) {
    if (gather.id_bytes == 4) return __ldg(static_cast<const uint32_t*>(gather.ids) + place);
    return __ldg(static_cast<const unsigned long long*>(gather.ids) + place);
}

DEVICE void gather_words(const Gather& gather, uint32_t block, uint32_t thread) {
    uint64_t begin = static_cast<uint64_t>(block) * (GATHER_BLOCK * GATHER_WORDS);
    uint64_t num_words = gather.num_ids * gather.row_words;
    uint32_t row_words = static_cast<uint32_t>(gather.row_words);
    // One division of 64 bits for the whole block; those of a thread have 32.
    uint64_t first_row = begin / gather.row_words;
    uint32_t first_word = static_cast<uint32_t>(begin - first_row * gather.row_words) + thread;
    uint4 words[GATHER_WORDS];
#pragma unroll
    for (uint32_t i = 0; i < GATHER_WORDS; i++) {
        if (begin + i * GATHER_BLOCK + thread >= num_words) break;
        uint32_t word = first_word + i * GATHER_BLOCK, row = word / row_words;
        const uint4* table_row = gather.table + id_at(gather, first_row + row) * gather.row_words;
        words[i] = __ldg(table_row + (word - row * row_words));
    }
#pragma unroll
    for (uint32_t i = 0; i < GATHER_WORDS; i++) {
        uint64_t place = begin + i * GATHER_BLOCK + thread;
        if (place < num_words) store_once(gather.output + place, words[i]);  // The caches are for the table.
    }
}
