// Looks up the ids of letters, or of words of letters; see embedding/look_up_rows.cu.
#pragma once
#include "common/platform.cuh"

constexpr uint32_t LOOK_UP_BLOCK = 256;
constexpr uint32_t FLAT_ROUNDS = 4;  // Words of four letters that a thread has in flight.

struct LookUp {
    const uint8_t* text;         // uint8[num_bytes], at any address.
    const int64_t* begins;       // int64[num_rows + 1] where rows begin in the text; look_up_flat does not read it.
    void* ids;                   // [num_rows, width]; of look_up_flat [num_bytes].
    uint64_t* unknown;           // uint64[1] in pinned host memory: becomes `number` where a letter has no code.
    const int32_t* codes;        // int32[256] codes of letters, or ids of characters; below 0: there is none.
    const int32_t* word_ids;     // int32[num_words] by the number that a word spells; a null pointer: characters.
    const int32_t* letter_ids;   // int32[256] ids of letters behind the words; a null pointer: they have none.
    uint64_t num_bytes;
    uint64_t num_rows;
    uint64_t width;              // Ids of a row of the matrix.
    uint64_t num_words;
    uint64_t k;                  // Letters of a word.
    uint64_t stride;             // Letters from one word's begin to the next one's.
    uint64_t base;               // Letters of the alphabet.
    const int32_t* added_ids;    // int32[num_prefix + num_suffix] ids before a row's own, and those behind them.
    uint64_t num_prefix;
    uint64_t num_suffix;
    uint64_t pads_left;          // 1: padding stands before a row's ids; 0: behind them.
    int64_t pad_id;
    uint64_t id_bytes;           // Bytes of an id, 4 or 8.
    uint64_t number;             // The number of the batch.
};

// Writes an id of 4 or 8 bytes to its place.
DEVICE void put_id(void* ids, uint64_t id_bytes, uint64_t place, int32_t id) {
    if (id_bytes == 4) static_cast<int32_t*>(ids)[place] = id;
    else static_cast<int64_t*>(ids)[place] = id;
}

// Writes four neighbouring ids, the first one to a multiple of four.
DEVICE void put_four(void* ids, uint64_t id_bytes, uint64_t place, const int32_t* four) {
    uint32_t words[8];
    for (uint32_t i = 0; i < 4; i++) {
        if (id_bytes == 4) words[i] = four[i];
        else words[2 * i] = four[i], words[2 * i + 1] = four[i] < 0 ? ~0u : 0;
    }
    uint4* to = reinterpret_cast<uint4*>(static_cast<uint8_t*>(ids) + place * id_bytes);
    to[0] = {words[0], words[1], words[2], words[3]};
    if (id_bytes == 8) to[1] = {words[4], words[5], words[6], words[7]};
}

// Four letters at any address, of which the first `rest` exist; nothing is read behind their last word.
DEVICE uint32_t four_at(const uint8_t* at, uint64_t rest) {
    uint32_t shift = reinterpret_cast<uint64_t>(at) & 3, low, high = 0;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(at - shift);
    low = words[0];
    if (shift + (rest < 4 ? rest : 4) > 4) high = words[1];
    return shift_right(low, high, 8 * shift);
}

// Writes the id of each letter, whatever its row; ids begin at a multiple of 16 bytes.
DEVICE void look_up_letters(const LookUp& look_up, const int32_t* codes, uint64_t block, uint32_t thread) {
    uint64_t first = (block * FLAT_ROUNDS * LOOK_UP_BLOCK + thread) * 4;
    uint32_t words[FLAT_ROUNDS];
    int32_t least = 0;
    for (uint32_t round = 0; round < FLAT_ROUNDS; round++) {
        uint64_t place = first + round * LOOK_UP_BLOCK * 4;
        if (place < look_up.num_bytes) words[round] = four_at(look_up.text + place, look_up.num_bytes - place);
    }
    for (uint32_t round = 0; round < FLAT_ROUNDS; round++) {
        uint64_t place = first + round * LOOK_UP_BLOCK * 4;
        if (place >= look_up.num_bytes) break;
        uint64_t rest = look_up.num_bytes - place;
        int32_t ids[4];
        for (uint32_t i = 0; i < 4; i++) {
            ids[i] = codes[words[round] >> 8 * i & 0xFF];
            if (i < rest && ids[i] < least) least = ids[i];
        }
        if (rest >= 4) put_four(look_up.ids, look_up.id_bytes, place, ids);
        for (uint32_t i = 0; rest < 4 && i < rest; i++) put_id(look_up.ids, look_up.id_bytes, place + i, ids[i]);
    }
    if (least < 0) *look_up.unknown = look_up.number;
}

DEVICE int64_t words_in(const LookUp& look_up, int64_t length) {
    int64_t k = look_up.k;
    return length < k ? 0 : (length - k) / static_cast<int64_t>(look_up.stride) + 1;
}

// How many letters `words` words cover.
DEVICE int64_t covered_by_words(const LookUp& look_up, int64_t words) {
    return words ? (words - 1) * look_up.stride + look_up.k : 0;
}

DEVICE int32_t word_id(const LookUp& look_up, const int32_t* codes, const uint8_t* letters) {
    int64_t number = 0, last = look_up.num_words - 1;
    for (uint64_t i = 0; i < look_up.k; i++) number = number * look_up.base + codes[letters[i]];
    return look_up.word_ids[number < 0 || number > last ? last : number];
}

// The id in a column of a row: an added one, one of the row's own, or padding.
DEVICE int32_t row_id(const LookUp& look_up, const int32_t* codes, const uint8_t* row, int64_t length,
                      int64_t column) {
    int64_t words = look_up.word_ids ? words_in(look_up, length) : length;
    int64_t covered = look_up.word_ids ? covered_by_words(look_up, words) : length;
    int64_t own = words + (look_up.letter_ids ? length - covered : 0), prefix = look_up.num_prefix;
    int64_t total = prefix + own + look_up.num_suffix;
    int64_t number = column - (look_up.pads_left ? static_cast<int64_t>(look_up.width) - total : 0);
    if (number < 0 || number >= total) return look_up.pad_id;
    if (number < prefix) return look_up.added_ids[number];
    if (number >= prefix + own) return look_up.added_ids[number - own];
    number -= prefix;
    if (!look_up.word_ids) return codes[row[number]];
    if (number >= words) return look_up.letter_ids[row[covered + number - words]];
    return word_id(look_up, codes, row + number * look_up.stride);
}

// Writes one id of the matrix, and checks one letter of the text for a code.
DEVICE void look_up_row(const LookUp& look_up, const int32_t* codes, uint64_t place) {
    if (place < look_up.num_bytes && codes[look_up.text[place]] < 0) *look_up.unknown = look_up.number;
    if (place >= look_up.num_rows * look_up.width) return;
    uint64_t row = place / look_up.width, column = place - row * look_up.width;
    int64_t begin = look_up.begins[row], length = look_up.begins[row + 1] - begin;
    put_id(look_up.ids, look_up.id_bytes, place,
           row_id(look_up, codes, look_up.text + begin, length, column));
}
