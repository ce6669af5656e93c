// Text on its way to shared memory while other things are done, from wherever the device reaches it.
//
// On devices that have it the copy unit of a multiprocessor fetches it: what threads load meanwhile does not wait
// behind memory of the host. Elsewhere threads ask for sixteen bytes each.
#pragma once
#include "common/platform.cuh"

// Copies to two buffers in turn. All threads of a block call all of this; `barriers` is uint64[2] of shared memory.
struct TextCopies {
    uint64_t* barriers;
    uint32_t started, taken;                 // Copies so far.

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    static DEVICE_METHOD uint32_t place_of(const void* shared) {
        return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    }

    // Before the first copy; the block waits for its threads behind it.
    DEVICE_METHOD void begin() const {
        if (threadIdx.x < 2)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place_of(barriers + threadIdx.x)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    }

    // Starts the copy of a multiple of sixteen bytes; no thread reads the buffer any more.
    DEVICE_METHOD void ask(void* buffer, const uint8_t* from, uint32_t bytes) {
        uint32_t barrier = place_of(barriers + started++ % 2);
        if (threadIdx.x) return;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                     "r"(place_of(buffer)), "l"(from), "r"(bytes), "r"(barrier) : "memory");
    }

    // Waits for the earliest copy that is not taken yet.
    DEVICE_METHOD void take() {
        uint32_t barrier = place_of(barriers + taken % 2), parity = taken / 2 % 2, is_there = 0;
        taken++;
        while (!is_there)
            asm volatile(
                "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                : "=r"(is_there)
                : "r"(barrier), "r"(parity)
                : "memory");
    }
#else
    DEVICE_METHOD void begin() const {}

    DEVICE_METHOD void ask(void* buffer, const uint8_t* from, uint32_t bytes) {
        started++;
        for (uint32_t place = 16 * threadIdx.x; place < bytes; place += 16 * blockDim.x)
            copy_to_shared(static_cast<uint8_t*>(buffer) + place, from + place);
        end_copies();
    }

    DEVICE_METHOD void take() {
        if (++taken == started) wait_for_copies<0>();
        else wait_for_copies<1>();
    }
#endif
};
