// The last stage of a batch: stores its status, faults and offsets in pinned host memory; of a small batch the ids,
// too, so that the host waits only once. A kernel writes them, because copies wait behind those of larger answers.
//
// Example, ids of 16 bits to an address 4 bytes behind a line's begin: threads 0 and 1 write nothing, thread 2 id 0.
//
// Invariant: the host has cleared STATUS_NOT_UTF8 of host_status; every other word of it is written.
#pragma once
#include "batch/rows.cuh"

// Stores the status, and the faults of rows if there may be any.
DEVICE void report_faults(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    uint64_t num_rows = are_rows_right(job) ? 0 : job.batch.num_rows;
    for (uint64_t row = first; row < num_rows; row += stride) {
        uint32_t error = min_of(job.rows.row_errors[row], job.rows.row_refused[row]);
        job.host.host_errors[row] = error;
        if (error != NO_BYTE) job.host.host_status[STATUS_NOT_UTF8] = 1;  // The host has cleared it.
    }
    uint64_t fallback = 0;
    if (job.pretokenizer.bad_tiles) {
        if (job.pretokenizer.bad_tiles[0]) fallback |= warptok::text::FALLBACK_RUNS;
        if (job.text.window_counts[COUNT_WINDOWS]) fallback |= warptok::text::FALLBACK_PIECES;
    }
    if (first < 8 && first != STATUS_NOT_UTF8)
        job.host.host_status[first] = job.answer.status[first] | (first == STATUS_FALLBACK ? fallback : 0);
}

// Stores the same, and where each row's ids begin.
DEVICE void report_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t i = first; i <= job.batch.num_rows; i += stride)
        job.host.host_offsets[i] = job.host.answer_offsets[i];
    report_faults(job, block, num_blocks);
}

// Stores ids, neighbouring ones by neighbouring threads. A warp writes whole lines of memory, wherever in its line the
// first id lies.
template <class Id>
DEVICE void put_lines(Id* to, const int32_t* ids, uint64_t count, uint64_t first, uint64_t stride) {
    constexpr uint64_t LINE = 128;
    uint64_t before = reinterpret_cast<uint64_t>(to) % LINE / sizeof(Id);  // Places of the first line.
    for (uint64_t i = first; i < before + count; i += stride)
        if (i >= before) to[i - before] = static_cast<Id>(ids[i - before]);
}

// Stores `count` ids of id_bits, behind `behind` others.
DEVICE void put_ids(const Job& job, uint64_t behind, const int32_t* ids, uint64_t count, uint64_t first,
                    uint64_t stride) {
    if (job.answer.id_bits == 16)
        put_lines(reinterpret_cast<uint16_t*>(job.host.host_ids) + behind, ids, count, first, stride);
    else if (job.answer.id_bits == 8)
        put_lines(reinterpret_cast<uint8_t*>(job.host.host_ids) + behind, ids, count, first, stride);
    else put_lines(job.host.host_ids + behind, ids, count, first, stride);
}

// Stores all ids of an answer, and its report.
DEVICE void store_answer_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    put_ids(job, 0, job.host.answer_ids, job.host.answer_offsets[job.batch.num_rows], first, stride);
    report_stage(job, block, num_blocks);
}
