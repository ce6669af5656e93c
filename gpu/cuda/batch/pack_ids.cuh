// Ids in fewer bits than 32, for the way back to the host: id i is the bits i * B .. i * B + B - 1 of
// little-endian words. With B = 16 that is an array of uint16.
//
// A thread makes one word, from the two or three ids that lie in it. Example, B = 20: word 1 is the
// upper 8 bits of id 1, all of id 2 and the lower 4 bits of id 3.
#pragma once
#include "common/job.cuh"

DEVICE void pack_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t bits = job.id_bits;
    uint64_t total = job.status[STATUS_NUM_IDS], words = (total * bits + 31) / 32;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t word = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; word < words; word += stride) {
        uint64_t id = word * 32 / bits, packed = 0;
        int32_t shift = static_cast<int32_t>(id * bits - word * 32);  // Of the first one: not above 0.
        for (; shift < 32 && id < total; id++, shift += bits) {
            uint64_t value = static_cast<uint32_t>(job.ids[id]);
            packed |= shift < 0 ? value >> -shift : value << shift;
        }
        job.packed[word] = static_cast<uint32_t>(packed);
    }
}
