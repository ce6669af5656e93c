// Splitting pieces where merges never cross, so that what is looked up and merged is short.
//
//     split_at_certain  at places that no token lies across            certain_boundaries.cuh, boundary_filter.cuh
//     find_long         which pieces are still long, and no tokens     find_long.cuh
//     windows           these, in overlapping windows                  windows.cuh, window_rounds.cuh
//     check_windows     where neighbouring windows meet                join_windows.cuh
//     write_borders     start bits, window by window                   join_windows.cuh
//     last_pieces       pieces of which windows do not meet, whole     whole_piece.cuh, whole_piece_*.cuh
//
// gpu/kernels/families.py launches them in this order after the pretokenizer. Those after find_long have nothing to
// do for most batches and return at once. Invariant: a start bit that they set is a boundary of the piece's own
// encoding, so that ids stay the same (docs/internals/text-bpe.md).
//
// Launch: BLOCK threads, where it does not say otherwise; any number of blocks.
#include "text/split/certain_boundaries.cuh"
#include "text/split/find_long.cuh"
#include "text/split/windows.cuh"
#include "text/split/join_windows.cuh"
#include "text/split/whole_piece.cuh"

using namespace warptok::text;

DYNAMIC_SHARED(memory);

// A thread per sixteen bytes; the filters lie in 53 KiB of dynamic shared memory: text, starts, tables -> starts,
// splits.
// Needs: start bits of all pretokens.
// Ensures: each new start bit is at a border that no token lies across; `splits` has these bits.
KERNEL __launch_bounds__(CERTAIN_BLOCK, CERTAIN_BLOCKS) split_at_certain(const Job* job) {
    wait_for_kernel_before();
    split_at_certain_stage(*job, *reinterpret_cast<CertainShared*>(memory), blockIdx.x, gridDim.x);
}

// A warp per 32 words of start bits: text, starts, splits, special, special_counts, tables -> long_pieces,
// window_counts.
// Needs: split_at_certain; window_counts of zeros.
// Ensures: each piece of more than MAX_PIECE bytes that is no token is in long_pieces once; window_counts counts these
// and their windows.
KERNEL __launch_bounds__(BLOCK) find_long(const Job* job) {
    wait_for_kernel_before();
    SHARED FindShared shared;
    find_long_stage(*job, shared, blockIdx.x, gridDim.x);
}

// A warp per window, which lies in merged_ids; WindowsShared is dynamic shared memory: text, long_pieces,
// window_counts, tables -> merged_ids.
// Needs: find_long.
// Ensures: each window has the boundaries of the encoding of its bytes.
KERNEL __launch_bounds__(MERGE_THREADS, MERGE_BLOCKS) windows(const Job* job) {
    wait_for_kernel_before();
    windows_stage(*job, *reinterpret_cast<WindowsShared*>(memory), blockIdx.x, gridDim.x);
}

// A thread per window and the next one: merged_ids, long_pieces, window_counts -> merged_ids, long_pieces,
// whole_pieces, window_counts.
// Needs: windows.
// Ensures: the joint of each window is where it meets the one before; a piece of which two windows do not meet has
// failed and is in whole_pieces once.
KERNEL __launch_bounds__(BLOCK) check_windows(const Job* job) {
    wait_for_kernel_before();
    check_windows_stage(*job, blockIdx.x, gridDim.x);
}

// A warp per window: merged_ids, long_pieces, window_counts -> starts, long_pieces, whole_pieces, window_counts.
// Needs: check_windows.
// Ensures: each long piece has the start bits of its own encoding, or has failed and is in whole_pieces once.
KERNEL __launch_bounds__(BLOCK) write_borders(const Job* job) {
    wait_for_kernel_before();
    write_borders_stage(*job, blockIdx.x, gridDim.x);
}

// A block claims parts of all whole pieces, whose symbols lie in records, merged_ids and misses: text, whole_pieces,
// window_counts, tables -> starts, window_counts, records, merged_ids, misses, status.
// Needs: write_borders.
// Ensures: each whole piece has the start bits of its own encoding, or STATUS_NOT_COVERED is not 0. So no piece has
// more than MAX_PIECE bytes but tokens.
KERNEL __launch_bounds__(WHOLE_THREADS, 1) last_pieces(const Job* job) {
    wait_for_kernel_before();
    SHARED WholeShared shared;
    last_pieces_stage(*job, shared, blockIdx.x, gridDim.x);
}
