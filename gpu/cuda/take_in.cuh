// The first kernels of a batch: fetch it from pinned host memory, mark where its texts begin.
#pragma once
#include "job.cuh"

// Copies a batch that lies in pinned host memory (`job` too) to the device, and clears what later
// kernels count in. One launch of any shape serves batches of any size.
DEVICE void take_in_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = block * static_cast<uint64_t>(BLOCK) + threadIdx.x, stride = num_blocks * BLOCK;
    uint4* text = reinterpret_cast<uint4*>(const_cast<uint8_t*>(job.text));
    const uint4* host_text = reinterpret_cast<const uint4*>(job.host_text);
    for (uint64_t i = first; i * 16 < job.num_bytes; i += stride) text[i] = host_text[i];
    int64_t* begins = const_cast<int64_t*>(job.row_begins);
    for (uint64_t i = first; i <= job.num_rows; i += stride) begins[i] = job.host_row_begins[i];
    uint64_t* to = job.device_job;
    if (first < sizeof(Job) / 8) to[first] = reinterpret_cast<const uint64_t*>(&job)[first];
    for (uint64_t i = first; i < job.num_cleared; i += stride) job.cleared[i] = 0;
}

// Sets the hard bit of every row's beginning.
DEVICE void mark_rows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    for (uint64_t row = block * static_cast<uint64_t>(BLOCK) + threadIdx.x; row < job.num_rows;
         row += num_blocks * BLOCK) {
        uint64_t begin = job.row_begins[row];
        if (begin < job.num_bytes) atomic_or(job.hard + begin / 64, 1ull << begin % 64);
    }
}
