// What device code needs beside the language, under nvcc, under NVRTC (without system headers) and as plain C++.
//
// Functions marked DEVICE that do not let threads cooperate compile with any C++17 compiler. Whole kernels compile as
// C++, too, if WARPTOK_EMULATION names a header that runs the threads of a block as fibers.
//
// All folders include this one, common/, which includes none of them and has no kernels: the Job (job.cuh), cooperation
// of the threads of a block or of several blocks (block_reduce.cuh, grid_steps.cuh, lookback_scan.cuh), copies to and
// from shared memory (async_load.cuh, bulk_store.cuh), bits and hashes.
#pragma once

#ifdef __CUDACC__
#ifdef __CUDACC_RTC__
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using int8_t = signed char;
using int32_t = int;
using int64_t = long long;
#else
#include <cstdint>
#endif
#define DEVICE __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__
#define DEVICE_NOINLINE __device__ __noinline__  // Called seldom: inlined, it would cost its callers registers.
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
#define DYNAMIC_SHARED(name) extern __shared__ uint8_t name[]  // The launch says how many bytes.
#define GRID_CONSTANT __grid_constant__
#if __CUDA_ARCH__ >= 900
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define CLUSTER_OF(blocks)                 // Devices without clusters compile the kernel and never launch it.
#endif
#else
#include <cstdint>
#include <cstring>
#define DEVICE static inline
#define DEVICE_METHOD inline
#define DEVICE_NOINLINE static inline
#ifdef WARPTOK_EMULATION
#include WARPTOK_EMULATION
#else
struct uint4 { uint32_t x, y, z, w; };
struct uint2 { uint32_t x, y; };
struct ulonglong2 { unsigned long long x, y; };
template <class T> static inline T __ldg(const T* place) { return *place; }
#endif
#endif

// How many bits are set.
DEVICE uint32_t count_bits(uint32_t bits) {
#ifdef __CUDACC__
    return __popc(bits);
#else
    return __builtin_popcount(bits);
#endif
}

DEVICE uint32_t count_bits(uint64_t bits) {
#ifdef __CUDACC__
    return __popcll(bits);
#else
    return __builtin_popcountll(bits);
#endif
}

// Place of the lowest set bit; bits must not be 0.
DEVICE uint32_t lowest_bit(uint32_t bits) {
#ifdef __CUDACC__
    return __ffs(bits) - 1;
#else
    return __builtin_ctz(bits);
#endif
}

DEVICE uint32_t lowest_bit(uint64_t bits) {
#ifdef __CUDACC__
    return __ffsll(bits) - 1;
#else
    return __builtin_ctzll(bits);
#endif
}

// Place of the highest set bit; bits must not be 0.
DEVICE uint32_t highest_bit(uint32_t bits) {
#ifdef __CUDACC__
    return 31 - __clz(bits);
#else
    return 31 - __builtin_clz(bits);
#endif
}

DEVICE uint32_t highest_bit(uint64_t bits) {
#ifdef __CUDACC__
    return 63 - __clzll(bits);
#else
    return 63 - __builtin_clzll(bits);
#endif
}

// The highest bit becomes the lowest.
DEVICE uint32_t reversed_bits(uint32_t bits) {
#ifdef __CUDACC__
    return __brev(bits);
#else
    uint32_t reversed = 0;
    for (uint32_t i = 0; i < 32; i++) reversed |= (bits >> i & 1) << (31 - i);
    return reversed;
#endif
}

DEVICE uint32_t min_of(uint32_t a, uint32_t b) { return a < b ? a : b; }
DEVICE uint32_t max_of(uint32_t a, uint32_t b) { return a < b ? b : a; }

// The upper 32 bits of a product.
DEVICE uint32_t high_product(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
    return __umulhi(a, b);
#else
    return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
#endif
}

// The sum of the products of four bytes each, and of another number.
DEVICE uint32_t dot_of_bytes(uint32_t a, uint32_t b, uint32_t sum) {
#ifdef __CUDACC__
    return __dp4a(a, b, sum);
#else
    for (uint32_t i = 0; i < 32; i += 8) sum += (a >> i & 0xFF) * (b >> i & 0xFF);
    return sum;
#endif
}

// The lower 32 bits of (high:low) >> shift % 32.
DEVICE uint32_t shift_right(uint32_t low, uint32_t high, uint32_t shift) {
#ifdef __CUDACC__
    return __funnelshift_r(low, high, shift);
#else
    return static_cast<uint32_t>(((static_cast<uint64_t>(high) << 32) | low) >> shift % 32);
#endif
}

// The upper 32 bits of (high:low) << shift % 32.
DEVICE uint32_t shift_left(uint32_t low, uint32_t high, uint32_t shift) {
#ifdef __CUDACC__
    return __funnelshift_l(low, high, shift);
#else
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) << shift % 32 >> 32);
#endif
}

// The word with bit `place` set; 0 where `place` is 32 or more.
DEVICE uint32_t bit_at(uint32_t place) {
#ifdef __CUDACC__
    return __funnelshift_lc(0, 1, place);
#else
    return place < 32 ? 1u << place : 0;
#endif
}

