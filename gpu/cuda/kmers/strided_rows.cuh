// Stages k-mers that are no neighbours, of rows of any length, in shared memory, four ids of a row at a time.
//
//     stage_fours         k-mers of known letters; a lane takes four of a row
//     stage_rests         the letters behind them; a lane takes a row
//     stage_one_by_one    both, where some letters are unknown; a lane takes an id
//
// Example, k = stride = 6, rows of 31 and 14 letters: five ids and one letter, two ids and two letters. Lane 0 takes
// the ids 0 to 3, lane 1 id 4, lane 2 the ids 6 and 7; then lane 0 takes id 5, lane 1 the ids 8 and 9.
#pragma once
#include "kmers/tile_rows.cuh"
#include "kmers/vectors.cuh"

namespace warptok::kmers {

constexpr uint32_t FOUR = 4;

// Stages up to four ids of a row, of k-mers from shared letter `at` on.
template <uint32_t STRIDE, class Id, class Tile>
DEVICE void stage_four(const FourLetters& four, const Tile& tile, uint32_t at, uint32_t id, uint32_t end, Id* staged) {
    uint32_t ids[FOUR];
    read_vector<uint32_t, STRIDE>(four, tile, at, ids);
#pragma unroll
    for (uint32_t i = 0; i < FOUR; i++)
        if (id + i < end) staged[id + i] = static_cast<Id>(ids[i]);
}

// Stages the k-mers among the ids begin <= id < end. The rows that have any are noted side by side, each with the
// number of fours before it. A mask of 32 fours, one for each lane, has a bit where a row begins, which gives the row
// of each.
template <uint32_t STRIDE, class Id, class Tile>
DEVICE void stage_fours(const FourLetters& four, Tile& tile, const TileRows& rows, uint32_t begin, uint32_t end,
                        Id* staged) {
    uint32_t lane = threadIdx.x & 31, own_end = 0, own_begin = 0;
    if (lane < rows.count)
        own_end = min_of(tile.rows[lane].inner_end, end), own_begin = max_of(tile.rows[lane].first, begin);
    uint32_t own = own_begin < own_end ? (own_end - own_begin + FOUR - 1) / FOUR : 0;
    uint32_t behind = sum_of_lanes(own), before = behind - own, total = __shfl_sync(ALL_LANES, behind, 31);
    uint32_t number = count_bits(__ballot_sync(ALL_LANES, own != 0) & ((1u << lane) - 1)), begun = 0;
    if (own) tile.parts[number] = {own_begin, own_end, tile.rows[lane].at, before};
    __syncwarp();
    for (uint32_t first = 0; first < total; first += 32) {
        bool begins_here = own && before - first < 32;
        uint32_t begins = __reduce_add_sync(ALL_LANES, begins_here ? 1u << (before - first) : 0);
        uint32_t part = begun + count_bits(begins & (ALL_LANES >> (31 - lane))) - 1;
        begun += count_bits(begins);
        if (first + lane >= total) continue;
        StridedPart own_part = tile.parts[part];
        uint32_t id = own_part.begin + FOUR * (first + lane - own_part.before);
        stage_four<STRIDE>(four, tile, own_part.at + id * four.stride, id, own_part.end, staged);
    }
    __syncwarp();
}

// The same as RowIds::at, for the letters behind a row's k-mers.
DEVICE uint32_t rest_at(const FourLetters& four, const RowIds& row) {
    uint32_t covered = row.inner_end > row.first ? four.k - four.stride : 0;
    return row.at + row.inner_end * four.stride + covered - row.inner_end;
}

// Stages the letters behind rows' k-mers among the ids begin <= id < end; a row has fewer than k of them.
template <class Id, class Tile>
DEVICE void stage_rests(const FourLetters& four, const Tile& tile, const TileRows& rows, uint32_t begin, uint32_t end,
                        Id* staged) {
    uint32_t lane = threadIdx.x & 31;
    if (lane >= rows.count) return;
    RowIds row = tile.rows[lane];
    uint32_t next = lane + 1 < rows.count ? tile.rows[lane + 1].first : rows.end_id;
    uint32_t id = max_of(row.inner_end, begin), last = min_of(next, end);
    uint32_t letters = id < last ? letters_from(tile, rest_at(four, row) + id) : 0;
    for (; id < last; id++, letters <<= 2) staged[id] = static_cast<Id>(tile.singles[letters >> 30]);
}

template <class Id, class Tile>
DEVICE void stage_one_by_one(const Job& job, const FourLetters& four, const Tile& tile, const TileRows& rows,
                             uint32_t begin, uint32_t end, Id* staged, uint32_t& seen) {
    uint32_t i = 0;
    for (uint32_t id = begin + (threadIdx.x & 31); id < end; id += 32) {
        while (i + 1 < rows.count && tile.rows[i + 1].first <= id) i++;
        RowIds row = tile.rows[i];
        bool is_kmer = id < row.inner_end;
        uint32_t at = is_kmer ? row.at + id * four.stride : rest_at(four, row) + id;
        if (is_kmer) staged[id] = static_cast<Id>(read_id(four, tile, MAY_BE_STRANGE, at));
        else if (!has_strange(tile, at, 1)) staged[id] = static_cast<Id>(tile.singles[letters_from(tile, at) >> 30]);
        else
            staged[id] =
                static_cast<Id>(plain_id(job, job.kmers.letter_table, tile_row(tile, rows, i), id - row.first, seen));
    }
}

// Stages the ids begin <= id < end of rows whose letters are all known.
template <class Id, class Tile>
DEVICE void stage_known(const Job& job, const FourLetters& four, Tile& tile, const TileRows& rows, uint32_t begin,
                        uint32_t end, Id* staged) {
    if (four.stride == BY_SIX) stage_fours<BY_SIX>(four, tile, rows, begin, end, staged);
    else stage_fours<ANY_STRIDE>(four, tile, rows, begin, end, staged);
    if (job.kmers.keeps_remainder) stage_rests(four, tile, rows, begin, end, staged);
}

// Calls stage(begin, end, staged) for the ids begin <= id < end behind those that are staged, as many at a time as
// there is room for. What has no room is stored first.
template <class Id, class Tile, class Stage>
DEVICE void stage_in_parts(const Job& job, Tile& tile, uint32_t begin, uint32_t end, StagedIds& staged, Stage stage) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    for (uint32_t id = begin; id < end; id = staged.end) {
        bool is_empty = staged.first == staged.end, is_full = id - staged.first / ITEMS * ITEMS >= Tile::MOST_IDS;
        if (!is_empty && is_full) {
            staged.store(tile.ids, ids_out<Id>(job));
            wait_for_stores();
        }
        if (is_empty || is_full) staged.first = id;
        uint32_t base = staged.first / ITEMS * ITEMS;
        staged.end = min_of(end, base + Tile::MOST_IDS);
        stage(id, staged.end, tile.ids - base);
    }
}

}  // namespace warptok::kmers
