// All stages of byte-pair encoding of letters in one launch: the same that have kernels of their own in
// larger batches, in the same order (gpu/DNA.md). Chunks are small. Windows that do not meet are
// repaired here, too, so that nothing is left to other launches.
#pragma once
#include "dna_forward.cuh"
#include "dna_ids.cuh"
#include "dna_strip.cuh"
#include "one_launch.cuh"

constexpr uint32_t LETTERS_SHARED = 54 * 1024;
struct LettersShared {
    union {                                // One stage at a time uses these.
        SpecialShared special;
        OrbitShared orbits;
        struct {
            uint32_t borders[Window<SMALL_CHUNK>::WORDS * BLOCK], dead[Window<SMALL_CHUNK>::WORDS * BLOCK];
        } columns;
        ClassRing<BLOCK, MAX_LETTERS> ring;
        ScanShared frame;
        DnaIdsShared ids;
        uint32_t next;
    };
};
static_assert(sizeof(LettersShared) <= LETTERS_SHARED, "the launch asks for so much");

template <class Threads> struct LettersLaunch : OneLaunch<Threads, LettersShared> {
    using Base = OneLaunch<Threads, LettersShared>;
    using Base::block, Base::job, Base::num_blocks, Base::shared, Base::wait;

    DEVICE_METHOD Columns columns() const {
        return {shared.columns.borders + threadIdx.x, shared.columns.dead + threadIdx.x, BLOCK};
    }

    DEVICE_METHOD void letters() const {
        pack_letters_stage(job, block, num_blocks);
        wait();
        if (job.special_counts[COUNT_ACCEPTED]) {
            pack_special_stage(job, block, num_blocks);
            wait();
        }
        strip_ends_stage(job, block, num_blocks);  // Takes starts away; walking reads none.
    }

    DEVICE_METHOD void walk() const {
        ForwardTables<ClassRing<BLOCK, MAX_LETTERS>> tables(job, job.ending_last, shared.ring);
        if (job.ending_k) {
            forward_windows_stage<SMALL_CHUNK>(job, tables, block, num_blocks);
            wait();
        }
        walk_windows_stage<SMALL_CHUNK>(job, columns(), block, num_blocks);
        wait();
        meet_windows_stage<SMALL_CHUNK>(job, block, num_blocks);
        wait();
    }

    // Whether there was anything to do.
    template <uint32_t ROUND> DEVICE_METHOD bool repair() const {
        if (!job.unmet_counts[ROUND]) return false;
        rank_windows_stage<SMALL_CHUNK, ROUND>(job, shared.frame);
        wait();
        continue_windows_stage<SMALL_CHUNK, ROUND>(job, columns(), block, num_blocks);
        wait();
        align_windows_stage<SMALL_CHUNK, ROUND>(job, columns(), block, num_blocks);
        wait();
        meet_again_stage<SMALL_CHUNK, ROUND>(job, block, num_blocks);
        wait();
        return true;
    }

    DEVICE_METHOD void finish() const {
        if (block == 0) finish_windows_stage<SMALL_CHUNK>(job, &shared.next);
        wait();
    }

    DEVICE_METHOD void ids() const {
        write_starts_stage<SMALL_CHUNK>(job, block, num_blocks);
        wait();
        write_letter_ids_stage(job, shared.ids);
        wait();
    }
};

// From the text to the answer, both in pinned host memory.
template <class Threads>
DEVICE void encode_letters(const Job& job, LettersShared& shared, uint32_t block, uint32_t num_blocks) {
    LettersLaunch<Threads> launch = {{job, shared, block, num_blocks}};
    launch.take_in([] {});
    if (job.num_rounds) launch.special();
    launch.letters();
    launch.walk();
    if (launch.template repair<0>() && launch.template repair<1>()) launch.finish();
    launch.ids();
    if (job.framed) launch.frame();
    put_out_stage(job, block, num_blocks);
}
