// Repair of windows that begin at small chunks. Each size of chunks is a module of its own, as the
// compiler takes much longer for both in one kernel. For a batch of the other size this kernel does nothing.
// dna/repair/rounds.cuh describes the steps.
//
//     window w        |A A A A|A A A A|A A A A|        tokens of two and of four A
//     window w + 1        |A A A A|A A A A|            no border in common: unmet
//     repaired            |A A|A A A A|A A A A|        meets window w
//
// Launch: blocks of BLOCK threads, any number; they need not all run at a time.
// Invariant: after it every window of this size meets the one before, or STATUS_FAULT is not 0.
#include "dna/repair/sequential.cuh"

using namespace warptok::dna;

// A thread per window, in steps (common/grid_steps.cuh); long paths lie in ids: text, base_words, certain,
// window_bits, meetings, unmet_counts, tables -> window_bits, meetings, unmet_counts, window_ranks, window_states,
// repair_counts, ids, status.
// Needs: meet_windows; repair_counts and window_states of zeros.
// Ensures: each window meets the one before, or STATUS_FAULT is not 0.
KERNEL __launch_bounds__(BLOCK, 3) repair_small(const Job* job) {
    SHARED RepairShared shared;
    if (has_small_chunks(*job)) repair_windows_stage<SMALL_CHUNK>(*job, shared);
}
