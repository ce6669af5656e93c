// The first kernels of a batch: fetch it from pinned host memory, mark where its texts begin.
#pragma once
#include "job.cuh"

// Copies the rows and the text that lie in pinned host memory to the device, and clears what later
// stages count in. A read of host memory takes a microsecond, so a thread asks for all before it
// waits for any.
DEVICE void take_in_batch(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = block * static_cast<uint64_t>(BLOCK) + threadIdx.x, stride = num_blocks * BLOCK;
    for (uint64_t i = first; i < job.num_cleared; i += stride) job.cleared[i] = 0;
    uint4* text = reinterpret_cast<uint4*>(const_cast<uint8_t*>(job.text));
    const uint4* host_text = reinterpret_cast<const uint4*>(job.host_text);
    int64_t* begins = const_cast<int64_t*>(job.row_begins);
    uint8_t* flags = const_cast<uint8_t*>(job.row_flags);
    uint32_t* limits = const_cast<uint32_t*>(job.row_max_length);
    for (uint64_t i = first; i * 16 < job.num_bytes || i <= job.num_rows; i += stride) {
        bool has_text = host_text && i * 16 < job.num_bytes, has_begin = i <= job.num_rows;
        bool has_flags = flags && i < job.num_rows, has_limit = limits && i < job.num_rows;
        uint4 sixteen = has_text ? host_text[i] : uint4{0, 0, 0, 0};
        int64_t begin = has_begin ? job.host_row_begins[i] : 0;
        uint32_t flag = has_flags ? job.host_row_flags[i] : 0;
        uint32_t limit = has_limit ? job.host_row_max_length[i] : 0;
        if (has_text) text[i] = sixteen;
        if (has_begin) begins[i] = begin;
        if (has_flags) flags[i] = flag;
        if (has_limit) limits[i] = limit;
    }
}

// The same, and the job itself, which lies in pinned host memory too. One launch of any shape serves
// batches of any size.
DEVICE void take_in_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    take_in_batch(job, block, num_blocks);
    uint64_t i = block * static_cast<uint64_t>(BLOCK) + threadIdx.x;
    if (i < sizeof(Job) / 8) job.device_job[i] = reinterpret_cast<const uint64_t*>(&job)[i];
}

// Sets the hard bit of every row's beginning.
DEVICE void mark_rows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    for (uint64_t row = block * static_cast<uint64_t>(BLOCK) + threadIdx.x; row < job.num_rows;
         row += num_blocks * BLOCK) {
        uint64_t begin = job.row_begins[row];
        if (begin < job.num_bytes) atomic_or(job.hard + begin / 64, 1ull << begin % 64);
    }
}
