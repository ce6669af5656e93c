// Tiles of up to 32 runs, as most are: a lane a run, whose k-mers are those of a row (kmers/strided_rows.cuh).
//
// Example, k = 3, ids from 0 on, ACGTNACGTACC: the runs 0, 4 and 5 have the first ids 0, 2 and 3. Of the first one ACG is
// a k-mer and T a letter alone, of the third one ACG, TAC and C.
#pragma once
#include "kmers/runs/block_sums.cuh"
#include "kmers/strided_rows.cuh"

// Finds where the runs of a tile begin, but for the first one, which may begin before it, and the first break behind the
// tile; how many runs there are, 0 if they are more than there are lanes.
DEVICE uint32_t find_few_runs(RunTile& tile, uint32_t begin) {
    constexpr uint32_t EACH = KMER_TILE / 32 / 32;  // Words of a lane.
    uint32_t lane = threadIdx.x & 31, own = 0, end = NO_BREAK;
    if (lane == 0 && !tile.any_breaks) tile.runs[1] = NO_BREAK;
    if (!tile.any_breaks) return 1;
    for (uint32_t i = 0; i < EACH; i++) own += count_bits(tile.breaks[EACH * lane + i]);
    uint32_t behind = sum_of_lanes(own), count = 1 + __shfl_sync(ALL_LANES, behind, 31), at = 1 + behind - own;
    if (count > KMER_ROWS) return 0;
    for (uint32_t word = EACH * lane; word < EACH * lane + EACH; word++)
        for (uint32_t rest = tile.breaks[word]; rest; rest &= rest - 1) tile.runs[at++] = begin + 32 * word + lowest_bit(rest);
    for (uint32_t word = KMER_TILE / 32; word < SPAN_WORDS && end == NO_BREAK; word++)
        if (tile.breaks[word]) end = begin + 32 * word + lowest_bit(tile.breaks[word]);
    if (lane == 0) tile.runs[count] = end;
    __syncwarp();
    return count;
}

// The part that a tile of `count` runs is.
DEVICE RunPart part_of_few_runs(const Job& job, const FourLetters& four, const RunTile& tile, uint32_t begin, uint32_t count) {
    if (count == 1) return {NO_BREAK, 0, 0, BASE};
    uint32_t lane = threadIdx.x & 31, ids = 0;
    if (lane > 0 && lane + 1 < count) {
        uint32_t own = tile.runs[lane], length = tile.runs[lane + 1] - own;
        ids = ids_of_run_here(job, four, job.letter_table, tile, begin, own, length);
    }
    uint32_t last = tile.runs[count - 1], last_class = class_of_run(four, job.letter_table, tile, begin, last);
    return {tile.runs[1], last, __reduce_add_sync(ALL_LANES, ids), last_class};
}

// Where the ids of the rows begin that begin in a tile, from `row` on: each with one of the runs.
DEVICE void place_rows_of_runs(const Job& job, const RunTile& tile, uint32_t begin, uint64_t row, uint32_t count) {
    uint64_t end = begin + static_cast<uint64_t>(KMER_TILE);
    RowFaults faults(job);
    for (row += threadIdx.x & 31; row <= job.num_rows; row += 32) {
        uint64_t place = job.row_begins[row];
        if (place >= end) return;
        uint32_t low = 0, high = count - 1;
        while (low < high) {
            uint32_t middle = (low + high + 1) / 2;
            if (tile.runs[middle] <= place) low = middle;
            else high = middle - 1;
        }
        job.id_offsets[row] = tile.rows[low].first;
        if (row < job.num_rows) faults.look_at(row);
    }
}

