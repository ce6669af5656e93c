// The kernels of byte-pair encoding of letters, in the order in which they run; see docs/internals/dna-bpe.md.
//
// The family `dna` of gpu/kernels/families.py launches them for batches of any size; small batches of bases are tried
// by the kernels of dna/parts first. Letters are packed, windows find their paths (dna/windows), windows that do not
// meet are repaired (dna/repair), and the ids are written.
//
//     text      a a b        tokens a b aa ab with the ids 0 1 2 3, merges (a, b) and (a, a)
//     packed    0 0 1        pack_letters
//     path      a|a b        walk_windows: ab may follow a
//     ids       0 3          write_letter_ids
//
// Launch: any number of blocks of BLOCK threads; walk_windows has WALKERS threads a block, forward_windows
// FORWARD_THREADS and forward_windows_copied COPIED_THREADS.
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

// A thread per 64 letters: text, special, special_counts, hard, tables -> text, status.
// Needs: special tokens of the first round are accepted.
// Ensures: each letter outside of them is replaced by its entry of letter_map; STATUS_NOT_COVERED is not 0 where a
// character beyond ASCII becomes another one.
KERNEL __launch_bounds__(BLOCK) map_letters(const Job* job) { map_letters_stage(*job, blockIdx.x, gridDim.x); }

// A thread per 64 letters: text, hard, tables -> base_words, certain, mixed_words, starts, status.
// Needs: hard bits of rows and special tokens.
// Ensures: base_words has the code of each base, `certain` the borders that no token crosses, `starts` the gaps that
// have ids.
KERNEL __launch_bounds__(BLOCK) pack_letters(const Job* job) { pack_letters_stage(*job, blockIdx.x, gridDim.x); }

// A thread per 64 letters: special, special_counts, hard -> base_words, certain, starts.
// Needs: pack_letters.
// Ensures: each accepted special token is one gap with an id.
KERNEL __launch_bounds__(BLOCK) pack_special(const Job* job) { pack_special_stage(*job, blockIdx.x, gridDim.x); }

// A thread per row, and per 64 letters: text, hard, special, special_counts, row_begins, tables -> starts.
// Needs: pack_special.
// Ensures: white space at the ends of stretches that the vocabulary strips has no id.
KERNEL __launch_bounds__(BLOCK) strip_ends(const Job* job) { strip_ends_stage(*job, blockIdx.x, gridDim.x); }

// A thread per window: text, base_words, certain, deferred_windows, num_deferred, tables -> window_bits.
// Needs: pack_special; forward_windows, where the vocabulary has its tables.
// Ensures: window_bits of each window that this kernel walks is a path through it.
KERNEL __launch_bounds__(WALKERS, 8) walk_windows(const Job* job) {
    SHARED WindowColumns columns;
    if (has_small_chunks(*job)) walk_windows_stage<SMALL_CHUNK>(*job, columns.mine(), blockIdx.x, gridDim.x);
    else walk_windows_stage<LARGE_CHUNK>(*job, columns.mine(), blockIdx.x, gridDim.x);
}

// A thread per window, whose lengths lie in ids; 64 KiB of dynamic shared memory: base_words, mixed_words, tables ->
// window_bits, deferred_windows, num_deferred, window_tickets, ids.
// Needs: pack_special; num_deferred and window_tickets are 0.
// Ensures: window_bits of each window is a path through it, or the window is in deferred_windows once.
KERNEL __launch_bounds__(FORWARD_THREADS, FORWARD_BLOCKS) forward_windows(const Job* job) {
    forward_windows_of(*job, job->dna.ending_last, *reinterpret_cast<ForwardShared*>(memory));
}

// The same with ending_last in shared memory, which is 192 KiB: base_words, mixed_words, tables -> window_bits,
// deferred_windows, num_deferred, window_tickets, ids.
// Needs: what forward_windows needs.
// Ensures: what forward_windows ensures.
KERNEL __launch_bounds__(COPIED_THREADS) forward_windows_copied(const Job* job) {
    CopiedShared& shared = *reinterpret_cast<CopiedShared*>(memory);
    copy_last(*job, shared.last);
    forward_windows_of(*job, shared.last, shared.ring);
}

// A thread per window: window_bits, certain -> meetings, unmet_counts, status.
// Needs: walk_windows.
// Ensures: `meetings` is where each window meets the one before, or NO_MEETING; unmet_counts[0] is how many do not.
KERNEL __launch_bounds__(BLOCK) meet_windows(const Job* job) {
    if (has_small_chunks(*job)) meet_windows_stage<SMALL_CHUNK>(*job, blockIdx.x, gridDim.x);
    else meet_windows_stage<LARGE_CHUNK>(*job, blockIdx.x, gridDim.x);
}

// A block claims the next tile: text, base_words, certain, window_bits, meetings, starts, hard, special, row_begins,
// row_flags, tables -> ids, id_offsets, own_spans, dna_states, row_refused, status.
// Needs: each window meets the one before (meet_windows, repair_small or repair_large); dna_states of zeros.
// Ensures: `ids` and id_offsets are the answer; rows whose options do not fit them are refused.
KERNEL __launch_bounds__(BLOCK) write_letter_ids(const Job* job) {
    SHARED DnaIdsShared shared;
    write_letter_ids_stage(*job, shared);
}
