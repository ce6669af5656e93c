// Steps one after the other in one launch, of which most batches need none.
//
// A step is cut into parts. Blocks take one part after the other, and go on to the next step when all parts of
// this one are done. A part that is waited for has a block that runs, since only such take parts: so a launch may have
// more blocks than run at a time, which one whose blocks wait for each other (wait_for_grid) may not.
//
//     parts of a step   0 1 2      block 0 takes 0 and 2, block 1 takes 1, block 2 none: all wait for 2
//
// Where the number of steps is not known beforehand, and all have as many parts, parts have tickets: the numbers
// of the parts of all steps one behind the other.
//
//     three parts  ticket  0 1 2   3 4 5   6 7 8 ...      4 is part 1 of step 1: it waits until 0, 1 and 2 are done
//
// Invariant: a block waits only for parts that were taken before its own, so that blocks need not all be on the device
// at a time.
#pragma once
#include "common/block_reduce.cuh"

struct Steps {
    uint64_t* counts;                      // Of this step: parts taken, parts done. Zeros before.
    uint64_t& part;                        // In shared memory.

    // Takes the next part; the whole block gets the same.
    DEVICE_METHOD uint64_t take() const {
        if (threadIdx.x == 0) part = atomic_add(counts, 1);
        __syncthreads();
        uint64_t taken = part;
        __syncthreads();
        return taken;
    }

    // Ends a step of which the block did `own` parts: what any of its threads wrote is there for all then.
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

    // A step: work(part) for each part.
    template <class Work> DEVICE_METHOD void run(uint64_t parts, Work work) {
        uint64_t own = 0;
        for (uint64_t taken = take(); taken < parts; taken = take(), own++) work(taken);
        end(own, parts);
    }
};

struct Tickets {
    uint64_t* counts;                      // Taken, done. Zeros before.
    uint64_t& ticket;                      // In shared memory.
    uint32_t parts;                        // Of each step.

    // Takes the next part when all of the step before it are done; the whole block gets the same.
    DEVICE_METHOD uint64_t take() const {
        if (threadIdx.x == 0) {
            ticket = atomic_add(counts, 1);
            while (load_volatile(counts + 1) < ticket / parts * parts) give_way();
            __threadfence();
        }
        __syncthreads();
        return ticket;
    }

    // Ends a part: what any of the block's threads wrote is there for the next step.
    DEVICE_METHOD void end() const {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomic_add(counts + 1, 1);
    }
};
