// Writes the ids of paths, in one pass over the text; a block claims a tile at a time.
//
// A block lists a tile's pieces, so that neighbouring threads write neighbouring ids. It learns from the blocks of the
// tiles in front how many ids these have (common/lookback_scan.cuh). While the first warp waits for that, and the
// second one finds the tile's rows, the other warps write the tile that was listed before:
//
//     warps 0, 1     list 1  wait for 0  list 2  wait for 1 ...       tiles 1, 2, ... of this block
//     others         list 1              list 2  write 1    ...
#pragma once
#include "dna/repair/sequential.cuh"
#include "batch/rows.cuh"
#include "common/lookback_scan.cuh"
#include "special/find.cuh"

namespace warptok::dna {

struct ListedTile {
    uint16_t begins[TILE];
    uint32_t before_sixteen[BLOCK];        // Pieces that begin in the tile before each sixteen places,
    uint16_t sixteen[BLOCK];               // and the bits of those that begin in them.
    uint32_t count;                        // Of its pieces.
    uint64_t begin;
    uint64_t before, row;                  // Ids before the tile; the first row that begins in it or behind.
};

struct DnaIdsShared {
    ListedTile listed[2];
    uint32_t scratch[BLOCK / 32 + 1];
    uint32_t next_tile;                    // Its number.
};

constexpr uint32_t WAITERS = 64;           // Threads of the first two warps.

// A piece of the text as it is answered.
struct Piece {
    uint32_t id;
    uint64_t begin;
    uint32_t length;
};

// Returns how many bytes the character at a place has.
DEVICE uint32_t character_bytes(const Job& job, uint64_t place) {
    uint32_t first = job.batch.text[place];
    return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// A piece that is a gap: a special token, a run that is replaced by one id, or a letter.
DEVICE Piece gap_piece(const Job& job, uint64_t begin) {
    if (job.special.special_counts[COUNT_ACCEPTED] && begins_special(job, begin)) {
        uint32_t length = border_behind(job, begin, special_limit(job, begin));
        return {special_id(job, begin, length), begin, length};
    }
    uint32_t letter = job.batch.text[begin];
    if (letter != job.dna.run_letter || !is_in_run(job, begin))
        return {__ldg(job.dna.dna_letter_ids + letter), begin, character_bytes(job, begin)};
    if (!job.kmers.own_spans) return {static_cast<uint32_t>(job.dna.run_id), begin, 1};
    uint64_t end = begin + 1;              // The letter stands where the run's last one stood.
    while (end < job.batch.num_bytes && job.batch.text[end] == letter && !bit_of(job.batch.hard, end)) end++;
    return {static_cast<uint32_t>(job.dna.run_id), end - 1, 1};
}

// The piece that begins at place `begin`; the next piece begins at place `next`.
DEVICE Piece piece_at(const Job& job, uint64_t begin, uint64_t next) {
    Ahead ahead = letters_from(job, begin);
    if (ahead.is_gap) return gap_piece(job, begin);
    uint64_t length = next - begin;
    uint32_t bases = bases_ahead(ahead);
    bool is_plain = !job.dna.num_mixed || (length <= bases && class_of(job, begin) != LETTER_MIXED);
    if (is_plain && bases < length && bases <= 16) length = bases;
    else if (!is_plain || length > 16) length = min_of(length < 64 ? length : 64, to_certain(job, begin));
    if (!is_plain || length > job.dna.dna_k)
        return {token_of(job, begin, begin + length), begin, static_cast<uint32_t>(length)};
    uint32_t mask = (1u << 2 * length) - 1;
    return {__ldg(job.dna.dna_spelled + (mask + 1 - 4) / 3 + (ahead.codes & mask)), begin,
            static_cast<uint32_t>(length)};
}

// Where the first piece behind a tile begins.
DEVICE uint64_t piece_behind(const Job& job, uint64_t place) {
    uint64_t words = (job.batch.num_bytes + 63) / 64, last = place / 64 + 2;
    for (uint64_t word = place / 64; word < words && word < last; word++) {
        uint64_t starts = starts_in(job, word);
        if (starts) return word * 64 + lowest_bit(starts);
    }
    return place + 128;                    // Further than any token reaches.
}

// Lists where a tile's pieces begin and, for each 16 places, how many begin before them.
DEVICE void list_tile(const Job& job, ListedTile& tile, uint64_t tile_begin, uint32_t* scratch) {
    uint64_t word = tile_begin / 64 + threadIdx.x / 4;
    uint64_t bits = word * 64 < job.batch.num_bytes ? starts_in(job, word) : 0;
    uint32_t sixteen = static_cast<uint32_t>(bits >> (threadIdx.x % 4 * 16)) & 0xFFFF;
    uint32_t total, place = sum_before(count_bits(sixteen), scratch, total);
    tile.before_sixteen[threadIdx.x] = place;
    tile.sixteen[threadIdx.x] = sixteen;
    for (; sixteen; sixteen &= sixteen - 1) tile.begins[place++] = threadIdx.x * 16 + lowest_bit(sixteen);
    if (threadIdx.x == 0) tile.count = total, tile.begin = tile_begin;
    __syncthreads();
}

// Ids before a place of the tile.
DEVICE uint64_t ids_before_place(const ListedTile& tile, uint64_t place) {
    uint32_t sixteen = place % TILE / 16;
    uint32_t bits = tile.sixteen[sixteen] & ((1u << place % 16) - 1);
    return tile.before + tile.before_sixteen[sixteen] + count_bits(bits);
}

// Writes id_offsets of the rows that begin in a tile; the last tile also writes the end. Threads from `first` on do it.
// Rows that are circles, and reversed rows that are no sequences, are refused here.
DEVICE void write_row_offsets(const Job& job, const ListedTile& tile, uint32_t first) {
    bool is_last = tile.begin + TILE >= job.batch.num_bytes;
    uint64_t rows = job.batch.num_rows + 1;
    for (uint64_t row = tile.row + threadIdx.x - first; row < rows; row += BLOCK - first) {
        uint64_t place = job.rows.row_begins[row];
        if (place >= tile.begin + TILE && !is_last) break;
        if (row < job.batch.num_rows && (is_circle(job, row) || is_no_sequence(job, row)))
            note_fault(job.rows.row_refused, row, static_cast<uint32_t>(place));
        bool is_behind = place >= job.batch.num_bytes;
        job.answer.id_offsets[row] = is_behind ? tile.before + tile.count : ids_before_place(tile, place);
    }
}

DEVICE void write_piece(const Job& job, uint64_t number, const Piece& piece) {
    job.answer.ids[number] = piece.id;
    if (!job.kmers.own_spans) return;
    uint64_t row = row_of(job, piece.begin), row_begin = job.rows.row_begins[row];
    uint32_t begin = piece.begin - row_begin, end = begin + piece.length;
    uint32_t size = job.rows.row_begins[row + 1] - row_begin;
    bool is_reverse_complement = job.rows.row_flags && job.rows.row_flags[row] & ROW_REVERSE_COMPLEMENT;
    job.kmers.own_spans[number] = is_reverse_complement ? uint2{size - end, size - begin} : uint2{begin, end};
}

// Writes the ids of a tile and id_offsets of its rows, by threads from `first` on.
DEVICE void write_tile(const Job& job, const ListedTile& tile, uint32_t first) {
    if (threadIdx.x < first) return;
    write_row_offsets(job, tile, first);
    for (uint32_t number = threadIdx.x - first; number < tile.count; number += BLOCK - first) {
        uint64_t next =
            number + 1 < tile.count ? tile.begin + tile.begins[number + 1] : piece_behind(job, tile.begin + TILE);
        write_piece(job, tile.before + number, piece_at(job, tile.begin + tile.begins[number], next));
    }
}

// Finds the ids and rows in front of a listed tile, by the first two warps, and claims the next tile.
DEVICE void place_tile(const Job& job, DnaIdsShared& shared, ListedTile& tile, uint32_t tiles) {
    if (threadIdx.x < 32) {
        uint64_t number = tile.begin / TILE, before = publish_tile(job.dna.dna_states + 1, number, tile.count);
        if (threadIdx.x) return;
        tile.before = before;
        if (number + 1 == tiles) job.answer.status[STATUS_NUM_IDS] = before + tile.count;
        shared.next_tile = static_cast<uint32_t>(atomic_add(job.dna.dna_states, 1));
    } else if (threadIdx.x < WAITERS) {
        uint64_t row = first_not_before_by_warp(job.rows.row_begins, job.batch.num_rows + 1, tile.begin);
        if (threadIdx.x == 32) tile.row = row;
    }
}

// Writes `ids`, id_offsets and STATUS_NUM_IDS.
DEVICE void write_letter_ids_stage(const Job& job, DnaIdsShared& shared) {
    uint32_t tiles = num_tiles(job) ? num_tiles(job) : 1;
    if (threadIdx.x == 0) shared.next_tile = static_cast<uint32_t>(atomic_add(job.dna.dna_states, 1));
    __syncthreads();
    for (uint32_t round = 0;; round++) {
        ListedTile &tile = shared.listed[round % 2], &before = shared.listed[~round % 2];
        uint32_t number = shared.next_tile;
        bool is_there = number < tiles;
        if (is_there) {
            list_tile(job, tile, static_cast<uint64_t>(number) * TILE, shared.scratch);
            place_tile(job, shared, tile, tiles);
        }
        if (round) write_tile(job, before, is_there ? WAITERS : 0);
        if (!is_there) return;
        __syncthreads();
    }
}

}  // namespace warptok::dna
