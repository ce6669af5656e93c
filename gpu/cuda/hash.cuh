// Hash functions of the vocabulary's tables; gpu/tables.py builds with the same.
//
// Keyed: without the seed, which is new in every process, nobody can make texts that collide.
#pragma once
#include "shim.cuh"

DEVICE uint32_t mix(uint32_t hash, uint32_t word) {
    hash = (hash ^ word) * 0x9E3779B1u;
    return hash ^ (hash >> 15);
}

// Of a piece's words, zeros behind its bytes, and its length.
template <int WORDS>
DEVICE uint32_t hash_words(const uint32_t* words, uint32_t length, uint32_t seed) {
    uint32_t hash = seed ^ length;
    for (int i = 0; i < WORDS; i++) hash = mix(hash, words[i]);
    return mix(hash, length);
}

// Of a pair of ids.
DEVICE uint32_t hash_pair(uint32_t left, uint32_t right, uint32_t seed) {
    return mix(mix(seed, left), right) ;
}
