// The kernels of characters and k-mers in any rows, in the order in which they run; see docs/internals/kmers.md.
//
// The families `characters`, `kmers` and `strided_kmers` of gpu/kernels/families.py launch them. The plain kernels
// (plain_kernels.cu) come first. Where these set STATUS_FALLBACK, the kernels from begin_letters on write the ids
// again. DNA BPE needs augment_rows and post_process_own_spans.
//
//     letters    A C G T A N        k = 3, stride 3
//     breaks     1 0 0 0 0 1        mark_letter_rows, find_breaks
//     starts     1 0 0 1 1 1        enter_tiles, find_places
//     ids        ACG T A N          sum_letter_tiles, write_places
//
// Launch: BLOCK threads, any number of blocks; enter_tiles and sum_letter_tiles one block of SCAN_THREADS.
// Invariant: ids that write_places writes are right, whatever the rows are made of.
#include "kmers/windows.cuh"
#include "decode/spell_pass.cuh"
#include "batch/augment_rows.cuh"
#include "kmers/general/write.cuh"

using namespace warptok::kmers;

// A thread per sixteen letters: sent_text, sent_begins, row_begins, row_flags, complement -> text, row_not_ascii.
// Needs: load_batch; row_not_ascii of zeros.
// Ensures: `text` has each row as it is encoded; row_not_ascii is not 0 where a reversed row is no sequence.
KERNEL __launch_bounds__(BLOCK) augment_rows(const Job* job) {
    SHARED uint8_t complement[256];
    augment_rows_stage(*job, complement, blockIdx.x, gridDim.x);
}

// A thread per 64 bytes: text -> starts.
// Needs: load_batch.
// Ensures: there is a start bit where each character begins.
KERNEL __launch_bounds__(BLOCK) begin_letters(const Job* job) {
    begin_letters_stage(*job, blockIdx.x, gridDim.x);
}

// A block claims the next 2,048 bytes (common/lookback_scan.cuh): text, starts, special, tables -> letters,
// letter_places, letter_rows, letter_states, status.
// Needs: begin_letters, clear_special; letter_states of zeros.
// Ensures: `letters` has the letters of all characters in order, letter_places the byte that each begins with, and the
// last entry of letter_rows their number.
KERNEL __launch_bounds__(BLOCK) expand_letters(const Job* job) {
    SHARED ScanShared shared;
    expand_letters_stage(*job, shared);
}

// A thread per row: row_begins, letter_places, letter_rows -> letter_rows.
// Needs: expand_letters.
// Ensures: letter_rows has the first letter of each row.
KERNEL __launch_bounds__(BLOCK) place_letters(const Job* job) {
    place_letters_stage(*job, blockIdx.x, gridDim.x);
}

// A thread per row: letter_rows -> breaks, row_has_words.
// Needs: letter_rows (place_letters, or row_begins where bytes are letters); `breaks` of zeros.
// Ensures: there is a break where each row begins.
KERNEL __launch_bounds__(BLOCK) mark_letter_rows(const Job* job) {
    mark_letter_rows_stage(*job, blockIdx.x, gridDim.x);
}

// A warp per tile, a lane per 64 letters: text, letters, letter_rows, breaks, tables -> breaks, letter_tiles,
// row_has_words, row_refused, status.
// Needs: mark_letter_rows.
// Ensures: there is a break where each run begins; letter_tiles has the last break of each tile, or 0.
KERNEL __launch_bounds__(BLOCK) find_breaks(const Job* job) {
    SHARED uint32_t table[NUM_LETTERS];
    find_breaks_stage(*job, table, blockIdx.x, gridDim.x);
}

// One block of SCAN_THREADS, a thread per eight tiles at a time: letter_tiles -> letter_tiles.
// Needs: find_breaks.
// Ensures: letter_tiles has the last break before each tile.
KERNEL __launch_bounds__(SCAN_THREADS) enter_tiles(const Job* job) {
    SHARED uint32_t scratch[SCAN_THREADS / 32];
    enter_tiles_stage(*job, scratch);
}

