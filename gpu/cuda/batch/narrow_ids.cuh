// Narrows ids of 32 bits to 16 or 8, for families whose kernels write only ids of 32: little-endian, side by side.
//
//     ids          00000102  00000304  00000506        int32
//     narrow_ids   0102 0304  0506                     uint16: a thread writes the first two, another one the third
//
// Invariant: ids are requested in id_bits only of vocabularies none of whose ids needs more.
#pragma once
#include "common/job.cuh"

template <class Id> DEVICE void narrow_ids_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    constexpr uint32_t IDS_A_WORD = 4 / sizeof(Id), BITS = 8 * sizeof(Id);
    uint64_t total = job.answer.status[STATUS_NUM_IDS], stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    uint32_t* words = reinterpret_cast<uint32_t*>(job.answer.narrow_ids);
    for (uint64_t word = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; word * IDS_A_WORD < total;
         word += stride) {
        uint32_t ids = 0;
        for (uint32_t i = 0; i < IDS_A_WORD && word * IDS_A_WORD + i < total; i++)
            ids |= static_cast<uint32_t>(static_cast<Id>(job.answer.ids[word * IDS_A_WORD + i])) << BITS * i;
        words[word] = ids;
    }
}
