// Copies text to shared memory while threads do other work, from any memory that the device reaches.
//
// On devices that have bulk copies (sm_90) the copy unit of the multiprocessor fetches it, so that what threads load
// meanwhile does not wait behind host memory. Elsewhere each thread starts to copy sixteen bytes.
//
//     start 0   start 1   wait: 0 is there   start 2, in the buffer of 0   wait: 1 is there ...
#pragma once
#include "common/platform.cuh"

// Copies to two buffers by turns, so that at most two copies are unfinished. All threads of a block call each function.
struct TextCopies {
    uint64_t* barriers;                    // uint64[2] of shared memory.
    uint32_t started, finished;            // Copies so far.

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    static DEVICE_METHOD uint32_t place_of(const void* shared) {
        return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    }

    // Prepares the barriers; the block waits for all of its threads before the first copy.
    DEVICE_METHOD void begin() const {
        if (threadIdx.x < 2)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place_of(barriers + threadIdx.x)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    }

    // Starts to copy a multiple of sixteen bytes; no thread may still read the buffer.
    DEVICE_METHOD void start(void* buffer, const uint8_t* from, uint32_t bytes) {
        uint32_t barrier = place_of(barriers + started++ % 2);
        if (threadIdx.x) return;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                     "r"(place_of(buffer)), "l"(from), "r"(bytes), "r"(barrier) : "memory");
    }

    // Waits for the earliest copy that was not waited for yet.
    DEVICE_METHOD void wait() {
        uint32_t barrier = place_of(barriers + finished % 2), parity = finished / 2 % 2, is_there = 0;
        finished++;
        while (!is_there)
            asm volatile(
                "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                : "=r"(is_there)
                : "r"(barrier), "r"(parity)
                : "memory");
    }
#else
    DEVICE_METHOD void begin() const {}

    DEVICE_METHOD void start(void* buffer, const uint8_t* from, uint32_t bytes) {
        started++;
        for (uint32_t place = 16 * threadIdx.x; place < bytes; place += 16 * blockDim.x)
            copy_to_shared(static_cast<uint8_t*>(buffer) + place, from + place);
        end_copies();
    }

    DEVICE_METHOD void wait() {
        if (++finished == started) wait_for_copies<0>();
        else wait_for_copies<1>();
    }
#endif
};
