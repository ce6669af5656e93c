// All stages of a small batch of text in one launch, the same that have kernels of their own in larger
// ones.
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
#include "compact.cuh"
#include "cut_certain.cuh"
#include "cut_find.cuh"
#include "one_launch.cuh"
#include "pretokenize_stage.cuh"

constexpr uint32_t RARE_RUNS = 1;          // Of STATUS_RARE: a grid has stopped behind pretokenize,
constexpr uint32_t RARE_PIECES = 2;        // or behind cut.

constexpr uint32_t SMALL_TILES = 1024;     // Of a batch at most: layout.SMALL_BYTES.
constexpr uint32_t SMALL_SHARED = 54 * 1024;
struct SmallShared {
    BinBegins begins;
    PretokenizeShared pretokenize;
    FindShared find;
    union {                                // One stage at a time uses these.
        SpecialShared special;
        OrbitShared orbits;
        CertainWarp certain[BLOCK / 32];
        LookUpShared look_up;
        Columns columns[BLOCK / 32];
        struct {
            uint32_t sums[32], group_offsets[SMALL_TILES * SMALL_PARTS / WARPS];
            int32_t ids[TILE + MAX_PIECE];  // Of the pieces that begin in a tile.
        };
        ScanShared frame;
    };
};
static_assert(sizeof(SmallShared) <= SMALL_SHARED, "the launch asks for so much");

// Whether there are few threads for a batch, or few pieces for the threads: FEW of merge_stage.cuh; and
// whether they stop where others go on.
struct Few {
    static constexpr bool FEW = true, STOPS = false;
};

struct Many {
    static constexpr bool FEW = false, STOPS = true;
};

template <class Threads, class Size> struct SmallLaunch : OneLaunch<Threads, SmallShared> {
    using Base = OneLaunch<Threads, SmallShared>;
    using Base::block, Base::job, Base::num_blocks, Base::shared, Base::wait;

    DEVICE_METHOD void pretokenize() const {
        pretokenize_once(job, shared.pretokenize, block, num_blocks);
        wait();
        if (!job.special_counts[COUNT_ACCEPTED]) return;
        clear_special_stage(job, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void cut() const {
        Filter filter = {job.borders, job.byte_borders, static_cast<uint32_t>(job.seed)};
        cut_text(job, filter, shared.certain, block, num_blocks);
        wait();
        if (!Size::STOPS) return;  // Looking up finds what is long.
        find_long_stage(job, shared.find, block, num_blocks);
        wait();
    }

    // Whether a grid stops here, where `found` is not 0; all of its threads say the same.
    DEVICE_METHOD bool stops(uint64_t found, uint32_t why) const {
        if (!Size::STOPS || !found) return false;
        if (block == 0 && threadIdx.x == 0) job.host_status[STATUS_RARE] = why;
        return true;
    }

    DEVICE_METHOD void look_up() const {
        look_up_stage<Size::STOPS, true>(job, shared.look_up, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void merge() const {
        find_begins<Size::FEW>(job, shared.begins);
        if (!shared.begins.num_chunks) return;
        merge_chunks<Size::FEW, true>(job, {shared.columns, shared.begins, NO_CACHE}, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void compact() const {
        // Every block adds up for itself, which takes less than waiting for one.
        uint64_t num_ids = sum_groups<SMALL_PARTS>(job, shared.sums, shared.group_offsets);
        if (block == 0 && threadIdx.x == 0) job.status[STATUS_NUM_IDS] = num_ids;
        GroupSums<uint32_t> sums = {shared.group_offsets, num_ids};
        if (job.framed) {
            row_offsets_stage<SMALL_PARTS>(job, sums, job.id_offsets, block, num_blocks);
            write_units<SMALL_PARTS>(job, shared.begins, sums.before, job.ids, block, num_blocks);
            wait();
        } else {
            answer_tiles(num_ids);  // What follows is done while they are on their way.
            row_offsets_stage<SMALL_PARTS>(job, sums, job.host_offsets, block, num_blocks);
            report_faults(job, block, num_blocks);
        }
    }

    // The ids of tile after tile to where they are wanted, put in order in shared memory: single words are slow
    // on their way to the host.
    DEVICE_METHOD void answer_tiles(uint64_t num_ids) const {
        static_assert(SMALL_PARTS == WARPS, "a warp a part, and what is before a tile's first one is added up");
        const uint32_t* before = shared.group_offsets;
        for (uint32_t tile = block; tile < num_tiles(job); tile += num_blocks) {
            uint32_t unit = tile * SMALL_PARTS + threadIdx.x / 32;
            uint64_t place = ids_before(job, before, unit) - before[tile];
            write_unit(job, shared.begins, records_of<SMALL_PARTS>(job, unit), shared.ids + place);
            __syncthreads();
            uint64_t end = tile + 1 < num_tiles(job) ? before[tile + 1] : num_ids;
            put_ids(job, before[tile], shared.ids, end - before[tile], threadIdx.x, BLOCK);
            __syncthreads();
        }
    }

    DEVICE_METHOD void put_out() const {
        if (job.framed) put_out_stage(job, block, num_blocks);
    }
};

// From the text to the answer, both in pinned host memory.
template <class Threads, class Size>
DEVICE void encode_small(const Job& job, SmallShared& shared, uint32_t block, uint32_t num_blocks) {
    SmallLaunch<Threads, Size> launch = {{job, shared, block, num_blocks}};
    launch.take_in([&] { load_entries<BLOCK>(job, shared.pretokenize); });
    if (job.num_rounds) launch.special();
    launch.pretokenize();
    if (launch.stops(job.bad_tiles[0], RARE_RUNS)) return;
    launch.cut();
    if (launch.stops(job.window_counts[0], RARE_PIECES)) return;
    launch.look_up();
    launch.merge();
    launch.compact();
    if (job.framed) launch.frame();
    launch.put_out();
}
