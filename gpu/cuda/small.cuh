// All stages of a small batch in one launch, the same that have kernels of their own in larger ones.
//
// Where a stage needs what other threads wrote before it, all threads wait for each other: those of
// one block, or those of a cluster, which are up to sixteen blocks that the device runs side by side.
// A launch costs three microseconds, such a barrier 0.02 and 0.2.
//
// The stages for long runs and long pieces are not among them: where one is needed, STATUS_RARE says
// so, the answer is none, and the batch is encoded by single launches. Vocabularies of two rounds of
// special tokens are left to these, too.
#pragma once
#include "certain.cuh"
#include "compact.cuh"
#include "cut_find.cuh"
#include "frame.cuh"
#include "pretokenize_stage.cuh"
#include "put_out.cuh"
#include "special_accept.cuh"
#include "take_in.cuh"
#include "utf8.cuh"

constexpr uint32_t CLUSTER = 16;           // Blocks.

struct OneBlock {
    DEVICE_METHOD void wait() const { __syncthreads(); }
};

struct OneCluster {
    DEVICE_METHOD void wait() const { wait_for_cluster(); }
};

constexpr uint32_t SMALL_SHARED = 54 * 1024;
struct SmallShared {
    BinBegins begins;
    PretokenizeShared pretokenize;
    union {                                // One stage at a time uses these.
        SpecialShared special;
        OrbitShared orbits;
        LookUpShared look_up;
        Columns columns[BLOCK / 32];
        uint32_t sums[32];
        ScanShared frame;
    };
};
static_assert(sizeof(SmallShared) <= SMALL_SHARED, "the launch asks for so much");

// What the blocks of a launch are and what their stages work with.
template <class Barrier> struct SmallLaunch {
    const Job& job;
    SmallShared& shared;
    Barrier barrier;
    uint32_t block, num_blocks;

    DEVICE_METHOD void take_in() const {
        load_entries(job, shared.pretokenize);  // In time for pretokenize; here nothing else is waited for.
        take_in_batch(job, block, num_blocks);
        clear_faults_stage(job, block, num_blocks);
        barrier.wait();
        mark_rows_stage(job, block, num_blocks);
        barrier.wait();
        if (job.validates) validate_stage(job, block, num_blocks);
    }

    DEVICE_METHOD void special() const {
        find_special_stage<0>(job, shared.special, block, num_blocks);
        barrier.wait();
        if (!job.special_counts[COUNT_FOUND]) return;
        enter_special_stage<0>(job, block, num_blocks);
        barrier.wait();
        accept_special_stage<0>(job, shared.orbits, block, num_blocks);
        barrier.wait();
    }

    DEVICE_METHOD void pretokenize() const {
        pretokenize_quarters(job, shared.pretokenize, block, num_blocks);
        barrier.wait();
        if (!job.special_counts[COUNT_ACCEPTED]) return;
        clear_special_stage(job, block, num_blocks);
        barrier.wait();
    }

    DEVICE_METHOD void cut() const {
        Filter filter = {job.borders, job.byte_borders, static_cast<uint32_t>(job.seed)};
        cut_words<4>(job, filter, block, num_blocks);
        barrier.wait();
        find_long_stage(job, block, num_blocks);
    }

    DEVICE_METHOD void look_up() const {
        look_up_stage(job, shared.look_up, block, num_blocks);
        barrier.wait();
    }

    DEVICE_METHOD void merge() const {
        find_begins<true>(job, shared.begins);
        if (!shared.begins.num_chunks) return;
        merge_chunks<true>(job, {shared.columns, shared.begins, NO_CACHE}, block, num_blocks);
        barrier.wait();
    }

    DEVICE_METHOD void compact() const {
        count_tiles_stage<SMALL_PARTS>(job, block, num_blocks);
        barrier.wait();
        if (block == 0) sum_tiles_stage<SMALL_PARTS>(job, shared.sums);
        barrier.wait();
        row_offsets_stage<SMALL_PARTS>(job, block, num_blocks);
        write_tiles<SMALL_PARTS>(job, shared.begins, block, num_blocks);
        barrier.wait();
    }

    DEVICE_METHOD void frame() const {
        if (block == 0) frame_rows_stage(job, shared.frame);
        barrier.wait();
        frame_ids_stage(job, block, num_blocks);
        barrier.wait();
    }
};

// From the text to the answer, both in pinned host memory.
template <class Barrier>
DEVICE void encode_small(const Job& job, SmallShared& shared, uint32_t block, uint32_t num_blocks) {
    SmallLaunch<Barrier> launch = {job, shared, {}, block, num_blocks};
    launch.take_in();
    if (job.num_rounds) launch.special();
    launch.pretokenize();
    launch.cut();
    launch.look_up();
    launch.merge();
    launch.compact();
    if (job.framed) launch.frame();
    put_out_stage(job, block, num_blocks);
}
