// The fused kernel: all stages of a small batch of text in one launch, the same that are kernels of their own in larger
// ones.
//
// The fused kernel lacks the stages for long runs and long pieces. Where a batch needs one, the launch sets
// STATUS_FALLBACK and writes no answer. A block or a cluster has done little by then, so single launches encode the
// whole batch. A grid has done more, so single launches continue where it stopped. If the batch before this one needed
// them, the host expects that this one does, too (planned_fallback): it queues them behind the grid, and the grid stops
// there in any case.
//
//     load   special   pretokenize   split   look up   merge   compact   post-process   store
//                    ^             ^       ^
//                    |             |       FALLBACK_PIECES: single launches go on with `windows`
//                    |             FALLBACK_RUNS: single launches repeat `pretokenize`, whose runs are unresolved
//                    FALLBACK_RUNS planned: single launches begin with `pretokenize`
//
// Batches with two rounds of special tokens are encoded by single launches from the start.
//
// Invariant: where STATUS_FALLBACK is 0 the answer is that of single launches. Where it is not, the answer is void,
// and all that the stages before the stop have written is right.
#pragma once
#include "text/compact/compact_to_host.cuh"
#include "text/split/certain_boundaries.cuh"
#include "text/split/find_long.cuh"
#include "text/fused/shared_stages.cuh"
#include "text/pretokenize/first_pass.cuh"

namespace warptok::text {

constexpr uint32_t FUSED_SHARED = 54 * 1024;
struct FusedShared {
    BinBegins begins;
    PretokenizeShared pretokenize;
    FindShared find;
    union {                                // One stage at a time uses these.
        SpecialShared special;
        OrbitShared orbits;
        CertainWarp certain[BLOCK / 32];
        LookUpShared look_up;
        Columns columns[BLOCK / 32];
        CompactToHostShared answer;
        ScanShared post_process;
    };
};
static_assert(sizeof(FusedShared) <= FUSED_SHARED, "the launch asks for so much");

template <class Threads, class Policy> struct FusedTextLaunch : FusedLaunch<Threads, FusedShared> {
    using Base = FusedLaunch<Threads, FusedShared>;
    using Base::block, Base::job, Base::num_blocks, Base::shared, Base::wait;

    DEVICE_METHOD void pretokenize() const {
        pretokenize_once(job, shared.pretokenize, block, num_blocks);
        wait();
        if (!job.special.special_counts[COUNT_ACCEPTED]) return;
        clear_special_stage(job, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void split() const {
        Filter filter = {job.text.borders, job.text.byte_borders, static_cast<uint32_t>(job.tokens.seed)};
        split_text(job, filter, shared.certain, block, num_blocks);
        wait();
        if (!Policy::LONG_PIECES_ARE_SPLIT) return;  // Looking up finds what is long.
        find_long_stage(job, shared.find, block, num_blocks);
        wait();
    }

    // FALLBACK_* where a grid stops, whatever it finds; 0 in other launches.
    DEVICE_METHOD uint64_t planned_fallback() const {
        return Policy::LONG_PIECES_ARE_SPLIT ? job.launch.planned_fallback : 0;
    }

    // Whether a grid stops here because of what it found (not 0); all of its threads get the same answer. Where
    // a stop is planned, no other one is looked for.
    DEVICE_METHOD bool stops(uint64_t found, uint32_t why) const {
        if (!Policy::LONG_PIECES_ARE_SPLIT || !found || planned_fallback()) return false;
        if (block == 0 && threadIdx.x == 0) job.host.host_status[STATUS_FALLBACK] = why;
        return true;
    }

    DEVICE_METHOD void look_up() const {
        look_up_stage<Policy>(job, shared.look_up, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void merge() const {
        find_begins<Policy>(job, shared.begins);
        if (!shared.begins.num_chunks) return;
        merge_chunks<Policy>(job, {shared.columns, shared.begins, NO_FILTER}, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void compact() const {
        uint64_t num_ids = sum_parts(job, shared.answer, block);
        if (!job.launch.post_processed)
            return compact_to_host_stage(job, shared.answer, shared.begins, num_ids, block, num_blocks);
        GroupSums<uint32_t> sums = {shared.answer.group_offsets, num_ids};
        row_offsets_stage<SMALL_PARTS>(job, sums, job.answer.id_offsets, block, num_blocks);
        write_units<SMALL_PARTS>(job, shared.begins, sums.before, job.answer.ids, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void store_answer() const {
        if (job.launch.post_processed) store_answer_stage(job, block, num_blocks);
    }
};

// Encodes a batch from its text to the answer, both in pinned host memory.
template <class Threads, class Policy>
DEVICE void encode_fused(const Job& job, FusedShared& shared, uint32_t block, uint32_t num_blocks) {
    FusedTextLaunch<Threads, Policy> launch = {{job, shared, block, num_blocks}};
    if (Policy::LONG_PIECES_ARE_SPLIT) put_job(job, block);
    launch.load_batch([&] { load_entries<BLOCK>(job, shared.pretokenize); });
    if (job.launch.num_rounds) launch.special();
    if (launch.planned_fallback() == FALLBACK_RUNS) return;
    launch.pretokenize();
    if (launch.stops(job.pretokenizer.bad_tiles[0], FALLBACK_RUNS)) return;
    launch.split();
    if (launch.planned_fallback() || launch.stops(job.text.window_counts[COUNT_WINDOWS], FALLBACK_PIECES)) return;
    launch.look_up();
    launch.merge();
    launch.compact();
    if (job.launch.post_processed) launch.post_process();
    launch.store_answer();
}

}  // namespace warptok::text
