// From paths to ids: one pass over the text, a block a tile.
//
// A tile's pieces are listed, so that neighbouring threads write neighbouring ids; how many ids are
// before the tile, the blocks before it say (scan.cuh).
#pragma once
#include "dna_finish.cuh"
#include "letters.cuh"
#include "special.cuh"

struct DnaIdsShared {
    uint16_t begins[TILE];
    uint32_t scratch[BLOCK / 32 + 1];
    uint32_t before_sixteen[BLOCK];        // Pieces that begin in the tile before each sixteen places,
    uint16_t sixteen[BLOCK];               // and the bits of those that begin in them.
    uint32_t tile;
    uint64_t before, row;                  // Ids before the tile; the first row that begins in it or behind.
};

// A piece of the text as it is answered.
struct Piece {
    uint32_t id;
    uint64_t begin;
    uint32_t length;
};

// Bytes of the character that begins at a place.
DEVICE uint32_t character_bytes(const Job& job, uint64_t place) {
    uint32_t first = job.text[place];
    return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// A piece that no merge made: a special token, a run that became one letter, a letter.
DEVICE Piece gap_piece(const Job& job, uint64_t begin) {
    if (job.special_counts[COUNT_ACCEPTED] && begins_special(job, begin)) {
        uint32_t length = border_behind(job, begin, special_limit(job, begin));
        return {special_id(job, begin, length), begin, length};
    }
    uint32_t letter = job.text[begin];
    if (letter != job.run_letter || !is_in_run(job, begin))
        return {__ldg(job.dna_letter_ids + letter), begin, character_bytes(job, begin)};
    if (!job.own_spans) return {static_cast<uint32_t>(job.run_id), begin, 1};
    uint64_t end = begin + 1;              // The letter stands where the run's last one stood.
    while (end < job.num_bytes && job.text[end] == letter && !bit_of(job.hard, end)) end++;
    return {static_cast<uint32_t>(job.run_id), end - 1, 1};
}

// The piece that begins at a place, `next` the one where the next one begins.
DEVICE Piece piece_at(const Job& job, uint64_t begin, uint64_t next) {
    Ahead ahead = letters_from(job, begin);
    if (ahead.is_gap) return gap_piece(job, begin);
    uint64_t length = next - begin;
    uint32_t bases = bases_ahead(ahead);
    bool is_plain = !job.num_mixed || (length <= bases && class_of(job, begin) != LETTER_MIXED);
    if (is_plain && bases < length && bases <= 16) length = bases;
    else if (!is_plain || length > 16) length = min_of(length < 64 ? length : 64, to_certain(job, begin));
    if (!is_plain || length > job.dna_k)
        return {token_of(job, begin, begin + length), begin, static_cast<uint32_t>(length)};
    uint32_t mask = (1u << 2 * length) - 1;
    return {__ldg(job.dna_spelled + (mask + 1 - 4) / 3 + (ahead.codes & mask)), begin,
            static_cast<uint32_t>(length)};
}

// Where the first piece behind a tile begins.
DEVICE uint64_t piece_behind(const Job& job, uint64_t place) {
    uint64_t words = (job.num_bytes + 63) / 64, last = place / 64 + 2;
    for (uint64_t word = place / 64; word < words && word < last; word++) {
        uint64_t starts = starts_in(job, word);
        if (starts) return word * 64 + lowest_bit(starts);
    }
    return place + 128;                    // Further than any token reaches.
}

// Lists where a tile's pieces begin and, for each 16 places, how many begin before them.
DEVICE uint32_t list_tile(const Job& job, DnaIdsShared& shared, uint64_t tile_begin) {
    uint64_t word = tile_begin / 64 + threadIdx.x / 4;
    uint64_t bits = word * 64 < job.num_bytes ? starts_in(job, word) : 0;
    uint32_t sixteen = static_cast<uint32_t>(bits >> (threadIdx.x % 4 * 16)) & 0xFFFF;
    uint32_t total, place = sum_before(count_bits(sixteen), shared.scratch, total);
    shared.before_sixteen[threadIdx.x] = place;
    shared.sixteen[threadIdx.x] = sixteen;
    for (; sixteen; sixteen &= sixteen - 1) shared.begins[place++] = threadIdx.x * 16 + lowest_bit(sixteen);
    __syncthreads();
    return total;
}

// Ids before a place of the tile.
DEVICE uint64_t ids_before_place(const Job& job, const DnaIdsShared& shared, uint64_t place) {
    uint32_t sixteen = place % TILE / 16;
    uint32_t bits = shared.sixteen[sixteen] & ((1u << place % 16) - 1);
    return shared.before + shared.before_sixteen[sixteen] + count_bits(bits);
}

// id_offsets of the rows that begin in a tile, and behind the text in its last one. No row wraps, and
// turned ones are sequences; others are refused here.
DEVICE void write_row_offsets(const Job& job, const DnaIdsShared& shared, uint64_t tile_begin, uint32_t count) {
    bool is_last = tile_begin + TILE >= job.num_bytes;
    uint64_t rows = job.num_rows + 1;
    for (uint64_t row = shared.row + threadIdx.x; row < rows; row += BLOCK) {
        uint64_t place = job.row_begins[row];
        if (place >= tile_begin + TILE && !is_last) break;
        if (row < job.num_rows && (is_circle(job, row) || is_no_sequence(job, row)))
            note_fault(job.row_refused, row, static_cast<uint32_t>(place));
        bool is_behind = place >= job.num_bytes;
        job.id_offsets[row] = is_behind ? shared.before + count : ids_before_place(job, shared, place);
    }
}

DEVICE void write_piece(const Job& job, uint64_t number, const Piece& piece) {
    job.ids[number] = piece.id;
    if (!job.own_spans) return;
    uint64_t row = row_of(job, piece.begin), row_begin = job.row_begins[row];
    uint32_t begin = piece.begin - row_begin, end = begin + piece.length;
    uint32_t size = job.row_begins[row + 1] - row_begin;
    bool is_turned = job.row_flags && job.row_flags[row] & ROW_OTHER_STRAND;
    job.own_spans[number] = is_turned ? uint2{size - end, size - begin} : uint2{begin, end};
}

// ids, id_offsets and STATUS_NUM_IDS.
DEVICE void write_letter_ids_stage(const Job& job, DnaIdsShared& shared) {
    uint32_t tiles = num_tiles(job) ? num_tiles(job) : 1;
    for (;;) {
        if (threadIdx.x == 0) shared.tile = static_cast<uint32_t>(atomic_add(job.dna_states, 1));
        __syncthreads();
        uint32_t tile = shared.tile;
        if (tile >= tiles) return;
        uint64_t tile_begin = static_cast<uint64_t>(tile) * TILE;
        uint32_t count = list_tile(job, shared, tile_begin);
        if (threadIdx.x < 32) {
            uint64_t before = publish_tile(job.dna_states + 1, tile, count);
            if (threadIdx.x == 0) shared.before = before;
        } else if (threadIdx.x < 64) {     // While the first warp waits for other blocks.
            uint64_t row = first_not_before_by_warp(job.row_begins, job.num_rows + 1, tile_begin);
            if (threadIdx.x == 32) shared.row = row;
        }
        __syncthreads();
        write_row_offsets(job, shared, tile_begin, count);
        if (threadIdx.x == 0 && tile + 1 == tiles) job.status[STATUS_NUM_IDS] = shared.before + count;
        for (uint32_t number = threadIdx.x; number < count; number += BLOCK) {
            uint64_t next = number + 1 < count ? tile_begin + shared.begins[number + 1] : piece_behind(job, tile_begin + TILE);
            write_piece(job, shared.before + number, piece_at(job, tile_begin + shared.begins[number], next));
        }
        __syncthreads();
    }
}
