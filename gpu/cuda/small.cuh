// All stages of a small batch in one launch, the same that have kernels of their own in larger ones.
//
// Where a stage needs what other threads wrote before it, all threads wait for each other: those of
// one block; those of a cluster, which are up to sixteen blocks that the device runs side by side; or
// those of a grid that fills the device. A launch costs three microseconds, such a barrier 0.02, 0.2
// and about 1.
//
// The stages for long runs and long pieces are not among them: where one is needed, STATUS_RARE says
// so, and the answer is none. One block or a cluster has then done little, and the batch is encoded by
// single launches; a grid stops there, and single launches go on from where it stopped:
//
//     take in   special   pretokenize   cut   look up   merge   compact   frame   put out
//                                    ^      ^
//     RARE_RUNS: again from pretokenize on  RARE_PIECES: on from windows
//
// Vocabularies of two rounds of special tokens are left to single launches, too.
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

constexpr uint32_t GRID_BLOCKS = 2;        // A multiprocessor.
constexpr uint32_t RARE_RUNS = 1;          // Of STATUS_RARE: a grid has stopped behind pretokenize,
constexpr uint32_t RARE_PIECES = 2;        // or behind cut.

// Whose threads a launch has, and how few they are for its batch: FEW and PARTS as in merge_stage.cuh
// and compact.cuh.
struct OneBlock {
    static constexpr bool FEW = true, STOPS = false;
    static constexpr uint32_t PARTS = SMALL_PARTS;
    static DEVICE_METHOD void wait(const Job&) { __syncthreads(); }
};

struct OneCluster {
    static constexpr bool FEW = true, STOPS = false;
    static constexpr uint32_t PARTS = SMALL_PARTS;
    static DEVICE_METHOD void wait(const Job&) { wait_for_cluster(); }
};

struct OneGrid {
    static constexpr bool FEW = false, STOPS = true;
    static constexpr uint32_t PARTS = 2;
    static DEVICE_METHOD void wait(const Job& job) { wait_for_grid(job.grid_arrivals); }
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
template <class Threads> struct SmallLaunch {
    const Job& job;
    SmallShared& shared;
    uint32_t block, num_blocks;

    DEVICE_METHOD void wait() const { Threads::wait(job); }

    DEVICE_METHOD void take_in() const {
        load_entries(job, shared.pretokenize);  // In time for pretokenize; here nothing else is waited for.
        take_in_batch(job, block, num_blocks);
        clear_faults_stage(job, block, num_blocks);
        wait();
        mark_rows_stage(job, block, num_blocks);
        wait();
        if (job.validates) validate_stage(job, block, num_blocks);
    }

    DEVICE_METHOD void special() const {
        find_special_stage<0>(job, shared.special, block, num_blocks);
        wait();
        if (!job.special_counts[COUNT_FOUND]) return;
        enter_special_stage<0>(job, block, num_blocks);
        wait();
        accept_special_stage<0>(job, shared.orbits, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void pretokenize() const {
        pretokenize_quarters(job, shared.pretokenize, block, num_blocks);
        wait();
        if (!job.special_counts[COUNT_ACCEPTED]) return;
        clear_special_stage(job, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void cut() const {
        Filter filter = {job.borders, job.byte_borders, static_cast<uint32_t>(job.seed)};
        cut_words<4>(job, filter, block, num_blocks);
        wait();
        find_long_stage(job, block, num_blocks);
        if (Threads::STOPS) wait();
    }

    // Whether a grid stops here, where `found` is not 0; all of its threads say the same.
    DEVICE_METHOD bool stops(uint64_t found, uint32_t why) const {
        if (!Threads::STOPS || !found) return false;
        if (block == 0 && threadIdx.x == 0) job.host_status[STATUS_RARE] = why;
        return true;
    }

    DEVICE_METHOD void look_up() const {
        look_up_stage(job, shared.look_up, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void merge() const {
        find_begins<Threads::FEW>(job, shared.begins);
        if (!shared.begins.num_chunks) return;
        merge_chunks<Threads::FEW>(job, {shared.columns, shared.begins, NO_CACHE}, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void compact() const {
        count_tiles_stage<Threads::PARTS>(job, block, num_blocks);
        wait();
        if (block == 0) sum_tiles_stage<Threads::PARTS>(job, shared.sums);
        wait();
        row_offsets_stage<Threads::PARTS>(job, block, num_blocks);
        write_tiles<Threads::PARTS>(job, shared.begins, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void frame() const {
        if (!Threads::FEW || block == 0) frame_rows_stage(job, shared.frame);
        wait();
        frame_ids_stage(job, block, num_blocks);
        wait();
    }
};

// From the text to the answer, both in pinned host memory.
template <class Threads>
DEVICE void encode_small(const Job& job, SmallShared& shared, uint32_t block, uint32_t num_blocks) {
    SmallLaunch<Threads> launch = {job, shared, block, num_blocks};
    launch.take_in();
    if (job.num_rounds) launch.special();
    launch.pretokenize();
    if (launch.stops(job.bad_tiles[0], RARE_RUNS)) return;
    launch.cut();
    if (launch.stops(job.window_counts[0], RARE_PIECES)) return;
    launch.look_up();
    launch.merge();
    launch.compact();
    if (job.framed) launch.frame();
    put_out_stage(job, block, num_blocks);
}
