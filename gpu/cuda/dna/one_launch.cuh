// All stages of byte-pair encoding of letters in one launch: the same that have kernels of their own in
// larger batches, in the same order (docs/internals/dna-bpe.md). Chunks are small. Windows that do not meet are
// repaired here, too, so that nothing is left to other launches.
#pragma once
#include "dna/windows/last_tokens.cuh"
#include "dna/write_ids.cuh"
#include "dna/strip.cuh"
#include "common/one_launch.cuh"

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
        RepairShared repair;
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
        if (job.special.special_counts[COUNT_ACCEPTED]) {
            pack_special_stage(job, block, num_blocks);
            wait();
        }
        strip_ends_stage(job, block, num_blocks);  // Takes starts away; walking reads none.
    }

    DEVICE_METHOD void walk() const {
        ForwardTables<ClassRing<BLOCK, MAX_LETTERS>> tables(job, job.dna.ending_last, shared.ring);
        if (job.dna.ending_k) {
            forward_windows_stage<SMALL_CHUNK>(job, tables, block, num_blocks);
            wait();
        }
        if (!job.dna.ending_k || *job.dna.num_walked) {
            walk_windows_stage<SMALL_CHUNK>(job, columns(), block, num_blocks);
            wait();
        }
        meet_windows_stage<SMALL_CHUNK>(job, block, num_blocks);
        wait();
    }

    DEVICE_METHOD void repair() const {
        if (!job.dna.unmet_counts[0]) return;
        repair_windows_stage<SMALL_CHUNK>(job, shared.repair);
        wait();
    }

    DEVICE_METHOD void ids() const {
        write_letter_ids_stage(job, shared.ids);
        wait();
    }
};

// From the text to the answer, both in pinned host memory.
template <class Threads>
DEVICE void encode_letters(const Job& job, LettersShared& shared, uint32_t block, uint32_t num_blocks) {
    LettersLaunch<Threads> launch = {{job, shared, block, num_blocks}};
    launch.take_in([] {});
    if (job.launch.num_rounds) launch.special();
    launch.letters();
    launch.walk();
    launch.repair();
    launch.ids();
    if (job.launch.framed) launch.frame();
    put_out_stage(job, block, num_blocks);
}
