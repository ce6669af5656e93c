// Hash functions of the vocabulary's tables. gpu/text/bpe_tables.py builds the tables with the same functions, and
// tries other seeds where too many keys collide. The upper bits of a hash are its bucket, as the upper bits of a
// product depend on all bits of its factors.
#pragma once
#include "common/platform.cuh"

DEVICE uint32_t mixed(uint32_t hash) { return (hash ^ hash >> 15) * 0x2C1B3C6Du; }

DEVICE uint32_t bucket_of(uint32_t hash, uint32_t shift) { return mixed(hash) >> shift; }

// The hash of a piece of up to 12 bytes: its words, zeros behind its bytes, and its length.
DEVICE uint32_t hash_short(const uint32_t* words, uint32_t length, uint32_t seed) {
    return words[0] * 0x9E3779B1u + words[1] * 0x85EBCA77u + words[2] * 0xC2B2AE3Du +
           (length + seed) * 0x27D4EB2Fu;
}

// The same of a piece of up to 28 bytes.
DEVICE uint32_t hash_long(const uint32_t* words, uint32_t length, uint32_t seed) {
    return hash_short(words, length, seed) + (words[3] ^ words[0]) * 0x165667B1u +
           (words[4] ^ words[1]) * 0xD3A2646Du + (words[5] ^ words[2]) * 0xFD7046C5u +
           words[6] * 0xB55A4F09u;
}

// The hash of a pair of symbols.
DEVICE uint32_t hash_pair(uint32_t left, uint32_t right, uint32_t seed) {
    return left * 0x9E3779B1u + (right * 0x85EBCA77u + seed * 0x85EBCA77u);
}

// The hash of any bytes, continued by four more of them; zeros stand behind the last ones.
DEVICE uint32_t hash_next(uint32_t hash, uint32_t word) {
    hash = (hash ^ word) * 0x9E3779B1u;
    return hash ^ hash >> 15;
}
