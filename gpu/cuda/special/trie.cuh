// Finds the longest special token or motif at a place, in a radix trie of their bytes.
//
// An edge is looked up by its node and the first of its bytes. It has up to eight bytes, and says behind which of them
// a token ends. Byte i of an edge that leads from one node to node n + k, for k bytes, ends at number n + i + 1, so
// that every token's end has a number of its own:
//
//     bytes 0-3, bytes 4-7, node << 12 | count << 8 | ends, last node << 8 | ordinary    the last word 0: empty
//
// Example, tokens "<a>" and "<a>>>": one edge with the bytes <a>>>, count 5 and ends 10100, and `ordinary` 00100 if
// only the first of them is matched in plain text, too.
//
// There are two rounds, as in the libraries: tokens of root 0 are matched in the text of each row, tokens of root 1 in
// the rest of it (gpu/vocabulary/special_tokens.py). No match crosses a row's end. Motifs are tokens of the last round.
// Tokens of WHOLE_ROOT count where they are a whole stretch.
//
// Invariant: a match is compared in full; no id rests on a hash.
#pragma once
#include "common/job.cuh"

constexpr uint32_t MAX_SPECIAL = 256;      // Bytes of the longest token.
constexpr uint32_t FIRST_ROUND = 0, SECOND_ROUND = 1;  // Also the roots of their tokens.
constexpr uint32_t WHOLE_ROOT = 2;
constexpr uint32_t EDGE_NODE_SHIFT = 12;
constexpr uint32_t EDGE_COUNT_SHIFT = 8;
constexpr uint32_t EDGE_LAST_SHIFT = 8;

struct SpecialMatch {
    uint32_t length;                       // Bytes; 0: there is no match.
    uint32_t node;                         // The number of the token's end.
    bool ordinary;                         // It is matched in plain text, too.
};

// The edge of a node whose first byte is `byte`; its last word is 0 where there is none.
DEVICE uint4 edge_of(const Job& job, uint32_t node, uint32_t byte) {
    uint32_t hash = ((node << 8 | byte) ^ static_cast<uint32_t>(job.tokens.seed)) * 0x9E3779B1u;
    hash = (hash ^ hash >> 15) * 0x85EBCA77u;
    const uint4* edges = reinterpret_cast<const uint4*>(job.special.special_edges);
    for (uint32_t place = hash ^ hash >> 13;; place++) {
        uint4 edge = __ldg(edges + (place & job.special.special_mask));
        if (!edge.w || (edge.z >> EDGE_NODE_SHIFT == node && (edge.x & 0xFF) == byte)) return edge;
    }
}

// Eight bytes from a place on; the whole words that hold them are read.
DEVICE uint64_t eight_at(const uint32_t* text, uint64_t place) {
    const uint32_t* words = text + place / 4;
    uint32_t shift = (place & 3) * 8, middle = words[1];
    uint64_t upper = shift_right(middle, words[2], shift);
    return upper << 32 | shift_right(words[0], middle, shift);
}

// The longest token of a root that begins at a place of the text and has at most `limit` bytes.
DEVICE SpecialMatch longest_special(const Job& job, uint32_t root, const uint32_t* text,
                                    uint64_t place, uint32_t limit) {
    SpecialMatch found = {0, 0, false};
    for (uint32_t node = root, length = 0; length < limit;) {
        uint64_t bytes = eight_at(text, place + length);
        uint4 edge = edge_of(job, node, bytes & 0xFF);
        if (!edge.w) break;
        uint32_t count = edge.z >> EDGE_COUNT_SHIFT & 0xF, same = min_of(count, limit - length);
        uint64_t differ = bytes ^ (static_cast<uint64_t>(edge.y) << 32 | edge.x);
        if (differ) same = min_of(same, lowest_bit(differ) / 8);
        uint32_t last = edge.w >> EDGE_LAST_SHIFT, ends = edge.z & ((1u << same) - 1);
        if (ends) {
            uint32_t end = highest_bit(ends);
            found = {length + end + 1, last - count + end + 1, (edge.w >> end & 1) != 0};
        }
        if (same < count) break;
        length += count;
        node = last;
    }
    return found;
}

// Bytes from a place to the first border behind it, or `limit` if that is nearer. Borders are the hard bits, where a
// row begins, or an accepted special token begins or ends.
DEVICE uint32_t border_behind(const Job& job, uint64_t place, uint32_t limit) {
    for (uint64_t at = place + 1; at < place + limit; at = (at / 64 + 1) * 64) {
        uint64_t bits = job.batch.hard[at / 64] >> at % 64;
        if (bits) return min_of(limit, static_cast<uint32_t>(at - place) + lowest_bit(bits));
    }
    return limit;
}

DEVICE bool begins_special(const Job& job, uint64_t place) {
    return job.special.special[place / 64] >> place % 64 & 1;
}

// How many bytes a special token at a place may have, at most.
DEVICE uint32_t special_limit(const Job& job, uint64_t place) {
    uint64_t rest = job.batch.num_bytes - place;
    return rest < MAX_SPECIAL ? static_cast<uint32_t>(rest) : MAX_SPECIAL;
}

// The match of a round at place begin + number; `text` is a copy of the batch from `begin` on. In the second round it
// is the token that the first one accepted there, if there is one.
template <uint32_t ROUND>
DEVICE SpecialMatch match_special(const Job& job, uint64_t begin, const uint32_t* text,
                                  uint32_t number) {
    uint64_t place = begin + number;
    uint32_t root = ROUND && !begins_special(job, place) ? 1 : 0;
    SpecialMatch found = longest_special(job, root, text, number, special_limit(job, place));
    if (found.length < 2) return found;
    uint32_t limit = border_behind(job, place, found.length);
    return limit < found.length ? longest_special(job, root, text, number, limit) : found;
}

// The id of the accepted special token of the bytes begin .. begin + length - 1.
DEVICE uint32_t special_id(const Job& job, uint64_t begin, uint32_t length) {
    const uint32_t* text = reinterpret_cast<const uint32_t*>(job.batch.text);
    for (uint32_t root = 0; root <= WHOLE_ROOT; root++) {
        SpecialMatch found = longest_special(job, root, text, begin, length);
        if (found.length == length) return __ldg(job.special.special_nodes + found.node);
    }
    return NO_ID;
}
