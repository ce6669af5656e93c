// Ids of letters, or of words of letters, by look-up; see embedding/look_up_rows.cu.
#pragma once
#include "common/platform.cuh"

constexpr uint32_t LOOK_UP_BLOCK = 256;
constexpr uint32_t FLAT_ROUNDS = 4;  // Words of four letters that a thread has under way.

struct LookUp {
    const uint8_t* text;         // uint8[num_bytes], at any address.
    const int64_t* begins;       // int64[num_rows + 1], where rows begin in it; look_up_flat does without.
    void* ids;                   // [num_rows, width]; of look_up_flat [num_bytes].
    uint64_t* unknown;           // In pinned memory of the host: becomes `number` where a letter has no code.
    const int32_t* codes;        // int32[256] of letters; below 0: it has none. Of characters their ids.
    const int32_t* word_ids;     // int32[num_words] by the number that a word spells; a null pointer: characters.
    const int32_t* letter_ids;   // int32[256] of letters behind the words; a null pointer: they give none.
    uint64_t num_bytes;
    uint64_t num_rows;
    uint64_t width;
    uint64_t num_words;
    uint64_t k;                  // Letters of a word,
    uint64_t stride;             // from one to the next,
    uint64_t base;               // and how many there are.
    int64_t pad_id;
    uint64_t id_bytes;           // 4 or 8.
    uint64_t number;             // Of the batch.
};

// An id of 4 or 8 bytes to its place.
DEVICE void put_id(void* ids, uint64_t id_bytes, uint64_t place, int32_t id) {
    if (id_bytes == 4) static_cast<int32_t*>(ids)[place] = id;
    else static_cast<int64_t*>(ids)[place] = id;
}

// Four neighbouring ids, the first at a multiple of four.
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

// Four letters at any address, of which the first `left` are there; nothing is read behind their last word.
DEVICE uint32_t four_at(const uint8_t* at, uint64_t rest) {
    uint32_t shift = reinterpret_cast<uint64_t>(at) & 3, low, high = 0;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(at - shift);
    low = words[0];
    if (shift + (rest < 4 ? rest : 4) > 4) high = words[1];
    return shift_right(low, high, 8 * shift);
}

// Each letter's id, whatever rows there are; ids begin at a multiple of 16 bytes.
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

// Letters of a row that its words cover.
DEVICE int64_t covered_by_words(const LookUp& look_up, int64_t words) {
    return words ? (words - 1) * look_up.stride + look_up.k : 0;
}

DEVICE int32_t word_id(const LookUp& look_up, const int32_t* codes, const uint8_t* letters) {
    int64_t number = 0, last = look_up.num_words - 1;
    for (uint64_t i = 0; i < look_up.k; i++) number = number * look_up.base + codes[letters[i]];
    return look_up.word_ids[number < 0 || number > last ? last : number];
}

// The id in a row's column `from_end` before its end; what lies before its ids is padding.
DEVICE int32_t row_id(const LookUp& look_up, const int32_t* codes, const uint8_t* row, int64_t length,
                      int64_t from_end) {
    if (!look_up.word_ids) return from_end < length ? codes[row[length - 1 - from_end]] : look_up.pad_id;
    int64_t words = words_in(look_up, length), covered = covered_by_words(look_up, words);
    int64_t behind = look_up.letter_ids ? length - covered : 0, number = words + behind - 1 - from_end;
    if (number < 0) return look_up.pad_id;
    if (number >= words) return look_up.letter_ids[row[covered + number - words]];
    return word_id(look_up, codes, row + number * look_up.stride);
}

// One id of a matrix, and one letter of the text, of which each may be without a code.
DEVICE void look_up_row(const LookUp& look_up, const int32_t* codes, uint64_t place) {
    if (place < look_up.num_bytes && codes[look_up.text[place]] < 0) *look_up.unknown = look_up.number;
    if (place >= look_up.num_rows * look_up.width) return;
    uint64_t row = place / look_up.width, column = place - row * look_up.width;
    int64_t begin = look_up.begins[row], length = look_up.begins[row + 1] - begin;
    put_id(look_up.ids, look_up.id_bytes, place,
           row_id(look_up, codes, look_up.text + begin, length, look_up.width - 1 - column));
}
