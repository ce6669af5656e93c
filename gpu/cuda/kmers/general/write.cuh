// Writes the ids at the start bits of kmers/general/id_starts.cuh, and, where spans are requested, the bytes that each
// id stands for.
//
// Invariant: the id at a start bit depends on the letters of its run alone.
#pragma once
#include "batch/post_process.cuh"
#include "kmers/general/id_starts.cuh"

namespace warptok::kmers {

// An id, and the first and last letter that it stands for.
struct LetterId {
    uint32_t id;
    uint64_t first, last;
};

DEVICE LetterId circle_id(const Job& job, const uint32_t* table, const LetterRow& row, uint64_t letter) {
    uint64_t row_begin = job.kmers.letter_rows[row.number], length = row.end - row_begin;
    uint64_t begin = circle_begin(job, letter - row_begin, length), end = begin + job.kmers.kmer_k;
    uint32_t id = kmer_id(job, [&](uint64_t i) {
        return table[letter_at(job, row_begin + (begin + i) % length)];
    });
    return {id, row_begin + begin, row_begin + (end < length ? end : length) - 1};
}

DEVICE LetterId id_at(const Job& job, const uint32_t* table, const LetterRow& row, uint64_t letter) {
    uint32_t own = letter_at(job, letter), letter_class = class_of(table[own]), k = job.kmers.kmer_k;
    if (row.is_circle) return circle_id(job, table, row, letter);
    if (row.has_words) {
        Word word = word_at(job, letter, row.flags);
        if (word.special_id != NO_ID) return {word.special_id, letter, letter + word.letters - 1};
        if (word.letters != k) return {0, letter, letter};  // The row is refused.
    }
    if (letter_class == SPECIAL) {
        uint64_t place = job.kmers.letter_places[letter];
        uint32_t size = static_cast<uint32_t>(byte_behind(job, letter) - place);
        return {special_id(job, place, size), letter, letter};
    }
    if (letter_class == BASE && letters_to_break(job, letter, k) == k)
        return {kmer_id(job, [&](uint64_t i) { return table[letter_at(job, letter + i)]; }), letter, letter + k - 1};
    uint64_t last = letter;
    if (letter_class == OTHER && job.kmers.own_spans) last += letters_to_break(job, letter, NO_LIMIT) - 1;
    return {job.kmers.letter_ids[own], letter, last};
}

// The bytes of an id in its row as it was sent; places of a reversed row count from its end.
DEVICE uint2 own_span(const Job& job, const LetterRow& row, const LetterId& id) {
    uint64_t row_begin = job.rows.row_begins[row.number], row_end = job.rows.row_begins[row.number + 1];
    uint64_t begin = first_byte_of(job, id.first), end = byte_behind(job, id.last);
    uint32_t from = begin - row_begin, to = end - row_begin;
    if (!(row.flags & ROW_REVERSE_COMPLEMENT)) return {from, to};
    uint32_t size = row_end - row_begin;
    return {size - to, size - from};
}

// What a warp has in shared memory of a tile of LETTER_TILE letters and the 16 behind them: their codes,
// sixteen a word, the first one highest (kmers/packed_tile.cuh), the breaks, and the letters that begin ids.
struct StartTile {
    uint32_t codes[LETTER_TILE / 16 + 2];
    uint64_t breaks[LETTER_TILE / 64 + 1];
    uint16_t starts[LETTER_TILE];
};

// Returns the codes of sixteen letters. Sets `strange` if one of them is none of the four and may be in a k-mer of the
// class BASE: it ends no run, and has no code.
DEVICE uint32_t codes_of_sixteen(const FourLetters& four, const uint32_t* table, uint64_t place, bool& strange) {
    uint32_t differ = 0;
    uint4 letters = sixteen_letters(four, static_cast<uint32_t>(place));
    uint32_t codes = pack_sixteen(four, letters, differ);
    if (!differ) return codes;
    const uint32_t words[4] = {letters.x, letters.y, letters.z, letters.w};
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t entry = place + i < four.num_bytes ? table[byte_of(words[i / 4], i % 4)] : 0;
        strange |= entry & NOT_A_CODE && class_of(entry) == BASE;
    }
    return codes;
}

