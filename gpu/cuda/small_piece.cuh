// Pieces of two and three bytes that are no token: their ids follow from the bytes in the record.
//
// Nothing is left to merge in them behind the first merge, or the merges would give the piece and it
// would be a token in the tables (gpu/README.md, A table of whole pieces). So two bytes stay two, and
// of three bytes the first pair is merged, or the second, or none:
//
//     bytes E4 BA AC, (E4, BA) of rank 165 and no merge of (BA, AC)     kind FIRST_PAIR
//     record MISS | SMALL | FIRST_PAIR << 24 | 0xACBAE4                 ids of E4 BA, of AC
#pragma once
#include "job.cuh"

constexpr uint32_t MISS = 1u << 31, SMALL = 1u << 30;
constexpr uint32_t MAX_SMALL = 3;
constexpr uint32_t KIND_SHIFT = 24, TWO_BYTES = 0, THREE_BYTES = 1, FIRST_PAIR = 2, SECOND_PAIR = 3;

// The record of a piece that is no token; `bytes` are its own and zeros.
DEVICE uint32_t small_record(const Job& job, uint32_t bytes, uint32_t length) {
    if (length == 2) return MISS | SMALL | TWO_BYTES << KIND_SHIFT | bytes;
    uint32_t first = __ldg(job.byte_pairs + (bytes & 0xFFFF)), second = __ldg(job.byte_pairs + (bytes >> 8));
    uint32_t kind = first == NO_RANK && second == NO_RANK ? THREE_BYTES : first <= second ? FIRST_PAIR : SECOND_PAIR;
    return MISS | SMALL | kind << KIND_SHIFT | bytes;
}

DEVICE bool is_small(uint32_t record) { return record >> 30 == (MISS | SMALL) >> 30; }

DEVICE uint32_t small_count(uint32_t record) {
    return (record >> KIND_SHIFT & 3) == THREE_BYTES ? 3 : 2;
}

// The id of a small piece's symbol, number 0, 1 or 2.
DEVICE uint32_t small_id(const Job& job, uint32_t record, uint32_t number) {
    uint32_t kind = record >> KIND_SHIFT & 3, begin = number + (kind == FIRST_PAIR && number == 1);
    bool is_pair = kind == FIRST_PAIR + number;
    uint32_t symbol = record >> 8 * begin & 0xFF;
    if (is_pair) symbol = 256 + __ldg(job.byte_pairs + (record >> 8 * begin & 0xFFFF));
    return __ldg(job.symbol_ids + symbol);
}
