// Accepts the special tokens that count: steps two and three of special/find.cuh, and a last one behind the
// pretokenizer. A row may refuse special tokens, or match only those that are ordinary (batch/rows.cuh).
//
//     text       x < e > < e > y        token "<e>"
//     special    . 1 . . 1 . . .
//     hard       1 1 . . 1 . . 1        the row, and both ends of each token
//
// Invariant: accepted tokens do not overlap, and each has a hard boundary at its begin and behind its end.
#pragma once
#include "special/find.cuh"

// Follows the tables of a run of tiles, of whose first one the tile before covers `covered` bytes. A warp calls it;
// lane i holds the entries 8 i .. 8 i + 7 of each table.
DEVICE void follow_tables(const Job& job, uint32_t tile, uint32_t covered) {
    constexpr uint32_t AHEAD = 8;          // Tables that are loaded together.
    uint32_t lane = threadIdx.x & 31, tiles = num_tiles(job);
    for (bool goes_on = true; goes_on; tile += AHEAD) {
        uint64_t tables[AHEAD];
        bool varies[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            varies[i] = tile + i < tiles && (job.special.special_exits[tile + i] & VARIES);
            const uint64_t* table = reinterpret_cast<const uint64_t*>(job.special.special_function);
            tables[i] = varies[i] ? table[(tile + i) * 32ull + lane] : 0;
        }
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            goes_on = goes_on && varies[i];
            if (!goes_on) continue;
            uint64_t eight = __shfl_sync(ALL_LANES, tables[i], covered / 8);
            covered = eight >> (covered % 8 * 8) & 0xFF;
            if (lane == 0) job.special.special_exits[tile + i] = VARIES | covered;
        }
    }
}

// Where the stretch between accepted tokens begins that holds a place; the whole warp calls it.
DEVICE uint32_t stretch_begin(const Job& job, uint32_t place) {
    uint32_t lane = threadIdx.x & 31, word = place / 64;
    uint64_t mask = lane ? ~0ull : ~0ull >> (63 - place % 64);
    for (;; word -= 32, mask = ~0ull) {  // It ends, as a row begins with a border.
        uint64_t bits = lane <= word ? job.batch.hard[word - lane] & mask : 0;
        uint32_t filled = __ballot_sync(ALL_LANES, bits != 0), found = filled ? lowest_bit(filled) : 0;
        bits = __shfl_sync(ALL_LANES, bits, found);
        if (filled) return (word - found) * 64 + highest_bit(bits);
    }
}

// Writes row_stretch: where the stretch begins that holds the first refused token of a row; a warp per 32 rows.
DEVICE void find_stretches(const Job& job, uint32_t first, uint32_t stride) {
    uint32_t lane = threadIdx.x & 31;
    for (uint64_t row = first; row - lane < job.batch.num_rows; row += stride) {
        uint32_t place = row < job.batch.num_rows ? job.rows.row_refused[row] : NO_BYTE, begin = NO_BYTE;
        uint32_t refused = __ballot_sync(ALL_LANES, place != NO_BYTE);
        for (; refused; refused &= refused - 1) {
            uint32_t found = stretch_begin(job, __shfl_sync(ALL_LANES, place, lowest_bit(refused)));
            if (lane == lowest_bit(refused)) begin = found;
        }
        if (row < job.batch.num_rows) job.rows.row_stretch[row] = begin;
    }
}

template <uint32_t ROUND>
DEVICE void enter_special_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t first = block * BLOCK + threadIdx.x, stride = num_blocks * BLOCK;
    if (ROUND) find_stretches(job, first, stride);
    if (!job.special.special_counts[COUNT_VARYING + ROUND]) return;
    for (uint32_t tile = first / 32; tile < num_tiles(job); tile += stride / 32) {
        if (!(job.special.special_exits[tile] & VARIES)) continue;
        uint32_t before = tile ? job.special.special_exits[tile - 1] : 0;
        if (!(before & VARIES)) follow_tables(job, tile, before);
    }
}

// Whether a special token counts in its row; notes the refusal of a row that refuses it. The library looks for tokens
// of the second round only in stretches in which the first round refused none.
template <uint32_t ROUND>
DEVICE bool counts_in_row(const Job& job, uint32_t place) {
    if (!job.rows.row_flags) return true;
    uint64_t row = row_of(job, place);
    uint32_t flags = job.rows.row_flags[row];
    if (!(flags & ROW_REFUSE_SPECIAL)) return flags & ROW_MATCH_SPECIAL;
    if (!ROUND || place < job.rows.row_stretch[row]) note_fault(job.rows.row_refused, row, place);
    return false;
}

DEVICE void set_bit(uint64_t* words, uint64_t place) {
    atomic_or(words + place / 64, 1ull << place % 64);
}

