// The last stage of a batch: what the host must know of it into pinned host memory; of a small one
// all of the answer, so that the host waits once. A kernel writes it, since copies of larger answers
// are queued one behind the other.
#pragma once
#include "job.cuh"

// Copies what is wrong with rows, and the status.
DEVICE void report_faults(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t row = first; row < job.num_rows; row += stride) {
        uint32_t error = min_of(job.row_errors[row], job.row_refused[row]);
        job.host_errors[row] = error;
        if (error != NO_BYTE) job.host_status[STATUS_NOT_UTF8] = 1;  // The host has cleared it.
    }
    bool rare = job.bad_tiles && (job.bad_tiles[0] || job.window_counts[0]);
    if (first < 8 && first != STATUS_NOT_UTF8)
        job.host_status[first] = job.status[first] | (first == STATUS_RARE && rare);
}

// The same, and where each row's ids begin.
DEVICE void report_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t i = first; i <= job.num_rows; i += stride)
        job.host_offsets[i] = job.answer_offsets[i];
    report_faults(job, block, num_blocks);
}

template <class Id> DEVICE void put_ids(const Job& job, uint32_t block, uint32_t num_blocks) {
    Id* ids = reinterpret_cast<Id*>(job.host_ids);
    uint64_t num_ids = job.answer_offsets[job.num_rows], stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t i = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; i < num_ids; i += stride)
        ids[i] = static_cast<Id>(job.answer_ids[i]);
}

// Copies the ids, too, of 32, 16 or 8 bits.
DEVICE void put_out_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    if (job.id_bits == 16) put_ids<uint16_t>(job, block, num_blocks);
    else if (job.id_bits == 8) put_ids<uint8_t>(job, block, num_blocks);
    else put_ids<int32_t>(job, block, num_blocks);
    report_stage(job, block, num_blocks);
}
