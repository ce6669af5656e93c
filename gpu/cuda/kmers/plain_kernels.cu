// The plain kernels of characters and k-mers: of rows that consist of letters of the vocabulary; see
// docs/internals/kmers.md.
//
//     characters                  write_letters, or fetch_letters for small batches
//     k-mers                      place_neighbours, place_rows, and write_kmers or write_strided
//     k-mers, equal rows          write_even_kmers or write_even_strided
//
//     rows          A C G T A | C C        k = 3, stride 1
//     id_offsets    0 3 3                  place_neighbours or place_rows
//     ids           ACG CGT GTA            write_kmers
//
// Each kernel that writes ids has three variants, for ids of 32, 16 and 8 bits. Where a plain kernel sets
// STATUS_FALLBACK, the kernels of kernels.cu write the ids again.
//
// They are a module of their own, because they take long to compile and DNA BPE needs none of them.
//
// Launch: BLOCK threads, any number of blocks.
// Invariant: ids that a plain kernel writes are right, or STATUS_FALLBACK is not 0 and they are not used.
#include "kmers/any_rows.cuh"
#include "kmers/characters.cuh"
#include "kmers/equal_rows.cuh"

namespace warptok::kmers {

// A warp of a block has a tile in shared memory.
template <class Id, KmerStep STEP>
DEVICE void write_kmers_of(const Job& job) {
    SHARED KmerTile<Id, STEP> tiles[BLOCK / 32];
    write_kmers_stage<Id, STEP>(job, tiles, blockIdx.x, gridDim.x);
}

template <class Id, KmerStep STEP>
DEVICE void write_even_rows_of(const Job& job) {
    SHARED EvenTile<Id, STEP> tiles[BLOCK / 32];
    write_even_rows_stage<Id, STEP>(job, tiles, blockIdx.x, gridDim.x);
}

}  // namespace warptok::kmers

using namespace warptok::kmers;

// A thread per four rows at a time: row_begins, row_flags -> id_offsets, row_marks, row_errors, row_refused, status.
// Needs: load_batch.
// Ensures: id_offsets and row_marks are right, or ROWS_ADD_UP of STATUS_ROWS is set.
KERNEL __launch_bounds__(BLOCK) place_neighbours(const Job* job) {
    place_neighbours_stage(*job, blockIdx.x, gridDim.x);
}

// A block claims the next 2,048 rows (common/lookback_scan.cuh); it returns if place_neighbours has placed all rows:
// row_begins, row_flags, status -> id_offsets, row_marks, place_states, row_errors, row_refused, status.
// Needs: place_neighbours, where k-mers are neighbours; place_states of zeros.
// Ensures: id_offsets, row_marks and STATUS_NUM_IDS are right.
KERNEL __launch_bounds__(BLOCK) place_rows(const Job* job) {
    SHARED ScanShared shared;
    place_rows_stage(*job, shared, blockIdx.x);
}

// A thread per 16 bytes of ids, LETTER_ROUNDS times: text, row_begins, tables -> ids, narrow_ids, id_offsets,
// row_errors, row_refused, status.
// Needs: load_batch.
// Ensures: id_offsets are right; the ids are right, or STATUS_FALLBACK is not 0.
KERNEL __launch_bounds__(BLOCK) write_letters(const Job* job) {
    write_letters_stage<uint32_t>(*job, blockIdx.x, gridDim.x);
}
KERNEL __launch_bounds__(BLOCK) write_letters16(const Job* job) {
    write_letters_stage<uint16_t>(*job, blockIdx.x, gridDim.x);
}
KERNEL __launch_bounds__(BLOCK) write_letters8(const Job* job) {
    write_letters_stage<uint8_t>(*job, blockIdx.x, gridDim.x);
}

