// Runs a kernel's blocks one after the other, those of a cluster by turns, a block's threads as
// fibers: slow, deterministic and free of a GPU. Warp functions take the full mask only, and every lane must reach them.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define KERNEL extern "C" void
#if defined(__SANITIZE_ADDRESS__)
#define SHARED static  // In a section of ours nothing would be around them.
#else
#define SHARED static __attribute__((section("shared_memory")))
#endif
#define DYNAMIC_SHARED(name) static uint8_t*& name = emulation::dynamic_shared
#define GRID_CONSTANT
#define CLUSTER_OF(blocks)
#define __launch_bounds__(...)
#define __restrict__

// Aligned as on the device, where a place that is not is a fault.
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };
struct Dim { uint32_t x; };

namespace emulation {

constexpr int WARP = 32;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t STACK = 256 << 10;  // Every variable has a surrounding.
#else
constexpr size_t STACK = 64 << 10;
#endif
constexpr size_t SHARED_LINE = 256;
constexpr uint8_t FRESH = 0xEE;  // Shared memory before anything is written there.

// Who has arrived at a barrier.
struct Barrier {
    uint32_t arrived = 0, generation = 0;
};

struct Warp {
    uint64_t value[2][WARP], folded[2];
    Barrier barrier;
};

// What a fiber waits for: another generation of a barrier.
struct Wait {
    const uint32_t* generation = nullptr;
    uint32_t old = 0;
    bool is_over() const { return !generation || *generation != old; }
};

struct Block {
    Barrier barrier;
    uint32_t done = 0;
    bool votes[2] = {};
    std::vector<Warp> warps;
    std::unique_ptr<void, void (*)(void*)> shared{nullptr, std::free};  // Dynamic shared memory.

    // New memory that ends where the launch says: a sanitizer sees what lies behind.
    void share(size_t bytes) {
        void* memory = nullptr;
        if (posix_memalign(&memory, SHARED_LINE, bytes)) std::abort();
        shared.reset(std::memset(memory, FRESH, bytes));
    }
};

// The blocks that run by turns: one, or those of a cluster. Static shared memory is there once, so
// that kernels for clusters have none.
struct Cluster {
    std::vector<Block> blocks;
    uint32_t threads = 0, current = 0;  // Threads of a block; the fiber that runs.
    Barrier barrier;
    std::vector<void*> stacks;
    std::vector<Wait> waits;
    std::function<void()> body;
};

// Static shared memory of all kernels; null pointers where there is none.
extern "C" __attribute__((weak, visibility("hidden"))) uint8_t __start_shared_memory[], __stop_shared_memory[];

inline Dim thread_index, block_index, grid_size, block_size;
inline Cluster cluster;
inline Block* block;  // That of the fiber that runs.
inline uint8_t* dynamic_shared;
inline size_t shared_bytes = 0;  // Of dynamic shared memory, as the launch says.
inline uint32_t thread() { return thread_index.x; }
inline Warp& warp() { return block->warps[thread() / WARP]; }

#if defined(__x86_64__)
// Saves the callee's registers on its stack and goes on with another stack. It jumps, where `ret`
// would be predicted to return to who called last, the fiber before: that took half of the time.
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
    popq %rcx
    jmpq *%rcx
)");
#endif
using Context = void*;  // The pointer of the stack, on which the registers are.
inline void switch_to(Context& from, const Context& to) { emulation_switch(&from, to); }
#else
using Context = ucontext_t;
inline void switch_to(Context& from, const Context& to) { swapcontext(&from, &to); }
#endif
inline std::vector<Context> contexts;
inline Context scheduler;

// The order in which `count` of a cluster take their turns, each once: up or down from any of them.
// It is another one in each round, so that it shows where a barrier is missing; a block alone runs
// in order.
struct Turns {
    uint32_t left, count, next;
    bool down;
    Turns(uint32_t count = 1, uint32_t order = 0)
        : left(count), count(count), next((order >> 8) % count), down(order >> 31) {
        if (down) next = next ? next - 1 : count - 1;
    }
    uint32_t take() {
        uint32_t taken = next;
        if (down) next = next ? next - 1 : count - 1;
        else next = next + 1 < count ? next + 1 : 0;
        left--;
        return taken;
    }
};

