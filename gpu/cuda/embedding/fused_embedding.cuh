// Looks up the ids of letters, from text that may lie in host memory, and their rows of a table; see
// embedding/fused_embedding.cu.
#pragma once
#include "embedding/look_up_rows.cuh"

constexpr uint32_t EMBED_BLOCK = 512;
constexpr uint32_t EMBED_LETTERS = 64;   // Letters of a block.
constexpr uint32_t EMBED_WORDS = 4;      // Words of 16 bytes that a thread has in flight.

struct Embed {
    const uint8_t* text;       // uint8[num_letters], at any address, also of the host.
    void* ids;                 // [num_letters], begins at a multiple of 16 bytes.
    uint64_t num_letters;
    const uint8_t* next_text;  // uint8[num_next] letters of which only ids are requested.
    void* next_ids;            // [num_next], begins at a multiple of 16 bytes.
    uint64_t num_next;         // num_letters at most.
    const int32_t* codes;      // int32[256] ids of letters; below 0: the letter has none.
    uint64_t id_bytes;         // Bytes of an id, 4 or 8.
    uint64_t* unknown;         // uint64[1] in pinned host memory: becomes `number` where a letter has no code.
    uint64_t number;           // The number of the batch.
    const uint4* table;        // uint4[rows][row_words].
    uint4* output;             // uint4[num_letters][row_words].
    uint64_t row_words;        // Words of 16 bytes of a row: at least 1, and less than 2^24.
};

// Writes the ids of four letters from a place on, and returns them in `four`, 0 where a letter has no code.
DEVICE void look_four_up(const Embed& embed, const uint8_t* text, void* ids, uint64_t place, uint64_t end,
                         int32_t* four) {
    if (place >= end) return;
    uint64_t rest = end - place;
    uint32_t letters = four_at(text + place, rest);
    int32_t least = 0;
    for (uint32_t i = 0; i < 4; i++) {
        four[i] = __ldg(embed.codes + (letters >> 8 * i & 0xFF));
        if (i < rest && four[i] < least) least = four[i];
        if (four[i] < 0) four[i] = 0;
    }
    if (least < 0) *embed.unknown = embed.number;
    if (rest >= 4) put_four(ids, embed.id_bytes, place, four);
    for (uint32_t i = 0; rest < 4 && i < rest; i++) put_id(ids, embed.id_bytes, place + i, four[i]);
}

// Looks up a block's letters, whose ids become `rows`, and as many of the next text; four letters a thread.
DEVICE void look_block_up(const Embed& embed, int32_t* rows, uint64_t first, uint32_t thread) {
    constexpr uint32_t THREADS = EMBED_LETTERS / 4;
    int32_t four[4];
    if (thread < THREADS)
        look_four_up(embed, embed.text, embed.ids, first + 4 * thread, embed.num_letters, rows + 4 * thread);
    else if (thread < 2 * THREADS)
        look_four_up(embed, embed.next_text, embed.next_ids, first + 4 * (thread - THREADS), embed.num_next, four);
}

// Writes the rows of the table that `rows` names to the block's rows of the output, neighbouring words by neighbouring
// threads.
DEVICE void write_rows_of(const Embed& embed, const int32_t* rows, uint64_t first, uint32_t thread) {
    uint32_t row_words = static_cast<uint32_t>(embed.row_words), row = thread / row_words, column = thread % row_words;
    uint32_t more_rows = EMBED_BLOCK / row_words, more_columns = EMBED_BLOCK % row_words;
    uint64_t rest = embed.num_letters - first;
    uint32_t num_rows = rest < EMBED_LETTERS ? static_cast<uint32_t>(rest) : EMBED_LETTERS;
    uint4* to = embed.output + first * embed.row_words + thread;
    while (row < num_rows) {
        uint4 words[EMBED_WORDS];
        uint32_t count = 0;
#pragma unroll
        for (uint32_t i = 0; i < EMBED_WORDS; i++) {
            if (row >= num_rows) break;
            words[i] = __ldg(embed.table + static_cast<uint64_t>(rows[row]) * row_words + column);
            row += more_rows;
            column += more_columns;
            if (column >= row_words) column -= row_words, row++;
            count++;
        }
#pragma unroll
        for (uint32_t i = 0; i < EMBED_WORDS; i++)
            if (i < count) store_once(to + i * EMBED_BLOCK, words[i]);
        to += EMBED_WORDS * EMBED_BLOCK;
    }
}
