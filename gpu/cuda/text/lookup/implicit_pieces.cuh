// Implicit pieces are no tokens, but need no merging, since their ids follow from the record.
//
//   - LISTED: a character of three bytes, alone or behind a blank; the vocabulary's tables list its ids
//     (gpu/text/cjk_characters.py).
//   - PLAIN: a byte and then another byte repeated, where no pair merges, such as "\n    " in GPT-2.
//   - Other pieces of two and three bytes. Behind their first merge no pair merges: else the merges would give the
//     whole piece, and it would be a token (docs/internals/text-bpe.md, A table of whole pieces). So two bytes stay
//     two, and of three bytes the first pair is merged, or the second, or none:
//
//     bytes E2 B2 BE, no merge of (E2, B2) and (B2, BE) of rank 39077   kind SECOND_PAIR
//     record MISS | SMALL | SECOND_PAIR << 24 | 0xBEB2E2                ids of E2, of B2 BE
//     "\n    " record MISS | SMALL | PLAIN << 24 | 3 << 16 | 0x200A     ids of \n, of four blanks
#pragma once
#include "text/lookup/token_tables.cuh"

namespace warptok::text {

constexpr uint32_t MISS = 1u << 31, SMALL = 1u << 30;
constexpr uint32_t MAX_SMALL = 3;
constexpr uint32_t KIND_SHIFT = 24, PLAIN = 0, THREE_BYTES = 1, FIRST_PAIR = 2, SECOND_PAIR = 3, LISTED = 4;
constexpr uint32_t LISTED_SHIFT = 22;  // Of the number of ids - 2, above which ids these are.

DEVICE uint32_t small_record_of(uint32_t kind, uint32_t rest) { return MISS | SMALL | kind << KIND_SHIFT | rest; }

// The record of a piece for which find_short found listed ids.
DEVICE uint32_t listed_record(uint32_t found) { return small_record_of(LISTED, found & ~LISTED_IDS); }

// The record of a byte and another one repeated up to `length` bytes; NO_ID where these merge.
DEVICE uint32_t plain_record(const Job& job, uint32_t first, uint32_t second, uint32_t length) {
    if (__ldg(job.text.byte_pairs + (second << 8 | first)) != NO_RANK) return NO_ID;
    if (length > 2 && __ldg(job.text.byte_pairs + second * 257) != NO_RANK) return NO_ID;
    return small_record_of(PLAIN, first | second << 8 | (length - 2) << 16);
}

// The record of a piece of two or three bytes that is no token; `bytes` are its own and zeros.
DEVICE uint32_t small_record(const Job& job, uint32_t bytes, uint32_t length) {
    if (length == 2) return small_record_of(PLAIN, bytes);
    uint32_t first = __ldg(job.text.byte_pairs + (bytes & 0xFFFF)), second = __ldg(job.text.byte_pairs + (bytes >> 8));
    uint32_t kind = first == NO_RANK && second == NO_RANK ? THREE_BYTES : first <= second ? FIRST_PAIR : SECOND_PAIR;
    return small_record_of(kind, bytes);
}

// The record of a piece of 4 bytes or more whose second byte is repeated to its end, NO_ID where it is
// no such piece or merges; `word` has its first four bytes. Up to three bytes behind it are read.
DEVICE uint32_t repeated_record(const Job& job, const uint8_t* text, uint32_t word, uint32_t length) {
    uint32_t second = (word >> 8 & 0xFF) * 0x01010101u;
    if (word >> 8 != second >> 8) return NO_ID;
    for (uint32_t place = 4; place < length; place += 4) {
        uint32_t rest = min_of(4, length - place);
        if (first_word(text + place, rest) != second >> (32 - 8 * rest)) return NO_ID;
    }
    return plain_record(job, word & 0xFF, second & 0xFF, length);
}

DEVICE bool is_small(uint32_t record) { return record >> 30 == (MISS | SMALL) >> 30; }

DEVICE uint32_t small_count(uint32_t record) {
    uint32_t kind = record >> KIND_SHIFT & 7;
    if (kind == PLAIN) return 2 + (record >> 16 & 0xFF);
    return kind == LISTED ? 2 + (record >> LISTED_SHIFT & 3) : kind == THREE_BYTES ? 3 : 2;
}

// The id of a small piece's symbol, by its number.
DEVICE uint32_t small_id(const Job& job, uint32_t record, uint32_t number) {
    uint32_t kind = record >> KIND_SHIFT & 7;
    if (kind == LISTED) return __ldg(job.text.listed_ids + 4 * (record & ((1u << LISTED_SHIFT) - 1)) + number);
    uint32_t begin = kind == PLAIN ? min_of(number, 1) : number + (kind == FIRST_PAIR && number == 1);
    bool is_pair = kind == FIRST_PAIR + number;
    uint32_t symbol = record >> 8 * begin & 0xFF;
    if (is_pair) symbol = 256 + __ldg(job.text.byte_pairs + (record >> 8 * begin & 0xFFFF));
    return __ldg(job.text.symbol_ids + symbol);
}

}  // namespace warptok::text
