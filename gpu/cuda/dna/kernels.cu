// The kernels of byte-pair encoding of letters, in the order in which they run; see docs/internals/dna-bpe.md.
//
// The family `dna` of gpu/kernels/families.py launches them for batches of any size; small batches of bases are tried
// by the kernels of dna/parts first. Letters are packed, windows find their paths (dna/windows), windows that do not
// meet are repaired (dna/repair), and the ids are written.
//
// Launch: any number of blocks of BLOCK threads, of WALKERS where they walk.
// Invariant: two neighbouring windows count only where they meet, so every two neighbouring tokens are compatible.
#include "dna/windows/last_tokens.cuh"
#include "dna/write_ids.cuh"
#include "dna/map_letters.cuh"
#include "dna/strip.cuh"

namespace warptok::dna {

// A column for each thread of a block.
struct WindowColumns {
    uint32_t borders[Window<LARGE_CHUNK>::WORDS * WALKERS], dead[Window<LARGE_CHUNK>::WORDS * WALKERS];
    DEVICE_METHOD Columns mine() { return {borders + threadIdx.x, dead + threadIdx.x, WALKERS}; }
};

template <class Ring>
DEVICE void forward_windows_of(const Job& job, const uint2* last, Ring& ring) {
    ForwardTables<Ring> tables(job, last, ring);
    if (has_small_chunks(job)) forward_windows_stage<SMALL_CHUNK>(job, tables, blockIdx.x, gridDim.x);
    else forward_windows_stage<LARGE_CHUNK>(job, tables, blockIdx.x, gridDim.x);
}

}  // namespace warptok::dna

using namespace warptok::dna;

DYNAMIC_SHARED(memory);

// A thread 64 letters: text, special, special_counts, hard, tables -> text, status.
KERNEL __launch_bounds__(BLOCK) map_letters(const Job* job) { map_letters_stage(*job, blockIdx.x, gridDim.x); }

// A thread 64 letters: text, hard, tables -> base_words, certain, mixed_words, starts, status.
KERNEL __launch_bounds__(BLOCK) pack_letters(const Job* job) { pack_letters_stage(*job, blockIdx.x, gridDim.x); }

// A thread 64 letters: special, special_counts, hard -> base_words, certain, starts.
KERNEL __launch_bounds__(BLOCK) pack_special(const Job* job) { pack_special_stage(*job, blockIdx.x, gridDim.x); }

// A thread a row, and 64 letters: text, hard, special, special_counts, row_begins, tables -> starts.
KERNEL __launch_bounds__(BLOCK) strip_ends(const Job* job) { strip_ends_stage(*job, blockIdx.x, gridDim.x); }

// A thread a window: text, base_words, certain, deferred_windows, num_deferred, tables -> window_bits.
KERNEL __launch_bounds__(WALKERS, 8) walk_windows(const Job* job) {
    SHARED WindowColumns columns;
    if (has_small_chunks(*job)) walk_windows_stage<SMALL_CHUNK>(*job, columns.mine(), blockIdx.x, gridDim.x);
    else walk_windows_stage<LARGE_CHUNK>(*job, columns.mine(), blockIdx.x, gridDim.x);
}

// A thread a window, whose lengths lie in ids: base_words, mixed_words, tables -> window_bits, deferred_windows,
// num_deferred, window_tickets, ids.
KERNEL __launch_bounds__(FORWARD_THREADS) forward_windows(const Job* job) {
    forward_windows_of(*job, job->dna.ending_last, *reinterpret_cast<ForwardShared*>(memory));
}

// The same with ending_last in shared memory: base_words, mixed_words, tables -> window_bits, deferred_windows,
// num_deferred, window_tickets, ids.
KERNEL __launch_bounds__(FORWARD_THREADS) forward_windows_copied(const Job* job) {
    CopiedShared& shared = *reinterpret_cast<CopiedShared*>(memory);
    copy_last(*job, shared.last);
    forward_windows_of(*job, shared.last, shared.ring);
}

// A thread a window: window_bits, certain -> meetings, unmet_counts, status.
KERNEL __launch_bounds__(BLOCK) meet_windows(const Job* job) {
    if (has_small_chunks(*job)) meet_windows_stage<SMALL_CHUNK>(*job, blockIdx.x, gridDim.x);
    else meet_windows_stage<LARGE_CHUNK>(*job, blockIdx.x, gridDim.x);
}

// A block the next tile: text, base_words, certain, window_bits, meetings, starts, hard, special, row_begins,
// row_flags, tables -> ids, id_offsets, own_spans, dna_states, row_refused, status.
KERNEL __launch_bounds__(BLOCK) write_letter_ids(const Job* job) {
    SHARED DnaIdsShared shared;
    write_letter_ids_stage(*job, shared);
}