// The warp that runs: the turns of its threads in this round, its first thread in the block and in
// the cluster, and whether one of them has let other warps run.
struct Running {
    Turns turns;
    uint32_t first_thread, first_fiber;
    bool gives_way;
};
inline Running running;

// The next thread of the warp that waits for nothing; the scheduler after the last one's turn.
inline Context& next_context() {
    while (running.turns.left) {
        uint32_t lane = running.turns.take();
        cluster.current = running.first_fiber + lane;
        thread_index.x = running.first_thread + lane;
        if (cluster.waits[cluster.current].is_over()) return contexts[cluster.current];
    }
    return scheduler;
}

inline void leave() {
    Context& own = contexts[cluster.current];
    switch_to(own, next_context());
}

inline void fiber() {
    static const uint32_t never = 0;  // No generation follows: the fiber has no turn any more.
    cluster.body();
    block->done++;
    cluster.waits[cluster.current] = {&never, 0};
    leave();
}

inline void prepare(uint32_t fiber) {
    char* top = static_cast<char*>(cluster.stacks[fiber]) + STACK;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(cluster.stacks[fiber], STACK);  // The last fiber there never returned.
#endif
#if defined(__x86_64__)
    void** stack = reinterpret_cast<void**>(top) - 2;
    *stack = reinterpret_cast<void*>(&emulation::fiber);
    contexts[fiber] = stack - 6;
#else
    getcontext(&contexts[fiber]);
    contexts[fiber].uc_stack.ss_sp = cluster.stacks[fiber];
    contexts[fiber].uc_stack.ss_size = STACK;
    makecontext(&contexts[fiber], emulation::fiber, 0);
    (void)top;
#endif
}

// Runs the threads of a warp by turns, until they wait for other warps or give way to them.
inline void run_warp(uint32_t number, uint32_t first_fiber, uint32_t order) {
    const uint32_t& generation = block->warps[number].barrier.generation;
    uint32_t first = number * WARP, left = cluster.threads - first, old;
    do {
        old = generation;
        running = {Turns(left < WARP ? left : WARP, order), first, first_fiber + first, false};
        Context& next = next_context();
        if (&next != &scheduler) switch_to(scheduler, next);
    } while (generation != old && !running.gives_way);
}

// Runs blocks by turns until all have ended; the first one has the number `first`.
inline void run_blocks(uint32_t first, uint32_t blocks, uint32_t threads, std::function<void()> body) {
    uint32_t fibers = blocks * threads;
    if (__start_shared_memory) std::memset(__start_shared_memory, FRESH, __stop_shared_memory - __start_shared_memory);
    cluster.threads = threads;
    cluster.barrier = Barrier();
    cluster.body = body;
    cluster.blocks.resize(blocks);
    for (Block& each : cluster.blocks) {
        each.share(shared_bytes);
        each.barrier = Barrier();
        each.done = 0;
        each.votes[0] = each.votes[1] = false;
        each.warps.assign((threads + WARP - 1) / WARP, Warp());
    }
    cluster.waits.assign(fibers, Wait());
    contexts.resize(fibers);
    while (cluster.stacks.size() < fibers) cluster.stacks.push_back(std::malloc(STACK));
    for (uint32_t each = 0; each < fibers; each++) prepare(each);
    static uint32_t random = 1;
    for (uint32_t done = 0; done < fibers;) {
        random = random * 1664525 + 1013904223;
        uint32_t order = blocks > 1 ? random : 0;
        done = 0;
        for (Turns of_blocks(blocks, order); of_blocks.left;) {
            uint32_t number = of_blocks.take();
            block = &cluster.blocks[number];
            block_index.x = first + number;
            dynamic_shared = static_cast<uint8_t*>(block->shared.get());
            for (Turns of_warps(block->warps.size(), order); of_warps.left;)
                run_warp(of_warps.take(), number * threads, order);
            done += block->done;
        }
    }
}

// Called by who looks for what another block may write.
inline void let_others_run() {
    if (cluster.blocks.size() == 1) return;
    running.gives_way = true;
    leave();
}

