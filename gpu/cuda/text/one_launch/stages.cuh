// All stages of a small batch of text in one launch, the same that have kernels of their own in larger
// ones.
//
// The stages for long runs and long pieces are not among them: where one is needed, STATUS_RARE says
// so, and the answer is none. One block or a cluster has then done little, and the batch is encoded by
// single launches; a grid stops there, and single launches go on from where it stopped. Where the batch
// before needed them (job.launch.leaves) it stops whatever it finds, and they are queued behind it at once:
//
//     take in   special   pretokenize   cut   look up   merge   compact   frame   put out
//                                    ^      ^
//     RARE_RUNS: again from pretokenize on  RARE_PIECES: on from windows
//     leaves RARE_RUNS: without pretokenize
//
// Vocabularies of two rounds of special tokens are left to single launches, too.
//
// Invariant: where STATUS_RARE is 0 the answer is that of single launches; where it is not, all that the stages before
// the one that stopped have written is right, and the answer is void.
#pragma once
#include "text/compact/compact_to_host.cuh"
#include "text/split/certain_boundaries.cuh"
#include "text/split/find_long.cuh"
#include "text/one_launch/shared_stages.cuh"
#include "text/pretokenize/first_pass.cuh"

namespace warptok::text {

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
        AnswerShared answer;
        ScanShared frame;
    };
};
static_assert(sizeof(SmallShared) <= SMALL_SHARED, "the launch asks for so much");

template <class Threads, class Policy> struct SmallLaunch : OneLaunch<Threads, SmallShared> {
    using Base = OneLaunch<Threads, SmallShared>;
    using Base::block, Base::job, Base::num_blocks, Base::shared, Base::wait;

    DEVICE_METHOD void pretokenize() const {
        pretokenize_once(job, shared.pretokenize, block, num_blocks);
        wait();
        if (!job.special.special_counts[COUNT_ACCEPTED]) return;
        clear_special_stage(job, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void cut() const {
        Filter filter = {job.text.borders, job.text.byte_borders, static_cast<uint32_t>(job.tokens.seed)};
        cut_text(job, filter, shared.certain, block, num_blocks);
        wait();
        if (!Policy::LONG_PIECES_ARE_SPLIT) return;  // Looking up finds what is long.
        find_long_stage(job, shared.find, block, num_blocks);
        wait();
    }

    // What a grid leaves to others.
    DEVICE_METHOD uint64_t leaves() const { return Policy::LONG_PIECES_ARE_SPLIT ? job.launch.leaves : 0; }

    // Whether a grid stops here, where `found` is not 0; all of its threads say the same. What it leaves it does
    // not look for.
    DEVICE_METHOD bool stops(uint64_t found, uint32_t why) const {
        if (!Policy::LONG_PIECES_ARE_SPLIT || !found || leaves()) return false;
        if (block == 0 && threadIdx.x == 0) job.host.host_status[STATUS_RARE] = why;
        return true;
    }

    DEVICE_METHOD void look_up() const {
        look_up_stage<Policy>(job, shared.look_up, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void merge() const {
        find_begins<Policy>(job, shared.begins);
        if (!shared.begins.num_chunks) return;
        merge_chunks<Policy>(job, {shared.columns, shared.begins, NO_CACHE}, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void compact() const {
        uint64_t num_ids = sum_parts(job, shared.answer, block);
        if (!job.launch.framed) return answer_stage(job, shared.answer, shared.begins, num_ids, block, num_blocks);
        GroupSums<uint32_t> sums = {shared.answer.group_offsets, num_ids};
        row_offsets_stage<SMALL_PARTS>(job, sums, job.answer.id_offsets, block, num_blocks);
        write_units<SMALL_PARTS>(job, shared.begins, sums.before, job.answer.ids, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void put_out() const {
        if (job.launch.framed) put_out_stage(job, block, num_blocks);
    }
};

// From the text to the answer, both in pinned host memory.
template <class Threads, class Policy>
DEVICE void encode_small(const Job& job, SmallShared& shared, uint32_t block, uint32_t num_blocks) {
    SmallLaunch<Threads, Policy> launch = {{job, shared, block, num_blocks}};
    if (Policy::LONG_PIECES_ARE_SPLIT) put_job(job, block);
    launch.take_in([&] { load_entries<BLOCK>(job, shared.pretokenize); });
    if (job.launch.num_rounds) launch.special();
    if (launch.leaves() == RARE_RUNS) return;
    launch.pretokenize();
    if (launch.stops(job.pretokenizer.bad_tiles[0], RARE_RUNS)) return;
    launch.cut();
    if (launch.leaves() || launch.stops(job.text.window_counts[COUNT_WINDOWS], RARE_PIECES)) return;
    launch.look_up();
    launch.merge();
    launch.compact();
    if (job.launch.framed) launch.frame();
    launch.put_out();
}

}  // namespace warptok::text