// A warp per tile, a lane per 64 letters: text, letters, letter_rows, breaks, letter_tiles, row_has_words, tables ->
// starts, letter_tile_ids, row_refused.
// Needs: enter_tiles.
// Ensures: there is a start bit where each id begins; letter_tile_ids has the ids of each tile.
KERNEL __launch_bounds__(BLOCK) find_places(const Job* job) {
    SHARED uint32_t table[NUM_LETTERS];
    find_places_stage(*job, table, blockIdx.x, gridDim.x);
}

// One block of SCAN_THREADS, a thread per eight tiles at a time: letter_tile_ids -> letter_tile_ids, status.
// Needs: find_places.
// Ensures: letter_tile_ids has the ids before each tile; STATUS_NUM_IDS is the sum of all.
KERNEL __launch_bounds__(SCAN_THREADS) sum_letter_tiles(const Job* job) {
    SHARED uint32_t scratch[SCAN_THREADS / 32];
    sum_letter_tiles_stage(*job, scratch);
}

// A warp per row: letter_rows, letter_tile_ids, starts, row_begins -> id_offsets, row_refused.
// Needs: sum_letter_tiles.
// Ensures: id_offsets are right; rows whose options do not fit them are refused.
KERNEL __launch_bounds__(BLOCK) letter_offsets(const Job* job) {
    letter_offsets_stage(*job, blockIdx.x, gridDim.x);
}

// A warp per tile, a lane per id: text, letters, letter_places, letter_rows, starts, breaks, letter_tile_ids,
// row_begins, tables -> ids, own_spans.
// Needs: sum_letter_tiles.
// Ensures: each start bit has its id, and its bytes in own_spans where these are requested.
KERNEL __launch_bounds__(BLOCK) write_places(const Job* job) {
    SHARED uint32_t table[NUM_LETTERS];
    SHARED StartTile tiles[BLOCK / 32];
    write_places_stage(*job, table, tiles, blockIdx.x, gridDim.x);
}

// A thread per four ids of the answer: own_spans, id_offsets, kept, post_processed_offsets, row_flags -> spans.
// Needs: post_process_rows; own_spans of all ids.
// Ensures: `spans` has begin and end byte in its row of each id of the answer, (0, 0) of begin and end tokens.
KERNEL __launch_bounds__(BLOCK) post_process_own_spans(const Job* job) {
    post_process_own_spans_stage(*job, blockIdx.x, gridDim.x);
}

// As decode_spell, of k-mers that share letters: decode_ids, decode_offsets, tables -> decoded, decoded_offsets,
// decode_states, decode_faults, row_errors.
// Needs: what decode_spell needs.
// Ensures: what decode_spell ensures, with each shared letter once.
KERNEL __launch_bounds__(BLOCK) decode_kmers(const Job* job) {
    SHARED SpellShared shared;
    spell_stage<SpellPass::FIRST, SpelledTokens::OVERLAPPING>(*job, shared);
}

// As decode_spell_again: decode_ids, decode_offsets, decode_faults, row_errors, tables -> decoded, decoded_offsets,
// decode_states.
// Needs: decode_kmers.
// Ensures: what decode_spell_again ensures.
KERNEL __launch_bounds__(BLOCK) decode_kmers_again(const Job* job) {
    SHARED SpellShared shared;
    spell_stage<SpellPass::AGAIN, SpelledTokens::OVERLAPPING>(*job, shared);
}

// A thread per four cells: ids, id_offsets, row_begins, own_spans, channel, window_rows, window_prefix -> window_ids,
// window_mask, window_positions, window_values, window_starts.
// Needs: ids and id_offsets of all rows.
// Ensures: each cell of the rectangle has its id or padding, whether it is an id, its position and its value.
KERNEL __launch_bounds__(BLOCK) cut_windows(const Job* job) {
    cut_windows_stage(*job, blockIdx.x, gridDim.x);
}
