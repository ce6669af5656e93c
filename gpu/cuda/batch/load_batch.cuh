// The first kernels of a batch: they load it from pinned host memory and mark where its rows begin.
//
// Invariant: after load_batch all words from `cleared` on are zeros; after mark_rows a bit of `hard` is set exactly
// where a row begins.
#pragma once
#include "common/job.cuh"

// What a thread loads at a time from pinned host memory: sixteen bytes of text and a row. Each load takes a
// microsecond, so that all of them are started before the first one is used.
struct HostItem {
    uint4 text;
    int64_t begin;
    uint32_t flags, limit;
    bool has_text, has_begin, has_flags, has_limit;
};

DEVICE HostItem host_item(const Job& job, uint64_t i) {
    bool is_row = i < job.batch.num_rows;
    HostItem item = {{0, 0, 0, 0}, 0, 0, 0, job.host.host_text && i * 16 < job.batch.num_bytes, i <= job.batch.num_rows,
                     job.rows.row_flags && is_row, job.rows.row_max_length && is_row};
    if (item.has_text) item.text = reinterpret_cast<const uint4*>(job.host.host_text)[i];
    if (item.has_begin) item.begin = job.host.host_row_begins[i];
    if (item.has_flags) item.flags = job.host.host_row_flags[i];
    if (item.has_limit) item.limit = job.host.host_row_max_length[i];
    return item;
}

DEVICE void put_item(const Job& job, uint64_t i, const HostItem& item) {
    if (item.has_text) reinterpret_cast<uint4*>(const_cast<uint8_t*>(job.batch.text))[i] = item.text;
    if (item.has_begin) const_cast<int64_t*>(job.rows.row_begins)[i] = item.begin;
    if (item.has_flags) const_cast<uint8_t*>(job.rows.row_flags)[i] = item.flags;
    if (item.has_limit) const_cast<uint32_t*>(job.rows.row_max_length)[i] = item.limit;
}

// Clears the words in which later stages count.
DEVICE void clear_counts(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = block * static_cast<uint64_t>(BLOCK) + threadIdx.x, stride = num_blocks * BLOCK;
    for (uint64_t i = first; i < job.launch.num_cleared; i += stride) job.launch.cleared[i] = 0;
}

// Copies the Job to where other kernels read it.
DEVICE void put_job(const Job& job, uint32_t block) {
    uint64_t word = block * static_cast<uint64_t>(BLOCK) + threadIdx.x;
    if (word < sizeof(Job) / 8) job.launch.device_job[word] = reinterpret_cast<const uint64_t*>(&job)[word];
}

// Loads the batch and the Job to the device; the text only where it lies in pinned memory (host_text).
DEVICE void load_batch_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    clear_counts(job, block, num_blocks);
    uint64_t first = block * static_cast<uint64_t>(BLOCK) + threadIdx.x, stride = num_blocks * BLOCK;
    uint64_t num_texts = job.host.host_text ? (job.batch.num_bytes + 15) / 16 : 0;
    for (uint64_t i = first; i < num_texts || i <= job.batch.num_rows; i += stride) put_item(job, i, host_item(job, i));
    put_job(job, block);
}

// Sets the hard bit of a row's beginning.
DEVICE void mark_row(const Job& job, uint64_t begin) {
    if (begin < job.batch.num_bytes) atomic_or(job.batch.hard + begin / 64, 1ull << begin % 64);
}

// Sets the hard bit of every row's beginning.
DEVICE void mark_rows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    for (uint64_t row = block * static_cast<uint64_t>(BLOCK) + threadIdx.x; row < job.batch.num_rows;
         row += num_blocks * BLOCK)
        mark_row(job, job.rows.row_begins[row]);
}
