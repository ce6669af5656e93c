// Several steps, one after the other, in one launch. Most batches need none of them, so that launches of their own
// would cost more.
//
// A step is divided into parts. A block claims one part after the other, and goes on to the next step when all parts of
// this one are done. Only blocks that run claim parts, so that a block never waits for one that does not run. A launch
// may therefore have more blocks than run at a time, unlike one that calls wait_for_grid.
//
//     parts of a step   0 1 2      block 0 claims 0 and 2, block 1 claims 1, block 2 none: all wait for 2
//
// Where the number of steps is not known beforehand, but each has the same number of parts, blocks draw tickets: the
// parts of all steps are numbered one after the other.
//
//     three parts  ticket  0 1 2   3 4 5   6 7 8 ...      4 is part 1 of step 1: it waits until 0, 1 and 2 are done
//
// Invariant: a block waits only for parts that were claimed before its own, so that blocks need not all be on the
// device at a time.
#pragma once
#include "common/block_reduce.cuh"

struct Steps {
    uint64_t* counts;                      // Parts claimed and parts done of this step. Zeros before.
    uint64_t& part;                        // In shared memory.

    // Claims the next part, which may be behind the last one. The whole block calls it and gets the same.
    DEVICE_METHOD uint64_t claim() const {
        if (threadIdx.x == 0) part = atomic_add(counts, 1);
        __syncthreads();
        uint64_t claimed = part;
        __syncthreads();
        return claimed;
    }

    // Waits for the end of a step, of which the block did `own` parts. All blocks then see what any of them wrote.
    DEVICE_METHOD void end(uint64_t own, uint64_t parts) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            atomic_add(counts + 1, own);
            while (load_volatile(counts + 1) < parts) give_way();
            __threadfence();
        }
        __syncthreads();
        counts += 2;
    }

    // Runs a step: work(part) for each part.
    template <class Work> DEVICE_METHOD void run(uint64_t parts, Work work) {
        uint64_t own = 0;
        for (uint64_t claimed = claim(); claimed < parts; claimed = claim(), own++) work(claimed);
        end(own, parts);
    }
};

struct Tickets {
    uint64_t* counts;                      // Tickets drawn and parts done. Zeros before.
    uint64_t& ticket;                      // In shared memory.
    uint32_t parts;                        // Parts of each step.

    // Draws the next ticket, and waits until all parts of the step before it are done. The whole block calls it and
    // gets the same.
    DEVICE_METHOD uint64_t draw() const {
        if (threadIdx.x == 0) {
            ticket = atomic_add(counts, 1);
            while (load_volatile(counts + 1) < ticket / parts * parts) give_way();
            __threadfence();
        }
        __syncthreads();
        return ticket;
    }

    // Ends a part: the next step sees what any of the block's threads wrote.
    DEVICE_METHOD void end() const {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomic_add(counts + 1, 1);
    }
};
