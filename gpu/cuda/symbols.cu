// The kernels of characters and k-mers, in the order in which they run; see gpu/README.md. Launch:
// BLOCK threads, any number of blocks; enter_tiles and sum_letter_tiles one block of SCAN_THREADS.
#include "filled_rows.cuh"
#include "id_windows.cuh"
#include "kmers.cuh"
#include "letter_ids.cuh"
#include "spell.cuh"
#include "turn.cuh"
#include "write_runs.cuh"
#include "write_starts.cuh"

KERNEL __launch_bounds__(BLOCK) turn_rows(const Job* job) {
    SHARED uint8_t complement[256];
    turn_rows_stage(*job, complement, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) place_neighbours(const Job* job) {
    place_neighbours_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) place_rows(const Job* job) {
    SHARED ScanShared shared;
    place_rows_stage(*job, shared, blockIdx.x);
}

KERNEL __launch_bounds__(BLOCK) write_letters(const Job* job) {
    write_letters_stage<uint32_t>(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) write_letters16(const Job* job) {
    write_letters_stage<uint16_t>(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) write_letters8(const Job* job) {
    write_letters_stage<uint8_t>(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) fetch_letters(GRID_CONSTANT const Job job) {
    fetch_letters_stage<uint32_t>(job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) fetch_letters16(GRID_CONSTANT const Job job) {
    fetch_letters_stage<uint16_t>(job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) fetch_letters8(GRID_CONSTANT const Job job) {
    fetch_letters_stage<uint8_t>(job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_kmers(const Job* job) {
    SHARED KmerTile<uint32_t, false> tiles[BLOCK / 32];
    write_kmers_stage<uint32_t, false>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_kmers16(const Job* job) {
    SHARED KmerTile<uint16_t, false> tiles[BLOCK / 32];
    write_kmers_stage<uint16_t, false>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_kmers8(const Job* job) {
    SHARED KmerTile<uint8_t, false> tiles[BLOCK / 32];
    write_kmers_stage<uint8_t, false>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_strided(const Job* job) {
    SHARED KmerTile<uint32_t, true> tiles[BLOCK / 32];
    write_kmers_stage<uint32_t, true>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_strided16(const Job* job) {
    SHARED KmerTile<uint16_t, true> tiles[BLOCK / 32];
    write_kmers_stage<uint16_t, true>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_strided8(const Job* job) {
    SHARED KmerTile<uint8_t, true> tiles[BLOCK / 32];
    write_kmers_stage<uint8_t, true>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_even_kmers(const Job* job) {
    SHARED EvenTile<uint32_t, false> tiles[BLOCK / 32];
    write_even_rows_stage<uint32_t, false>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_even_kmers16(const Job* job) {
    SHARED EvenTile<uint16_t, false> tiles[BLOCK / 32];
    write_even_rows_stage<uint16_t, false>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_even_kmers8(const Job* job) {
    SHARED EvenTile<uint8_t, false> tiles[BLOCK / 32];
    write_even_rows_stage<uint8_t, false>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_even_strided(const Job* job) {
    SHARED EvenTile<uint32_t, true> tiles[BLOCK / 32];
    write_even_rows_stage<uint32_t, true>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_even_strided16(const Job* job) {
    SHARED EvenTile<uint16_t, true> tiles[BLOCK / 32];
    write_even_rows_stage<uint16_t, true>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_even_strided8(const Job* job) {
    SHARED EvenTile<uint8_t, true> tiles[BLOCK / 32];
    write_even_rows_stage<uint8_t, true>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_filled(const Job* job) {
    SHARED FilledTile tiles[BLOCK / 32];
    write_filled_rows_stage<uint32_t>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK, 4) write_filled16(const Job* job) {
    SHARED FilledTile tiles[BLOCK / 32];
    write_filled_rows_stage<uint16_t>(*job, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) write_runs(const Job* job) {
    SHARED RunIdsTile<uint32_t> tiles[PART_TILES];
    SHARED RunParts parts;
    write_runs_stage<uint32_t>(*job, tiles, parts);
}

KERNEL __launch_bounds__(BLOCK, 5) write_runs16(const Job* job) {
    SHARED RunIdsTile<uint16_t> tiles[PART_TILES];
    SHARED RunParts parts;
    write_runs_stage<uint16_t>(*job, tiles, parts);
}

KERNEL __launch_bounds__(BLOCK, 5) write_runs8(const Job* job) {
    SHARED RunIdsTile<uint8_t> tiles[PART_TILES];
    SHARED RunParts parts;
    write_runs_stage<uint8_t>(*job, tiles, parts);
}

KERNEL __launch_bounds__(BLOCK) begin_letters(const Job* job) {
    begin_letters_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) expand_letters(const Job* job) {
    SHARED ScanShared shared;
    expand_letters_stage(*job, shared);
}

KERNEL __launch_bounds__(BLOCK) place_letters(const Job* job) {
    place_letters_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) mark_letter_rows(const Job* job) {
    mark_letter_rows_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) find_breaks(const Job* job) {
    SHARED uint32_t table[NUM_LETTERS];
    find_breaks_stage(*job, table, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(SCAN_THREADS) enter_tiles(const Job* job) {
    SHARED uint32_t scratch[SCAN_THREADS / 32];
    enter_tiles_stage(*job, scratch);
}

KERNEL __launch_bounds__(BLOCK) find_places(const Job* job) {
    SHARED uint32_t table[NUM_LETTERS];
    find_places_stage(*job, table, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(SCAN_THREADS) sum_letter_tiles(const Job* job) {
    SHARED uint32_t scratch[SCAN_THREADS / 32];
    sum_letter_tiles_stage(*job, scratch);
}

KERNEL __launch_bounds__(BLOCK) letter_offsets(const Job* job) {
    letter_offsets_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) write_places(const Job* job) {
    SHARED uint32_t table[NUM_LETTERS];
    SHARED StartTile tiles[BLOCK / 32];
    write_places_stage(*job, table, tiles, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) frame_own_spans(const Job* job) {
    frame_own_spans_stage(*job, blockIdx.x, gridDim.x);
}

KERNEL __launch_bounds__(BLOCK) decode_kmers(const Job* job) {
    SHARED SpellShared shared;
    spell_stage<false, true>(*job, shared);
}

KERNEL __launch_bounds__(BLOCK) decode_kmers_again(const Job* job) {
    SHARED SpellShared shared;
    spell_stage<true, true>(*job, shared);
}

KERNEL __launch_bounds__(BLOCK) cut_windows(const Job* job) {
    cut_windows_stage(*job, blockIdx.x, gridDim.x);
}