// The lower halves of two words, that of `low` lowest.
DEVICE uint32_t low_halves(uint32_t low, uint32_t high) {
#ifdef __CUDACC__
    return __byte_perm(low, high, 0x5410);
#else
    return (low & 0xFFFF) | high << 16;
#endif
}

// Four bytes of two words, each chosen by a nibble 0 .. 7 of the selector's lower half.
DEVICE uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t chosen = 0;
#ifdef __CUDACC__                          // __byte_perm masks the nibbles first.
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(chosen) : "r"(low), "r"(high), "r"(selector));
#else
    uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    for (uint32_t i = 0; i < 4; i++)
        chosen |= static_cast<uint32_t>(bytes >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
#endif
    return chosen;
}

// Waits for the end of the kernel before this one in its stream. A kernel that is launched early (DEPENDENT of
// gpu/runtime/module_loader.py) calls it first.
DEVICE void wait_for_kernel_before() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

constexpr uint32_t ALL_LANES = 0xFFFFFFFF;  // The mask of all lanes of a warp.

// Stores a vector that no kernel reads soon, so that caches drop it first.
DEVICE void store_once(uint4* place, uint4 value) {
#ifdef __CUDACC__
    __stcs(place, value);
#else
    *place = value;
#endif
}

// Byte i of a word, the lowest first.
DEVICE uint32_t byte_of(uint32_t word, uint32_t i) {
#ifdef __CUDACC__
    return __byte_perm(word, 0, 0x4440 + i);
#else
    return word >> 8 * i & 0xFF;
#endif
}

// Bit i of the result is the upper bit of byte i of sixteen bytes.
DEVICE uint32_t upper_bits(const uint32_t* words) {
    uint32_t bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i += 2) {
        uint32_t eight = (words[i] & 0x80808080) >> 7 | (words[i + 1] & 0x80808080) >> 3;
        bits |= (eight * 0x01020408u >> 24) << (4 * i);
    }
    return bits;
}

// Starts to copy sixteen bytes to shared memory; devices before sm_80 copy them at once. end_copies closes a group of
// such copies of a thread; wait_for_copies waits until at most GROUPS groups of the thread are unfinished.
DEVICE void copy_to_shared(void* to, const void* from) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    uint32_t place = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
#else
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

DEVICE void end_copies() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <uint32_t GROUPS> DEVICE void wait_for_copies() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// The reductions of a warp that devices from sm_80 on have as an instruction; each lane gets the result.
DEVICE uint32_t __reduce_add_sync(uint32_t lanes, uint32_t value) {
    for (uint32_t distance = 16; distance; distance /= 2) value += __shfl_xor_sync(lanes, value, distance);
    return value;
}

DEVICE uint32_t __reduce_or_sync(uint32_t lanes, uint32_t value) {
    for (uint32_t distance = 16; distance; distance /= 2) value |= __shfl_xor_sync(lanes, value, distance);
    return value;
}

DEVICE uint32_t __reduce_min_sync(uint32_t lanes, uint32_t value) {
    for (uint32_t distance = 16; distance; distance /= 2)
        value = min_of(value, __shfl_xor_sync(lanes, value, distance));
    return value;
}

DEVICE uint32_t __reduce_max_sync(uint32_t lanes, uint32_t value) {
    for (uint32_t distance = 16; distance; distance /= 2)
        value = max_of(value, __shfl_xor_sync(lanes, value, distance));
    return value;
}
#endif

#if defined(__CUDACC__) || defined(WARPTOK_EMULATION)
// CUDA's atomic functions know 64 bits only as unsigned long long, which uint64_t need not be.
DEVICE uint64_t atomic_add(uint64_t* place, uint64_t value) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(value));
}

DEVICE void atomic_and(uint64_t* place, uint64_t bits) {
    atomicAnd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(bits));
}

// Loads and stores by which blocks communicate while they run.
DEVICE uint64_t load_volatile(const uint64_t* place) {
#ifdef WARPTOK_EMULATION
    emulation::let_others_run();
#endif
    return *reinterpret_cast<const volatile uint64_t*>(place);
}

DEVICE void store_volatile(uint64_t* place, uint64_t value) {
    *reinterpret_cast<volatile uint64_t*>(place) = value;
}

DEVICE void atomic_or(uint64_t* place, uint64_t bits) {
    atomicOr(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(bits));
}

#ifdef __CUDACC__
// Waits for all threads of the cluster. Each of them then sees what any of them wrote before.
DEVICE void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
#endif
}

// Called in loops that wait for another thread; only the emulation needs it, to let that thread run.
DEVICE void give_way() {}

// The same as wait_for_cluster for all threads of a grid whose blocks all run at a time. `arrivals` is zero before the
// first launch, and only these launches use it. Every block adds 1, except one that adds what is missing to 2^31, so
// that the last block to arrive flips the top bit.
DEVICE void wait_for_grid(uint32_t* arrivals) {
    constexpr uint32_t TOP = 1u << 31;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        uint32_t before = atomicAdd(arrivals, blockIdx.x ? 1 : TOP - (gridDim.x - 1));
        while (!((before ^ *reinterpret_cast<volatile uint32_t*>(arrivals)) & TOP)) {}
        __threadfence();
    }
    __syncthreads();
}
#endif
#endif