// The same over PCIe; the Job comes with the launch: host_text, tables -> host_ids, host_status.
// Needs: nothing on the device.
// Ensures: the ids in host_ids are right, or STATUS_FALLBACK of host_status is not 0.
KERNEL __launch_bounds__(BLOCK) fetch_letters(GRID_CONSTANT const Job job) {
    fetch_letters_stage<uint32_t>(job, blockIdx.x, gridDim.x);
}
KERNEL __launch_bounds__(BLOCK) fetch_letters16(GRID_CONSTANT const Job job) {
    fetch_letters_stage<uint16_t>(job, blockIdx.x, gridDim.x);
}
KERNEL __launch_bounds__(BLOCK) fetch_letters8(GRID_CONSTANT const Job job) {
    fetch_letters_stage<uint8_t>(job, blockIdx.x, gridDim.x);
}

// A warp per tile of letters, in shared memory: text, row_begins, row_flags, id_offsets, row_marks, tables -> ids,
// narrow_ids, status.
// Needs: place_rows.
// Ensures: the ids are right, or STATUS_FALLBACK is not 0.
KERNEL __launch_bounds__(BLOCK, 4) write_kmers(const Job* job) { write_kmers_of<uint32_t, KmerStep::NEIGHBOURS>(*job); }
KERNEL __launch_bounds__(BLOCK, 4) write_kmers16(const Job* job) {
    write_kmers_of<uint16_t, KmerStep::NEIGHBOURS>(*job);
}
KERNEL __launch_bounds__(BLOCK, 4) write_kmers8(const Job* job) { write_kmers_of<uint8_t, KmerStep::NEIGHBOURS>(*job); }

// The same of k-mers that are no neighbours: text, row_begins, id_offsets, row_marks, tables -> ids, narrow_ids,
// status.
// Needs: place_rows.
// Ensures: the ids are right, or STATUS_FALLBACK is not 0.
KERNEL __launch_bounds__(BLOCK, 4) write_strided(const Job* job) { write_kmers_of<uint32_t, KmerStep::STRIDED>(*job); }
KERNEL __launch_bounds__(BLOCK, 4) write_strided16(const Job* job) {
    write_kmers_of<uint16_t, KmerStep::STRIDED>(*job);
}
KERNEL __launch_bounds__(BLOCK, 4) write_strided8(const Job* job) { write_kmers_of<uint8_t, KmerStep::STRIDED>(*job); }

// A warp per tile of letters of rows of one length, in shared memory: text, row_begins, tables -> ids, narrow_ids,
// id_offsets, row_errors, row_refused, status.
// Needs: load_batch; the host has sampled the rows.
// Ensures: id_offsets and ids are right, or STATUS_FALLBACK is not 0.
KERNEL __launch_bounds__(BLOCK, 4) write_even_kmers(const Job* job) {
    write_even_rows_of<uint32_t, KmerStep::NEIGHBOURS>(*job);
}
KERNEL __launch_bounds__(BLOCK, 4) write_even_kmers16(const Job* job) {
    write_even_rows_of<uint16_t, KmerStep::NEIGHBOURS>(*job);
}
KERNEL __launch_bounds__(BLOCK, 4) write_even_kmers8(const Job* job) {
    write_even_rows_of<uint8_t, KmerStep::NEIGHBOURS>(*job);
}

// The same of k-mers that are no neighbours: text, row_begins, tables -> ids, narrow_ids, id_offsets, row_errors,
// row_refused, status.
// Needs: load_batch; the host has sampled the rows.
// Ensures: id_offsets and ids are right, or STATUS_FALLBACK is not 0.
KERNEL __launch_bounds__(BLOCK, 4) write_even_strided(const Job* job) {
    write_even_rows_of<uint32_t, KmerStep::STRIDED>(*job);
}
KERNEL __launch_bounds__(BLOCK, 4) write_even_strided16(const Job* job) {
    write_even_rows_of<uint16_t, KmerStep::STRIDED>(*job);
}
KERNEL __launch_bounds__(BLOCK, 4) write_even_strided8(const Job* job) {
    write_even_rows_of<uint8_t, KmerStep::STRIDED>(*job);
}
