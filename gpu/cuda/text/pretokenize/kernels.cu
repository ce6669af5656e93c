// Pretokenizing: one start bit for each pretoken of a published pattern (gpu/text/pretokenizer_automaton.py).
//
//     pretokenize    a thread 64 bytes, from a set of possible states                 first_pass.cuh, automaton.cuh
//     map_tiles      tiles of which something is ambiguous, from every state          tile_maps.cuh
//     enter_runs     the state before each of them                                    compose_maps.cuh
//     redo_tiles     what was ambiguous, from the state that is known now             second_pass.cuh
//
// Here are also the classes of characters (character_classes.cuh) and the check of NFC, a module of its own
// (nfc_check.cu). gpu/kernels/families.py launches them in this order behind special tokens; the last three return at
// once where no tile is bad. In a fused kernel (text/fused) the first is a stage. Invariant: start bits of
// good tiles are right.
//
// Launch: BLOCK threads, in map_tiles MAP_BLOCK, in enter_runs ENTER_BLOCK or fewer warps; any number of blocks.
#include "text/pretokenize/second_pass.cuh"
#include "text/pretokenize/compose_maps.cuh"
#include "text/pretokenize/first_pass.cuh"

using namespace warptok::text;

// A thread per 64 bytes; in small batches per sixteen, a block per tile: text, hard, tables -> starts, half_states,
// bad_tiles.
// Needs: hard bits of rows and special tokens; bad_tiles is 0.
// Ensures: start bits are right in each chunk that is resolved. half_states has the state behind each half tile;
// bad_tiles is 0 if all chunks are resolved, and the next three kernels then return at once.
KERNEL __launch_bounds__(BLOCK) pretokenize(const Job* job) {
    wait_for_kernel_before();
    SHARED PretokenizeShared shared;
    pretokenize_stage(*job, shared, blockIdx.x, gridDim.x);
}

// A block per tile that is bad or follows a bad one: text, hard, half_states, bad_tiles, tables -> tile_state,
// tile_function, tile_pending, chunk_before, chunk_pending.
// Needs: pretokenize.
// Ensures: tile_state has the state behind each good tile, UNRESOLVED of bad ones. A tile that is bad or follows a bad
// one has its map.
KERNEL __launch_bounds__(MAP_BLOCK, 2) map_tiles(const Job* job) {
    wait_for_kernel_before();
    SHARED MapShared shared;
    map_tiles_stage(*job, shared, blockIdx.x, gridDim.x);
}

// A block per as many tiles as it has threads: tile_state, tile_function, bad_tiles -> tile_entry.
// Needs: map_tiles.
// Ensures: tile_entry has the state before each bad tile.
KERNEL __launch_bounds__(ENTER_BLOCK) enter_runs(const Job* job) {
    wait_for_kernel_before();
    SHARED RunsShared shared;
    enter_runs_stage(*job, shared, blockIdx.x, gridDim.x);
}

// A thread per 64 bytes, a warp per half tile: text, hard, half_states, bad_tiles, tile_entry, tile_function,
// tile_pending, chunk_before, chunk_pending, tables -> starts.
// Needs: enter_runs.
// Ensures: all start bits are right.
KERNEL __launch_bounds__(BLOCK) redo_tiles(const Job* job) {
    wait_for_kernel_before();
    SHARED PretokenizeShared shared;
    redo_tiles_stage(*job, shared, blockIdx.x, gridDim.x);
}
