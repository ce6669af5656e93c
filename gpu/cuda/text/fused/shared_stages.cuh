// The stages of a fused kernel before and after those of byte-level BPE, by one block, a cluster or a grid.
//
// Where a stage needs what other threads wrote before it, all threads wait for each other: those of
// one block; those of a cluster, which are up to sixteen blocks that the device runs side by side; or
// those of a grid that fills the device. A launch costs three microseconds, such a barrier 0.02, 0.2
// and about 1.
//
// Invariant: all threads call `wait` equally often; between two of them none reads what another one writes.
#pragma once
#include "text/pretokenize/nfc_check.cuh"
#include "batch/post_process.cuh"
#include "batch/store_answer.cuh"
#include "special/accept.cuh"
#include "batch/load_batch.cuh"
#include "batch/utf8.cuh"

namespace warptok::text {

constexpr uint32_t CLUSTER = 16;           // Blocks.
constexpr uint32_t GRID_BLOCKS = 2;        // A multiprocessor.

struct OneBlock {
    static DEVICE_METHOD void wait(const Job&) { __syncthreads(); }
};

struct OneCluster {
    static DEVICE_METHOD void wait(const Job&) { wait_for_cluster(); }
};

struct OneGrid {
    static DEVICE_METHOD void wait(const Job& job) { wait_for_grid(job.launch.grid_arrivals); }
};

// Not inlined, as most batches need none of these stages. With special tokens and post-processing inlined, the compiler
// orders a kernel's loads one by one, each directly in front of its use.
template <class Threads>
DEVICE_NOINLINE void accept_special(const Job& job, OrbitShared& shared, uint32_t block, uint32_t num_blocks) {
    enter_special_stage<FIRST_ROUND>(job, block, num_blocks);
    Threads::wait(job);
    accept_special_stage<FIRST_ROUND>(job, shared, block, num_blocks);
    Threads::wait(job);
}

DEVICE_NOINLINE void check_composed(const Job& job, uint32_t block, uint32_t num_blocks) {
    check_composed_stage(job, block, num_blocks);
}

template <class Threads>
DEVICE_NOINLINE void post_process_all(const Job& job, ScanShared& shared, uint32_t block, uint32_t num_blocks) {
    post_process_rows_stage(job, shared);
    Threads::wait(job);
    post_process_ids_stage(job, block, num_blocks);
    Threads::wait(job);
}

// The stages in front of encode_fused's own and behind them. `Shared` has `special`, `orbits` and `post_process`.
template <class Threads, class Shared> struct FusedLaunch {
    const Job& job;
    Shared& shared;
    uint32_t block, num_blocks;

    DEVICE_METHOD void wait() const { Threads::wait(job); }

    // Loads the batch to the device and marks its rows; runs `meanwhile` while the first bytes are loading.
    template <class Work> DEVICE_METHOD void load_batch(Work meanwhile) const {
        uint64_t i = block * static_cast<uint64_t>(BLOCK) + threadIdx.x, stride = num_blocks * BLOCK;
        HostItem item = host_item(job, i);
        meanwhile();
        clear_counts(job, block, num_blocks);
        clear_faults_stage(job, block, num_blocks);
        wait();
        while (i * 16 < job.batch.num_bytes || i <= job.batch.num_rows) {
            HostItem next = host_item(job, i + stride);
            put_item(job, i, item);
            if (i < job.batch.num_rows) mark_row(job, item.begin);
            item = next;
            i += stride;
        }
        wait();
        if (job.launch.validates) validate_stage(job, block, num_blocks);
        if (job.pretokenizer.composed_leads) check_composed(job, block, num_blocks);
    }

    DEVICE_METHOD void special() const {
        find_special_stage<FIRST_ROUND>(job, shared.special, block, num_blocks);
        wait();
        if (job.special.special_counts[COUNT_FOUND]) accept_special<Threads>(job, shared.orbits, block, num_blocks);
    }

    DEVICE_METHOD void post_process() const { post_process_all<Threads>(job, shared.post_process, block, num_blocks); }
};

}  // namespace warptok::text