template <uint32_t ROUND>
DEVICE void accept_match(const Job& job, uint64_t tile_begin, uint32_t match) {
    uint64_t begin = tile_begin + place_of(match), end = tile_begin + end_of(match);
    if (!(match & ORDINARY) && !counts_in_row<ROUND>(job, begin)) return;
    set_bit(job.special.special, begin);
    set_bit(job.batch.hard, begin);
    if (end < job.batch.num_bytes) set_bit(job.batch.hard, end);
    job.special.special_counts[COUNT_ACCEPTED] = 1;
}

// Finds the candidates that count behind the bytes that the tile before covers: all from `entry` on where none overlap,
// else those that get ON_ORBIT. Returns whether any overlap.
DEVICE bool mark_orbit(OrbitShared& shared, uint32_t count, uint32_t covered) {
    if (threadIdx.x == 0) shared.entry = count;
    bool overlap = any_overlap(shared, count);
    for (uint32_t i = threadIdx.x; i < count; i += BLOCK) {
        bool is_first = i == 0 || place_of(shared.matches[i - 1]) < covered;
        if (is_first && place_of(shared.matches[i]) >= covered) shared.entry = i;
    }
    __syncthreads();
    if (!overlap) return false;
    if (threadIdx.x == 0 && shared.entry < count) shared.matches[shared.entry] |= ON_ORBIT;
    follow_orbits(shared, count);
    return true;
}

template <uint32_t ROUND>
DEVICE void accept_special_stage(const Job& job, OrbitShared& shared, uint32_t block,
                                 uint32_t num_blocks) {
    uint32_t tiles = job.special.special_counts[COUNT_FOUND + ROUND];
    for (uint32_t number = block; number < tiles; number += num_blocks) {
        uint32_t tile = static_cast<uint32_t>(job.special.special_list[number]);
        uint32_t count = job.special.special_list[number] >> LIST_COUNT_SHIFT;
        uint64_t tile_begin = static_cast<uint64_t>(tile) * TILE;
        for (uint32_t i = threadIdx.x; i < count; i += BLOCK)
            shared.matches[i] = job.special.special_matches[tile_begin + i];
        __syncthreads();
        uint32_t covered = tile ? job.special.special_exits[tile - 1] & 0xFF : 0;
        bool overlap = mark_orbit(shared, count, covered);
        for (uint32_t i = threadIdx.x; i < count; i += BLOCK) {
            uint32_t match = shared.matches[i];
            if (overlap ? match & ON_ORBIT : i >= shared.entry)
                accept_match<ROUND>(job, tile_begin, match);
        }
        __syncthreads();
    }
}

// Accepts each stretch from border to border that is a token of WHOLE_ROOT.
DEVICE void accept_whole_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    const uint32_t* text = reinterpret_cast<const uint32_t*>(job.batch.text);
    uint64_t words = (job.batch.num_bytes + 63) / 64, stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    for (uint64_t word = first; word < words; word += stride) {
        for (uint64_t bits = job.batch.hard[word]; bits; bits &= bits - 1) {
            uint64_t begin = word * 64 + lowest_bit(bits), rest = job.batch.num_bytes - begin;
            if (begins_special(job, begin)) continue;
            uint32_t limit = rest <= MAX_SPECIAL ? static_cast<uint32_t>(rest) : MAX_SPECIAL + 1;
            uint32_t length = border_behind(job, begin, limit);
            if (length > MAX_SPECIAL) continue;
            if (longest_special(job, WHOLE_ROOT, text, begin, length).length != length) continue;
            set_bit(job.special.special, begin);
            job.special.special_counts[COUNT_ACCEPTED] = 1;
        }
    }
}

// Clears start bits inside of accepted tokens, so that each token is one piece.
DEVICE void clear_special_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    if (!job.special.special_counts[COUNT_ACCEPTED]) return;
    uint64_t words = (job.batch.num_bytes + 63) / 64, stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    uint64_t first = static_cast<uint64_t>(block) * BLOCK + threadIdx.x;
    for (uint64_t word = first; word < words; word += stride) {
        for (uint64_t bits = job.special.special[word]; bits; bits &= bits - 1) {
            uint64_t begin = word * 64 + lowest_bit(bits), at = begin + 1;
            uint64_t end = begin + border_behind(job, begin, special_limit(job, begin));
            set_bit(job.text.starts, begin);
            for (; at < end; at = (at / 64 + 1) * 64) {
                uint64_t inside = ~0ull << at % 64;
                if (end < (at / 64 + 1) * 64) inside &= (1ull << end % 64) - 1;
                atomic_and(job.text.starts + at / 64, ~inside);
            }
        }
    }
}
