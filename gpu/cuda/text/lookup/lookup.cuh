// Looks up every piece; *misses*, which are no token, are listed by length for merging.
//
// A block has a tile of text. The pieces that begin in it get one record each, side by side from the tile's first
// record on:
//
//     id                           the piece is a token
//     MISS | bin << 27 | number    it is entry `number` in the list of misses of a bin
//     MISS | SMALL | kind | ...    its ids follow from the record, see text/lookup/implicit_pieces.cuh
//
// Pieces of more than MAX_PIECE bytes are tokens, since all others were split before.
//
// Invariant: each piece has one record, the records of a tile are dense and in the order of its pieces, and each miss
// is in one list once.
#pragma once
#include "common/block_reduce.cuh"
#include "special/find.cuh"
#include "text/lookup/tile_counts.cuh"
#include "text/lookup/token_tables.cuh"

namespace warptok::text {

constexpr uint32_t BIN_SHIFT = 27, MISS_NUMBER = (1u << BIN_SHIFT) - 1;

constexpr uint32_t ONLY_WHOLE = 1u << 26;  // Flag of an id: only a whole pretoken has it, never a part of one.

// Whether a piece is a whole pretoken: neither of its borders was made by split_at_certain.
DEVICE bool is_whole(const Job& job, uint64_t begin, uint64_t end) {
    bool split_before = job.text.splits[begin / 64] >> begin % 64 & 1;
    return !split_before && (end >= job.batch.num_bytes || !(job.text.splits[end / 64] >> end % 64 & 1));
}

// The id that a table has for a piece; NO_ID where it counts for whole pretokens only, and the piece is none.
DEVICE uint32_t checked_id(const Job& job, uint32_t id, uint64_t begin, uint64_t end) {
    if (!job.text.has_whole_only || id == NO_ID || !(id & ONLY_WHOLE)) return id;
    return is_whole(job, begin, end) ? id & ~ONLY_WHOLE : NO_ID;
}

// Whether a piece is a special token of the text.
DEVICE bool is_special_piece(const Job& job, uint64_t begin) {
    return job.special.special_counts[COUNT_ACCEPTED] && begins_special(job, begin);
}

// The bin of a missed piece's length: 4, 5-8, 9-12, 13-16, 17-24, 25-32, 33-64, 65-128.
DEVICE uint32_t bin_of(uint32_t length) {
    if (length <= 16) return (length - 1) >> 2;
    if (length <= 32) return length <= 24 ? 4 : 5;
    return length <= 64 ? 6 : 7;
}

// A miss in shared memory: its piece's number in the tile | bin << TILE_BIN | its number among the tile's misses of the
// bin << TILE_PLACE.
constexpr uint32_t TILE_BIN = 12, TILE_PLACE = 16;
static_assert(TILE <= 1 << TILE_BIN, "a piece's number");

// A tile in shared memory. Its pieces are numbered in order.
struct LookUpShared {
    alignas(16) uint32_t text[TILE / 4 + 8];     // The tile's bytes, and 32 behind it.
    uint16_t begins[TILE];                       // Where each piece begins in the tile.
    uint16_t longer[TILE / (MAX_SHORT + 1) + 2];  // Numbers of pieces of more than MAX_SHORT bytes, in any order.
    uint32_t misses[TILE / 4 + 1];               // Misses, in any order; all have four bytes or more.
    uint32_t bin_counts[NUM_BINS];               // How many misses each bin has,
    uint32_t bin_begins[NUM_BINS];               // and the number of its first one in the list of all tiles.
    uint32_t part_ids[SMALL_PARTS];              // See PartIds.
    uint32_t scratch[BLOCK / 32 + 1];
    uint32_t num_misses, num_longer;             // Entries of `misses` and `longer`.
    uint32_t end;                                // Where the last piece ends, in bytes from the tile's begin on.
    uint32_t has_special;                        // Not 0: the batch has special tokens.
};

// Where the piece that covers the last byte of a tile ends.
DEVICE uint64_t next_start(const Job& job, uint64_t place) {
    uint64_t num_words = (job.batch.num_bytes + 63) / 64;
    for (uint64_t word = place / 64; word < num_words; word++) {
        uint64_t bits = job.text.starts[word];
        if (bits) return word * 64 + lowest_bit(bits);
    }
    return job.batch.num_bytes;
}

// Lists where the tile's pieces begin; returns how many there are.
DEVICE uint32_t list_pieces(const Job& job, LookUpShared& shared, uint64_t tile_begin) {
    uint64_t word = tile_begin / 64 + threadIdx.x / 4;
    uint64_t bits = word * 64 < job.batch.num_bytes ? job.text.starts[word] : 0;
    uint32_t sixteen = static_cast<uint32_t>(bits >> (threadIdx.x % 4 * 16)) & 0xFFFF;
    uint32_t total, place = sum_before(count_bits(sixteen), shared.scratch, total);
    for (; sixteen; sixteen &= sixteen - 1)
        shared.begins[place++] = threadIdx.x * 16 + lowest_bit(sixteen);
    __syncthreads();
    return total;
}

DEVICE void load_text(const Job& job, LookUpShared& shared, uint64_t tile_begin) {
    const uint4* from = reinterpret_cast<const uint4*>(job.batch.text + tile_begin);
    uint4* to = reinterpret_cast<uint4*>(shared.text);
    to[threadIdx.x] = from[threadIdx.x];
    if (threadIdx.x < 2) to[BLOCK + threadIdx.x] = from[BLOCK + threadIdx.x];
}

// Lists a miss.
DEVICE void list_miss(LookUpShared& shared, uint32_t number, uint32_t length) {
    uint32_t bin = bin_of(length);
    uint32_t place = atomicAdd(&shared.bin_counts[bin], 1u);
    shared.misses[atomicAdd(&shared.num_misses, 1u)] = number | bin << TILE_BIN | place << TILE_PLACE;
}

DEVICE const uint8_t* staged_text(const LookUpShared& shared, uint32_t begin) {
    return reinterpret_cast<const uint8_t*>(shared.text) + begin;
}

// Where the piece of a number ends in the tile.
DEVICE uint32_t end_of_piece(const LookUpShared& shared, uint32_t number, uint32_t count) {
    return number + 1 < count ? shared.begins[number + 1] : shared.end;
}

// Starts to look up the piece of a number, if there is one and it has MAX_SHORT bytes at most.
DEVICE ShortToken start_piece_lookup(const Job& job, const LookUpShared& shared, uint32_t number, uint32_t count) {
    if (number >= count) return {};
    uint32_t begin = shared.begins[number], length = end_of_piece(shared, number, count) - begin;
    if (length > MAX_SHORT) return {};
    return start_lookup(job, staged_text(shared, begin), length);
}

template <class Parts>
DEVICE void look_up_short(const Job& job, LookUpShared& shared, const Parts& parts, uint64_t tile_begin,
                          uint32_t number, uint32_t begin, const ShortToken& token) {
    uint32_t length = token.length;
    uint64_t place = tile_begin + begin;
    uint32_t record = checked_id(job, find_short(job, token), place, place + length);
    if (are_listed(record)) record = listed_record(record);
    else if (record == NO_ID && length <= MAX_SMALL) record = small_record(job, token.words[0], length);
    else if (record == NO_ID) record = repeated_record(job, staged_text(shared, begin), token.words[0], length);
    if (record == NO_ID) return list_miss(shared, number, length);
    job.text.records[tile_begin + number] = record;
    parts.add(number, record);
}

// Reports a piece of more than MAX_PIECE bytes that is no token, so that the answer is not used. Behind splitting it is
// a fault; in a launch that does not split, single launches have to.
template <class Policy> DEVICE void report_long_piece(const Job& job, uint64_t record) {
    if (Policy::LONG_PIECES_ARE_SPLIT) job.answer.status[STATUS_FAULT] = 1;
    else job.text.window_counts[COUNT_WINDOWS] = 1;
    job.text.records[record] = 0;
}

// Looks up a piece of more than MAX_SHORT bytes. These are handled together, so that whole warps come here.
template <class Policy, class Parts>
DEVICE void look_up_longer(const Job& job, LookUpShared& shared, const Parts& parts, uint64_t tile_begin,
                           uint32_t number, uint32_t begin, uint32_t length) {
    const uint8_t* staged = staged_text(shared, begin);
    const uint8_t* text = job.batch.text + tile_begin + begin;
    uint32_t id = length <= MAX_LONG ? find_token(job, staged, length) : find_any(job, text, length);
    id = checked_id(job, id, tile_begin + begin, tile_begin + begin + length);
    if (id == NO_ID && length <= MAX_PIECE) id = repeated_record(job, text, first_word(text, 4), length);
    if (id != NO_ID) job.text.records[tile_begin + number] = id, parts.add(number, id);
    else if (length <= MAX_PIECE) list_miss(shared, number, length);
    else report_long_piece<Policy>(job, tile_begin + number);
}

// An entry of job.text.misses: a piece's place in the batch | its length << LENGTH_OF_MISS | its part of the tile <<
// PART_OF_MISS, which is 0 where ids are not counted.
constexpr uint32_t LENGTH_OF_MISS = 32, PART_OF_MISS = 40;

DEVICE uint32_t length_of_miss(uint64_t entry) { return static_cast<uint32_t>(entry >> LENGTH_OF_MISS) & 0xFF; }

// The unit of text/compact/compact.cuh that a missed piece is in.
DEVICE uint32_t unit_of_miss(uint64_t entry) {
    return static_cast<uint32_t>(entry) / TILE * SMALL_PARTS + static_cast<uint32_t>(entry >> PART_OF_MISS);
}

// Copies a tile's list of misses to the lists of all tiles.
template <class Policy>
DEVICE void write_misses(const Job& job, LookUpShared& shared, uint64_t tile_begin, uint32_t count, uint32_t size) {
    for (uint32_t i = threadIdx.x; i < shared.num_misses; i += BLOCK) {
        uint32_t miss = shared.misses[i], number = miss & ((1u << TILE_BIN) - 1), bin = miss >> TILE_BIN & 0xF;
        uint32_t begin = shared.begins[number];
        uint32_t end = number + 1 < count ? shared.begins[number + 1] : shared.end;
        uint32_t place = shared.bin_begins[bin] + (miss >> TILE_PLACE);
        uint64_t part = Policy::COUNTS_IDS ? number / size : 0, length = end - begin;
        job.text.misses[bin][place] = tile_begin + begin | length << LENGTH_OF_MISS | part << PART_OF_MISS;
        job.text.records[tile_begin + number] = MISS | bin << BIN_SHIFT | place;
    }
}

// Looks up all pieces. A block handles a tile in four steps, with barriers between them: it loads text and pieces;
// looks up short pieces, and lists the longer ones, which are few; looks up these; reserves room in the lists of misses
// of all tiles and copies its own there.
//
//     pieces          The _quick _brown _internationalization      numbers 0 1 2 3
//     records         464 2068   7586   .                          known at once
//     longer                            3                          of more than MAX_SHORT bytes: maybe a miss of bin 4
//     miss_counts     of bin 4: 7 before, 8 with it                so its record is MISS | 4 << BIN_SHIFT | 7
//
// In a launch that is latency bound a thread loads its next piece while it handles one; others lack registers for that.
template <class Policy>
DEVICE void look_up_stage(const Job& job, LookUpShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t tiles = num_tiles(job);
    for (uint32_t tile = block; tile < tiles; tile += num_blocks) {
        uint64_t tile_begin = static_cast<uint64_t>(tile) * TILE;
        if (threadIdx.x < NUM_BINS) shared.bin_counts[threadIdx.x] = 0;
        if (Policy::COUNTS_IDS && threadIdx.x < SMALL_PARTS) shared.part_ids[threadIdx.x] = 0;
        if (threadIdx.x == 0) {
            shared.num_misses = shared.num_longer = 0;
            shared.has_special = job.special.special_counts[COUNT_ACCEPTED];
            shared.end = next_start(job, tile_begin + TILE) - tile_begin;
        }
        load_text(job, shared, tile_begin);
        uint32_t count = list_pieces(job, shared, tile_begin);
        PartIds<Policy> parts = {shared.part_ids, size_of_part<SMALL_PARTS>(count)};
        ShortToken next = Policy::IS_LATENCY_BOUND ? start_piece_lookup(job, shared, threadIdx.x, count) : ShortToken{};
        for (uint32_t number = threadIdx.x; number < count; number += BLOCK) {
            uint32_t begin = shared.begins[number], length = end_of_piece(shared, number, count) - begin;
            ShortToken token = next;
            if (Policy::IS_LATENCY_BOUND) next = start_piece_lookup(job, shared, number + BLOCK, count);
            if (shared.has_special && begins_special(job, tile_begin + begin)) {
                job.text.records[tile_begin + number] = special_id(job, tile_begin + begin, length);
            } else if (length <= MAX_SHORT) {
                if (!Policy::IS_LATENCY_BOUND) token = start_lookup(job, staged_text(shared, begin), length);
                look_up_short(job, shared, parts, tile_begin, number, begin, token);
            } else {
                shared.longer[atomicAdd(&shared.num_longer, 1u)] = number;
            }
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < shared.num_longer; i += BLOCK) {
            uint32_t number = shared.longer[i], begin = shared.begins[number];
            uint32_t length = end_of_piece(shared, number, count) - begin;
            look_up_longer<Policy>(job, shared, parts, tile_begin, number, begin, length);
        }
        __syncthreads();
        if (threadIdx.x < NUM_BINS && shared.bin_counts[threadIdx.x])
            shared.bin_begins[threadIdx.x] =
                atomicAdd(&job.text.miss_counts[threadIdx.x], shared.bin_counts[threadIdx.x]);
        if (threadIdx.x == 0) job.text.tile_pieces[tile] = count;
        parts.write(job.text.tile_counts + tile * SMALL_PARTS, count);
        __syncthreads();
        write_misses<Policy>(job, shared, tile_begin, count, parts.size);
        __syncthreads();
    }
}

}  // namespace warptok::text
