// Finds the longest special token at a place, in a trie of their bytes.
//
// Two rounds as the libraries have them: the tokens of root 0 are looked for in the text of each
// row, those of root 1 in what is left of it (gpu/special.py). Neither ever leaves its row.
#pragma once
#include "job.cuh"

constexpr uint32_t MAX_SPECIAL = 256;      // Bytes of the longest one.
constexpr uint32_t ORDINARY = 1u << 31;    // special=False: found in plain text, too.

struct SpecialMatch {
    uint32_t length;                       // 0: there is none.
    uint32_t token;                        // Its id, and ORDINARY.
};

// The node behind an edge, 0 where there is none.
DEVICE uint32_t next_node(const Job& job, uint32_t node, uint32_t byte) {
    uint32_t key = node << 8 | byte, hash = (key ^ static_cast<uint32_t>(job.seed)) * 0x9E3779B1u;
    hash = (hash ^ hash >> 15) * 0x85EBCA77u;
    for (uint32_t place = hash ^ hash >> 13;; place++) {
        uint64_t edge = __ldg(job.special_edges + (place & job.special_mask));
        if (edge >> 32 == key && edge) return static_cast<uint32_t>(edge);
        if (!edge) return 0;
    }
}

// The longest token of a root that begins at a place and has at most `limit` bytes.
DEVICE SpecialMatch longest_special(const Job& job, uint32_t root, uint64_t place, uint32_t limit) {
    SpecialMatch found = {0, 0};
    for (uint32_t node = root, i = 0; i < limit;) {
        node = next_node(job, node, job.text[place + i++]);
        if (!node) break;
        uint32_t token = __ldg(job.special_nodes + node);
        if (token != NO_ID) found = {i, token};
    }
    return found;
}

// Bytes from a place to the first border behind it, `limit` where that is nearer. Borders are the
// hard bits: a row begins, or a special token that was accepted begins or ends.
DEVICE uint32_t border_behind(const Job& job, uint64_t place, uint32_t limit) {
    for (uint64_t at = place + 1; at < place + limit; at = (at / 64 + 1) * 64) {
        uint64_t bits = job.hard[at / 64] >> at % 64;
        if (bits) return min_of(limit, static_cast<uint32_t>(at - place) + lowest_bit(bits));
    }
    return limit;
}

DEVICE bool begins_special(const Job& job, uint64_t place) {
    return job.special[place / 64] >> place % 64 & 1;
}

// Bytes from a place that a special token may have at most.
DEVICE uint32_t special_limit(const Job& job, uint64_t place) {
    uint64_t rest = job.num_bytes - place;
    return rest < MAX_SPECIAL ? static_cast<uint32_t>(rest) : MAX_SPECIAL;
}

// What a round finds at a place: in the second one, first of all what the first one accepted there.
//
// Borders that other blocks set meanwhile do no harm: none lies inside of a token that is accepted,
// and one that is not is passed over whatever its length.
template <uint32_t ROUND>
DEVICE SpecialMatch match_special(const Job& job, uint64_t place) {
    uint32_t root = ROUND && !begins_special(job, place) ? 1 : 0;
    SpecialMatch found = longest_special(job, root, place, special_limit(job, place));
    if (found.length < 2) return found;
    uint32_t limit = border_behind(job, place, found.length);
    return limit < found.length ? longest_special(job, root, place, limit) : found;
}

// The id of the accepted special token that is the bytes begin .. begin + length - 1.
DEVICE uint32_t special_id(const Job& job, uint64_t begin, uint32_t length) {
    for (uint32_t root = 0; root < 2; root++) {
        SpecialMatch found = longest_special(job, root, begin, length);
        if (found.length == length) return found.token & ~ORDINARY;
    }
    return NO_ID;
}