// Waits until so many fibers have arrived; the last one calls leaves().
template <class Leaves> inline void wait_at(Barrier& barrier, uint32_t fibers, Leaves leaves) {
    uint32_t old = barrier.generation;
    if (++barrier.arrived == fibers) {
        barrier.arrived = 0;
        leaves();
        barrier.generation++;
    } else {
        cluster.waits[cluster.current] = {&barrier.generation, old};
        leave();
    }
}

// Every lane's value, once all lanes of the warp have given theirs.
inline const uint64_t* exchange(uint64_t value) {
    Warp& own = warp();
    uint32_t old = own.barrier.generation;
    own.value[old & 1][thread() % WARP] = value;
    wait_at(own.barrier, WARP, [] {});
    return own.value[old & 1];
}

// What the last lane to give its value makes of them all: fold(so far, value, lane), lane by lane.
template <class Fold> inline uint64_t fold(uint64_t value, uint64_t folded, Fold fold) {
    Warp& own = warp();
    uint32_t old = own.barrier.generation;
    const uint64_t* values = own.value[old & 1];
    own.value[old & 1][thread() % WARP] = value;
    wait_at(own.barrier, WARP, [&] {
        for (int lane = 0; lane < WARP; lane++) folded = fold(folded, values[lane], lane);
        own.folded[old & 1] = folded;
    });
    return own.folded[old & 1];
}

}  // namespace emulation

#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
#define gridDim emulation::grid_size
#define blockDim emulation::block_size

static inline int __syncthreads_or(int vote) {
    emulation::Block& block = *emulation::block;
    uint32_t old = block.barrier.generation;
    if (vote) block.votes[old & 1] = true;
    emulation::wait_at(block.barrier, emulation::cluster.threads, [&] { block.votes[~old & 1] = false; });
    return block.votes[old & 1];
}

static inline void wait_for_cluster() {
    emulation::Cluster& cluster = emulation::cluster;
    emulation::wait_at(cluster.barrier, cluster.blocks.size() * cluster.threads, [] {});
}

static inline void give_way() {
    emulation::running.gives_way = true;
    emulation::leave();
}

// A kernel that gets the job itself runs as one cluster, whatever its grid.
static inline void wait_for_grid(uint32_t*) { wait_for_cluster(); }

static inline void __syncthreads() { __syncthreads_or(0); }

static inline void __syncwarp() { emulation::exchange(0); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}

static inline uint32_t lane_of_fiber() { return emulation::thread() % emulation::WARP; }

static inline uint32_t __ballot_sync(uint32_t, bool vote) {
    return emulation::fold(vote, 0, [](uint64_t votes, uint64_t vote, int lane) { return votes | vote << lane; });
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
    return emulation::fold(
        value, ~0ull, [](uint64_t least, uint64_t value, int) { return value < least ? value : least; });
}

static inline uint32_t __reduce_max_sync(uint32_t, uint32_t value) {
    return emulation::fold(value, 0, [](uint64_t most, uint64_t value, int) { return value > most ? value : most; });
}

static inline uint32_t __reduce_or_sync(uint32_t, uint32_t value) {
    return emulation::fold(value, 0, [](uint64_t bits, uint64_t value, int) { return bits | value; });
}

static inline uint32_t __reduce_add_sync(uint32_t, uint32_t value) {
    return emulation::fold(value, 0, [](uint64_t sum, uint64_t value, int) { return sum + value; });
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
static void emulate(void (*kernel)(const Job*), uint32_t blocks, uint32_t threads, const void* job,
                    size_t shared_bytes = 0) {
    emulation::shared_bytes = shared_bytes;
    emulation::grid_size.x = blocks;
    emulation::block_size.x = threads;
    for (uint32_t index = 0; index < blocks; index++)
        emulation::run_blocks(index, 1, threads, [=] { kernel(static_cast<const Job*>(job)); });
}

// Launches a kernel that gets the job itself: all blocks as one cluster.
template <class Job>
static void emulate(void (*kernel)(Job), uint32_t blocks, uint32_t threads, const void* job,
                    size_t shared_bytes = 0) {
    emulation::shared_bytes = shared_bytes;
    emulation::grid_size.x = blocks;
    emulation::block_size.x = threads;
    emulation::run_blocks(0, blocks, threads, [=] { kernel(*static_cast<const Job*>(job)); });
}