// Fills a warp's tile; returns whether k-mers can be read from it.
DEVICE bool load_tile(const Job& job, const FourLetters& four, const uint32_t* table, uint64_t first, StartTile& tile) {
    if (job.kmers.letters || !job.kmers.four_letters || four.k < 2 || job.kmers.can_wrap || job.kmers.has_words ||
        job.kmers.own_spans)
        return false;
    uint32_t lane = threadIdx.x & 31;
    uint64_t end = num_letters(job);
    bool strange = false;
    __syncwarp();
    for (uint32_t i = lane; i <= LETTER_TILE / 16; i += 32)
        tile.codes[i] = codes_of_sixteen(four, table, first + 16 * i, strange);
    for (uint32_t i = lane; i <= LETTER_TILE / 64; i += 32) {
        uint64_t place = first + 64 * i;
        uint64_t breaks = place < end ? job.kmers.breaks[place / 64] : 0;
        tile.breaks[i] = place + 64 <= end ? breaks : breaks | 1ull << (place < end ? end - place : 0);
    }
    if (lane == 0) tile.codes[LETTER_TILE / 16 + 1] = 0;
    __syncwarp();
    return !__any_sync(ALL_LANES, strange);
}

// The id of letter i of a tile, which is a start.
DEVICE uint32_t id_in_tile(const Job& job, const FourLetters& four, const uint32_t* table, const StartTile& tile,
                           uint64_t first, uint32_t i) {
    uint32_t letter = job.batch.text[first + i], place = i % 64;
    uint64_t behind = (place < 63 ? tile.breaks[i / 64] >> (place + 1) : 0) | tile.breaks[i / 64 + 1] << (63 - place);
    bool is_whole = !(behind & ((1ull << (four.k - 1)) - 1));
    if (class_of(table[letter]) != BASE || !is_whole) return job.kmers.letter_ids[letter];
    return four.first_id + (shift_left(tile.codes[i / 16 + 1], tile.codes[i / 16], i % 16 * 2) >> (32 - 2 * four.k));
}

// Lists the letters of a warp's tile that begin ids, in order; returns how many there are. Each lane has the start bits
// of 64 letters.
DEVICE uint32_t list_starts(uint64_t starts, uint16_t* letters) {
    uint32_t own = (threadIdx.x & 31) * 64;
    uint32_t sums = join_lanes(count_bits(starts), [](uint32_t a, uint32_t b) { return a + b; });
    uint16_t* next = letters + sums - count_bits(starts);
    for (; starts; starts &= starts - 1) *next++ = static_cast<uint16_t>(own + lowest_bit(starts));
    __syncwarp();
    return __shfl_sync(ALL_LANES, sums, 31);
}

// Writes the ids of a warp's tile, 32 neighbouring ids at a time.
DEVICE void write_starts_of_tile(const Job& job, const FourLetters& four, const uint32_t* table, StartTile& shared,
                                 uint64_t tile) {
    bool is_packed = load_tile(job, four, table, tile * LETTER_TILE, shared);
    uint64_t first = tile * LETTER_TILE, own = first + (threadIdx.x & 31) * 64;
    uint32_t total = list_starts(own < num_letters(job) ? job.text.starts[own / 64] : 0, shared.starts);
    for (uint32_t i = threadIdx.x & 31; i < total; i += 32) {
        uint64_t letter = first + shared.starts[i], place = job.kmers.letter_tile_ids[tile] + i;
        if (is_packed) {
            job.answer.ids[place] = id_in_tile(job, four, table, shared, first, shared.starts[i]);
            continue;
        }
        LetterRow row = letter_row(job, letter);
        LetterId id = id_at(job, table, row, letter);
        job.answer.ids[place] = id.id;
        if (job.kmers.own_spans) job.kmers.own_spans[place] = own_span(job, row, id);
    }
    __syncwarp();
}

DEVICE void write_places_stage(const Job& job, uint32_t* table, StartTile* tiles, uint32_t block, uint32_t num_blocks) {
    load_letters(job, table);
    FourLetters four(job);
    uint32_t warps = num_blocks * (BLOCK / 32);
    for (uint64_t tile = block * (BLOCK / 32) + threadIdx.x / 32; tile < letter_tiles(job); tile += warps)
        write_starts_of_tile(job, four, table, tiles[threadIdx.x / 32], tile);
}

// Writes the spans of a post-processed answer: those of the ids, and (0, 0) for begin and end tokens.
DEVICE void post_process_own_spans_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    walk_post_processed(
        job, block, num_blocks,
        [&](uint64_t place, uint32_t, const PostProcessedRow& row) {
            uint64_t source = source_of(job, row, place);
            uint2 own = source == NO_SOURCE ? uint2{0, 0} : job.kmers.own_spans[source];
            reinterpret_cast<ulonglong2*>(job.post_process.spans)[place] = {own.x, own.y};
        },
        [](uint64_t, uint32_t) {});
}

}  // namespace warptok::kmers
