// Stores ids by way of shared memory: a warp puts them there in any order and stores them together, so that no line of
// device memory is written in parts.
//
// On devices that have bulk copies (sm_90) the copy unit of the multiprocessor stores them; elsewhere each lane stores
// 16 bytes.
#pragma once
#include "common/platform.cuh"

// Puts sixteen bytes into shared memory by one instruction. The compiler splits some of these stores into four, which
// have bank conflicts.
DEVICE void stage_vector(void* to, const uint4& words) {
#ifdef __CUDACC__
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                 "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
#else
    *static_cast<uint4*>(to) = words;
#endif
}

// Waits until the shared memory that the warp has stored may be overwritten.
DEVICE void wait_for_stores() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    if ((threadIdx.x & 31) == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
    __syncwarp();
}

// Stores whole vectors of sixteen bytes, which the warp has written to shared memory.
DEVICE void store_vectors(const void* staged, void* to, uint32_t bytes) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if ((threadIdx.x & 31) || bytes == 0) return;
    uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(staged));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;"
                 ::"l"(to), "r"(from), "r"(bytes) : "memory");
#else
    __syncwarp();
    const uint4* vectors = static_cast<const uint4*>(staged);
    for (uint32_t i = threadIdx.x & 31; i < bytes / 16; i += 32) store_once(static_cast<uint4*>(to) + i, vectors[i]);
#endif
}

// Stores `count` ids to an address that sixteen divides; those behind the last whole vector one by one.
template <class Id>
DEVICE void store_staged(const Id* staged, Id* to, uint32_t count) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t whole = count / ITEMS * ITEMS, single = whole + (threadIdx.x & 31);
    store_vectors(staged, to, whole * sizeof(Id));
    if (single < count) to[single] = staged[single];
}

// Stores the ids first <= i < end. staged[0] stands for id number first / ITEMS * ITEMS.
template <class Id>
DEVICE void store_part(const Id* staged, Id* out, uint32_t first, uint32_t end) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t lane = threadIdx.x & 31, base = first / ITEMS * ITEMS, vectors = (first + ITEMS - 1) / ITEMS * ITEMS;
    uint32_t whole = vectors < end ? (end - vectors) / ITEMS * ITEMS : 0;
    store_vectors(staged + (vectors - base), out + vectors, whole * sizeof(Id));
    uint32_t head = first + lane, tail = vectors + whole + lane;
    if (head < vectors && head < end) out[head] = staged[head - base];
    if (tail < end) out[tail] = staged[tail - base];
}

// The ids that are staged: first <= i < end.
struct StagedIds {
    uint32_t first, end;

    template <class Id>
    DEVICE_METHOD void store(const Id* staged, Id* out) const {
        if (first < end) store_part(staged, out, first, end);
    }
};