// Notes the ids of the runs, a lane a run, of the last one as if it went on; which of them belong to the tile.
DEVICE TileRows take_runs(const Job& job, const FourLetters& four, RunTile& tile, uint32_t begin, const RunPart& before,
                          uint32_t count) {
    const uint32_t *table = job.letter_table, lane = threadIdx.x & 31, number = min_of(lane, count - 1);
    if (lane == 0) tile.runs[0] = before.last;
    __syncwarp();
    uint32_t own = tile.runs[number], end = tile.runs[number + 1], inside = min_of(end, min_of(begin + KMER_TILE, four.num_bytes));
    uint32_t own_class = number ? class_of_run(four, table, tile, begin, own) : before.last_class;
    uint32_t ids = lane < count ? ids_of_run(job, four, own_class, own, end, inside - own) : 0;
    uint32_t behind = sum_of_lanes(ids), first = before.ids + behind - ids;
    bool has_kmers = ids && own_class == BASE;
    uint32_t kmers = has_kmers ? kmers_of(four, end - own) : 0, shared_from = begin - AROUND;
    if (lane < count) tile.rows[lane] = {first, first, first + kmers, own - first * four.stride - shared_from};
    __syncwarp();
    uint32_t run = before.last, ids_before = ids_of_run(job, four, before.last_class, run, tile.runs[1], begin - run);
    uint32_t total = __shfl_sync(ALL_LANES, behind, 31);
    return {0, count, 0, before.ids + ids_before, before.ids + total, shared_from, false};
}

// The ids begin <= id < end of a run's k-mers, six letters apart: sixteen bytes a lane. Behind the last one others may be
// written, for which there is room.
template <class Id, class Tile>
DEVICE void stage_one_run(const FourLetters& four, const Tile& tile, const RowIds& run, uint32_t begin, uint32_t end, Id* staged) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t lane = threadIdx.x & 31, vectors = (begin + ITEMS - 1) / ITEMS * ITEMS, head = begin + lane;
    if (head < min_of(vectors, end)) staged[head] = static_cast<Id>(read_id(four, tile, false, run.at + head * BY_SIX));
    for (uint32_t id = vectors + lane * ITEMS; id < end; id += 32 * ITEMS)
        write_vector<Id, BY_SIX, true>(four, tile, false, run.at + id * BY_SIX, staged + id);
}

// The ids begin <= id < end of a tile's runs.
template <class Id, class Tile>
DEVICE void stage_runs(const Job& job, const FourLetters& four, Tile& tile, const TileRows& rows, uint32_t begin, uint32_t end,
                       Id* staged) {
    uint32_t lane = threadIdx.x & 31;
    if (sizeof(Id) > 1 && rows.count == 1 && four.stride == BY_SIX && end <= tile.rows[0].inner_end)
        return stage_one_run<Id>(four, tile, tile.rows[0], begin, end, staged);
    stage_known(job, four, tile, rows, begin, end, staged);
    if (lane >= rows.count || tile.rows[lane].first < begin || tile.rows[lane].first >= end) return;
    // Runs of other letters have one id, or none. The first one, which begins before the tile, has its own there.
    bool is_one = tile.rows[lane].first < (lane + 1 < rows.count ? tile.rows[lane + 1].first : rows.end_id);
    if (!is_one || lane == 0 || is_base(tile, tile.runs[lane] - (rows.shared_from + AROUND))) return;
    staged[tile.rows[lane].first] = static_cast<Id>(job.letter_ids[four.text[tile.runs[lane]]]);
}

template <class Id>
DEVICE void write_few_runs(const Job& job, const FourLetters& four, RunIdsTile<Id>& tile, uint32_t begin, uint64_t row,
                           const RunPart& before, uint32_t count) {
    TileRows rows = take_runs(job, four, tile, begin, before, count);
    if (tile.any_breaks) place_rows_of_runs(job, tile, begin, row, count);
    StagedIds staged = {0, 0};
    stage_in_parts<Id>(job, tile, rows.begin_id, rows.end_id, staged, [&](uint32_t first, uint32_t end, Id* to) {
        stage_runs(job, four, tile, rows, first, end, to);
    });
    __syncwarp();
    staged.store(tile.ids, ids_out<Id>(job));
}
