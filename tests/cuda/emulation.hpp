// Runs a kernel's blocks one after the other, a block's threads as fibers: slow, deterministic and
// free of a GPU. Warp functions take the full mask only, and every lane must reach them.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define KERNEL extern "C" void
#define SHARED static
#define DYNAMIC_SHARED extern
#define __launch_bounds__(...)
#define __restrict__

struct uint4 { uint32_t x, y, z, w; };
struct uint2 { uint32_t x, y; };
struct ulonglong2 { unsigned long long x, y; };
struct Dim { uint32_t x; };

namespace emulation {

constexpr int WARP = 32;
constexpr size_t STACK = 64 << 10;

struct Warp {
    uint64_t value[2][WARP];
    uint32_t arrived = 0, generation = 0;
};

struct Block {
    uint32_t threads = 0, arrived = 0, generation = 0, done = 0, current = 0;
    bool votes[2] = {};
    std::vector<Warp> warps;
    std::vector<void*> stacks;
    std::vector<bool> finished;
    std::function<void()> body;
};

inline Block block;

#if defined(__x86_64__)
// Saves the callee's registers on its stack and goes on with another stack.
extern "C" void emulation_switch(void** save, void* load);
#ifndef WARPTOK_SECOND_UNIT
asm(R"(
.text
.globl emulation_switch
emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#endif
inline std::vector<void*> pointers;
inline void* scheduler;
inline void leave() { emulation_switch(&pointers[block.current], scheduler); }
inline void enter(uint32_t thread) { emulation_switch(&scheduler, pointers[thread]); }
#else
inline std::vector<ucontext_t> pointers;
inline ucontext_t scheduler;
inline void leave() { swapcontext(&pointers[block.current], &scheduler); }
inline void enter(uint32_t thread) { swapcontext(&scheduler, &pointers[thread]); }
#endif

inline void fiber() {
    block.body();
    block.finished[block.current] = true;
    block.done++;
    for (;;) leave();
}

inline void prepare(uint32_t thread) {
    char* top = static_cast<char*>(block.stacks[thread]) + STACK;
#if defined(__x86_64__)
    void** stack = reinterpret_cast<void**>(top) - 2;
    *stack = reinterpret_cast<void*>(&fiber);
    pointers[thread] = stack - 6;
#else
    getcontext(&pointers[thread]);
    pointers[thread].uc_stack.ss_sp = block.stacks[thread];
    pointers[thread].uc_stack.ss_size = STACK;
    makecontext(&pointers[thread], fiber, 0);
    (void)top;
#endif
}

inline Dim thread_index, block_index, grid_size, block_size;

// Runs one block to its end.
inline void run_block(uint32_t threads, std::function<void()> body) {
    block.threads = threads;
    block.arrived = block.done = block.generation = 0;
    block.votes[0] = block.votes[1] = false;
    block.warps.assign((threads + WARP - 1) / WARP, Warp());
    block.finished.assign(threads, false);
    block.body = body;
    pointers.resize(threads);
    while (block.stacks.size() < threads) block.stacks.push_back(std::malloc(STACK));
    for (uint32_t thread = 0; thread < threads; thread++) prepare(thread);
    while (block.done < threads) {
        for (uint32_t thread = 0; thread < threads; thread++) {
            if (block.finished[thread]) continue;
            block.current = thread_index.x = thread;
            enter(thread);
        }
    }
}

inline void yield_while(const uint32_t& generation, uint32_t old) {
    while (generation == old) leave();
}

// Every lane's value, once all lanes of the warp have given theirs.
inline const uint64_t* exchange(uint64_t value) {
    Warp& warp = block.warps[block.current / WARP];
    uint32_t old = warp.generation;
    warp.value[old & 1][block.current % WARP] = value;
    if (++warp.arrived == WARP) {
        warp.arrived = 0;
        warp.generation++;
    } else {
        yield_while(warp.generation, old);
    }
    return warp.value[old & 1];
}

}  // namespace emulation

#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
#define gridDim emulation::grid_size
#define blockDim emulation::block_size

static inline int __syncthreads_or(int vote) {
    emulation::Block& block = emulation::block;
    uint32_t old = block.generation;
    if (vote) block.votes[old & 1] = true;
    if (++block.arrived == block.threads) {
        block.arrived = 0;
        block.votes[~old & 1] = false;
        block.generation++;
    } else {
        emulation::yield_while(block.generation, old);
    }
    return block.votes[old & 1];
}

static inline void __syncthreads() { __syncthreads_or(0); }

static inline void __syncwarp() { emulation::exchange(0); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}

static inline uint32_t lane_of_fiber() { return emulation::block.current % emulation::WARP; }

static inline uint32_t __ballot_sync(uint32_t, bool vote) {
    const uint64_t* values = emulation::exchange(vote);
    uint32_t votes = 0;
    for (int lane = 0; lane < emulation::WARP; lane++) votes |= uint32_t(values[lane] != 0) << lane;
    return votes;
}

static inline bool __any_sync(uint32_t mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
static inline bool __all_sync(uint32_t mask, bool vote) { return __ballot_sync(mask, vote) == ~0u; }

template <class T> static inline T __shfl_sync(uint32_t, T value, uint32_t lane) {
    return static_cast<T>(emulation::exchange(static_cast<uint64_t>(value))[lane % 32]);
}

template <class T> static inline T __shfl_up_sync(uint32_t, T value, uint32_t distance) {
    uint32_t lane = lane_of_fiber();
    const uint64_t* values = emulation::exchange(static_cast<uint64_t>(value));
    return lane < distance ? value : static_cast<T>(values[lane - distance]);
}

template <class T> static inline T __shfl_down_sync(uint32_t, T value, uint32_t distance) {
    uint32_t lane = lane_of_fiber();
    const uint64_t* values = emulation::exchange(static_cast<uint64_t>(value));
    return lane + distance > 31 ? value : static_cast<T>(values[lane + distance]);
}

template <class T> static inline T __shfl_xor_sync(uint32_t, T value, uint32_t mask) {
    uint32_t lane = lane_of_fiber();
    return static_cast<T>(emulation::exchange(static_cast<uint64_t>(value))[lane ^ mask]);
}

static inline uint32_t __reduce_min_sync(uint32_t, uint32_t value) {
    const uint64_t* values = emulation::exchange(value);
    uint64_t least = values[0];
    for (int lane = 1; lane < emulation::WARP; lane++) least = values[lane] < least ? values[lane] : least;
    return static_cast<uint32_t>(least);
}

static inline uint32_t __reduce_add_sync(uint32_t, uint32_t value) {
    const uint64_t* values = emulation::exchange(value);
    uint64_t sum = 0;
    for (int lane = 0; lane < emulation::WARP; lane++) sum += values[lane];
    return static_cast<uint32_t>(sum);
}

template <class T, class U> static inline T atomicAdd(T* place, U value) {
    T old = *place;
    *place = static_cast<T>(old + value);
    return old;
}

template <class T, class U> static inline T atomicOr(T* place, U value) {
    T old = *place;
    *place = static_cast<T>(old | value);
    return old;
}

template <class T, class U> static inline T atomicAnd(T* place, U value) {
    T old = *place;
    *place = static_cast<T>(old & value);
    return old;
}

template <class T, class U> static inline T atomicMin(T* place, U value) {
    T old = *place;
    if (static_cast<T>(value) < old) *place = static_cast<T>(value);
    return old;
}

template <class T, class U> static inline T atomicMax(T* place, U value) {
    T old = *place;
    if (static_cast<T>(value) > old) *place = static_cast<T>(value);
    return old;
}

template <class T> static inline T __ldg(const T* place) { return *place; }

// Launches a kernel of one argument: every block, one after the other.
template <class Job>
static void emulate(void (*kernel)(const Job*), uint32_t blocks, uint32_t threads, const Job* job) {
    emulation::grid_size.x = blocks;
    emulation::block_size.x = threads;
    for (uint32_t index = 0; index < blocks; index++) {
        emulation::block_index.x = index;
        emulation::run_block(threads, [=] { kernel(job); });
    }
}
