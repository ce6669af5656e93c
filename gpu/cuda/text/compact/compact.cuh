// Writes the ids of all tiles one after another, and where those of each row begin.
//
// There are three passes: a warp counts the ids of a tile, unless earlier stages have (text/lookup/tile_counts.cuh);
// one block adds the counts up; a warp writes the ids of a tile. Each tile has a warp and not a block, so that no warp
// waits for another one.
//
//     records of a tile   a    b    miss of three ids c d e
//     tile_counts         1  + 1  + 3 = 5
//     ids                 a    b    c  d  e                       behind the ids of all tiles in front
//
// Invariant: the ids before a unit are those of all units in front of it, so that units are written in any order.
#pragma once
#include "text/merge/merge_bins.cuh"

namespace warptok::text {

constexpr uint32_t SCAN_BLOCK = 1024;
constexpr uint32_t WARPS = BLOCK / 32;

DEVICE uint32_t count_of(const Job& job, uint32_t record) {
    if (!(record & MISS)) return 1;
    if (is_small(record)) return small_count(record);
    return job.text.merged_counts[record >> BIN_SHIFT & 7][record & MISS_NUMBER];
}

// The records of a unit, which is a tile or, in small batches, a part of one. A warp handles a unit.
struct Records {
    uint32_t tile, first, end;             // Records first <= i < end of the tile.
};

template <uint32_t PARTS> DEVICE Records records_of(const Job& job, uint32_t unit) {
    uint32_t pieces = job.text.tile_pieces[unit / PARTS], size = size_of_part<PARTS>(pieces);
    uint32_t first = min_of(unit % PARTS * size, pieces);
    return {unit / PARTS, first, min_of(first + size, pieces)};
}

// Writes tile_counts, the ids of each unit's pieces; a lane reads four records at a time.
template <uint32_t PARTS>
DEVICE void count_tiles_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t units = num_tiles(job) * PARTS, stride = num_blocks * WARPS;
    for (uint32_t unit = block * WARPS + threadIdx.x / 32; unit < units; unit += stride) {
        Records own = records_of<PARTS>(job, unit);
        const uint32_t* records = job.text.records + static_cast<uint64_t>(own.tile) * TILE;
        uint32_t ids = 0;
        for (uint32_t number = own.first + 4 * lane_of_thread(); number < own.end; number += 128) {
            uint4 four = *reinterpret_cast<const uint4*>(records + number);
            ids += count_of(job, four.x);
            if (number + 1 < own.end) ids += count_of(job, four.y);
            if (number + 2 < own.end) ids += count_of(job, four.z);
            if (number + 3 < own.end) ids += count_of(job, four.w);
        }
        ids = __reduce_add_sync(ALL_LANES, ids);
        if (lane_of_thread() == 0) job.text.tile_counts[unit] = ids;
    }
}

DEVICE void count_all_tiles(const Job& job, uint32_t block, uint32_t num_blocks) {
    if (is_small_batch(job)) count_tiles_stage<SMALL_PARTS>(job, block, num_blocks);
    else count_tiles_stage<ONE_PART>(job, block, num_blocks);
}

// Writes the ids before every WARPS units, by one block of any number of warps; returns the ids of all units.
template <uint32_t PARTS, class Count>
DEVICE uint64_t sum_groups(const Job& job, uint32_t* scratch, Count* group_offsets) {
    uint32_t units = num_tiles(job) * PARTS, groups = (units + WARPS - 1) / WARPS, warp = threadIdx.x >> 5;
    uint64_t before = 0;
    for (uint32_t first = 0; first < groups; first += blockDim.x) {
        uint32_t group = first + threadIdx.x, sum = 0;
        for (uint32_t unit = group * WARPS; unit < (group + 1) * WARPS && unit < units; unit += 4) {
            // tile_counts has room for whole groups.
            uint4 four = *reinterpret_cast<const uint4*>(job.text.tile_counts + unit);
            sum += four.x + (unit + 1 < units ? four.y : 0) + (unit + 2 < units ? four.z : 0) +
                   (unit + 3 < units ? four.w : 0);
        }
        uint32_t inclusive = sum_of_lanes(sum);
        if (lane_of_thread() == 31) scratch[warp] = inclusive;
        __syncthreads();
        uint32_t warps = sum_of_lanes(lane_of_thread() < blockDim.x / 32 ? scratch[lane_of_thread()] : 0);
        uint32_t others = __shfl_sync(ALL_LANES, warps, (warp + 31) % 32);
        if (group < groups) group_offsets[group] = before + (warp ? others : 0) + inclusive - sum;
        before += __shfl_sync(ALL_LANES, warps, 31);
        __syncthreads();
    }
    return before;
}

DEVICE void sum_tiles_stage(const Job& job, uint32_t* scratch) {
    uint64_t num_ids = is_small_batch(job) ? sum_groups<SMALL_PARTS>(job, scratch, job.text.group_offsets)
                                          : sum_groups<ONE_PART>(job, scratch, job.text.group_offsets);
    if (threadIdx.x == 0) job.answer.status[STATUS_NUM_IDS] = num_ids;
}

// The result of sum_groups: in device memory, or in shared memory, where each block has its own.
template <class Count> struct GroupSums {
    const Count* before;                   // The ids before every WARPS units.
    uint64_t num_ids;                      // The ids of all units.
};

DEVICE GroupSums<uint64_t> sums_of(const Job& job) {
    return {job.text.group_offsets, job.answer.status[STATUS_NUM_IDS]};
}

// The ids of one of the units in front of a unit in its group: lane i has unit i of the group.
DEVICE uint32_t ids_of_lane(const Job& job, uint32_t unit) {
    uint32_t other = unit / WARPS * WARPS + lane_of_thread();
    return other < unit ? job.text.tile_counts[other] : 0;
}

// The ids before a unit; `of_lane` is what ids_of_lane gives each lane.
template <class Count> DEVICE uint64_t ids_before(const Count* group_offsets, uint32_t unit, uint32_t of_lane) {
    return group_offsets[unit / WARPS] + __reduce_add_sync(ALL_LANES, of_lane);
}

// The ids before a unit; the whole warp calls it.
template <class Count> DEVICE uint64_t ids_before(const Job& job, const Count* group_offsets, uint32_t unit) {
    return ids_before(group_offsets, unit, ids_of_lane(job, unit));
}

// The id of symbol `number` of a missed piece.
DEVICE uint32_t merged_id(const Job& job, const BinBegins& begins, uint32_t record, uint32_t number) {
    if (is_small(record)) return small_id(job, record, number);
    uint32_t bin = record >> BIN_SHIFT & 7;
    uint64_t first = static_cast<uint64_t>(record & MISS_NUMBER) * longest_in_bin(bin);
    return job.text.merged_ids[begins.merged[bin] + first + number];
}

// Copies the ids of the lanes' missed pieces, the whole warp together: with counts 2 0 3 the first five lanes copy an
// id each, and find its piece by the running sums 2 2 5.
template <class Id>
DEVICE void copy_merged(const Job& job, const BinBegins& begins, uint32_t record, uint32_t count, Id* ids,
                        uint32_t place) {
    uint32_t lane = lane_of_thread(), sums = sum_of_lanes(count);
    uint32_t total = __shfl_sync(ALL_LANES, sums, 31);
    for (uint32_t first = 0; first < total; first += 32) {
        uint32_t item = first + lane, owner = 0;
        for (uint32_t step = 16; step; step /= 2)  // The first lane whose sum is above `item`, as lane_of_item.
            if (__shfl_sync(ALL_LANES, sums, owner + step - 1) <= item) owner += step;
        owner &= 31;
        uint32_t ids_before = __shfl_sync(ALL_LANES, sums, (owner + 31) & 31);
        uint32_t number = item - (owner ? ids_before : 0);
        uint32_t its_record = __shfl_sync(ALL_LANES, record, owner);
        uint32_t to = __shfl_sync(ALL_LANES, place, owner) + number;
        if (item < total) ids[to] = static_cast<Id>(merged_id(job, begins, its_record, number));
    }
}

// Writes the ids of one unit; a lane has a record at a time.
template <class Id>
DEVICE void write_unit(const Job& job, const BinBegins& begins, const Records& own, Id* ids) {
    const uint32_t* records = job.text.records + static_cast<uint64_t>(own.tile) * TILE;
    uint32_t number = own.first + lane_of_thread(), written = 0;
    uint32_t record = number < own.end ? records[number] : 0;
    uint32_t next = number + 32 < own.end ? records[number + 32] : 0, count = count_of(job, record);
    for (uint32_t left = own.end - own.first; left; left -= min_of(32, left), number += 32) {
        // Records are loaded two steps ahead and their counts one step ahead, so that no step waits for a load.
        uint32_t after = number + 64 < own.end ? records[number + 64] : 0, next_count = count_of(job, next);
        bool here = number < own.end, miss = record & MISS;
        if (!__any_sync(ALL_LANES, miss)) {
            if (here) ids[written + lane_of_thread()] = static_cast<Id>(record);
            written += min_of(32, left);
        } else {
            uint32_t sums = sum_of_lanes(here ? count : 0), place = written + sums - count;
            uint32_t total = __shfl_sync(ALL_LANES, sums, 31);
            if (here && !miss) ids[place] = static_cast<Id>(record);
            copy_merged(job, begins, record, miss ? count : 0, ids, place);
            written += total;
        }
        record = next;
        count = next_count;
        next = after;
    }
}

// Writes the ids of all units, one behind the other.
template <uint32_t PARTS, class Count, class Id>
DEVICE void write_units(const Job& job, const BinBegins& begins, const Count* group_offsets, Id* ids, uint32_t block,
                        uint32_t num_blocks) {
    uint32_t units = num_tiles(job) * PARTS, stride = num_blocks * WARPS;
    for (uint32_t unit = block * WARPS + threadIdx.x / 32; unit < units; unit += stride)
        write_unit(job, begins, records_of<PARTS>(job, unit), ids + ids_before(job, group_offsets, unit));
}

// Writes the ids of a batch, one behind the other.
template <class Id>
DEVICE void compact_stage(const Job& job, Id* ids, BinBegins& begins, uint32_t block, uint32_t num_blocks) {
    find_begins<SeparateLaunches>(job, begins);
    if (is_small_batch(job)) write_units<SMALL_PARTS>(job, begins, job.text.group_offsets, ids, block, num_blocks);
    else write_units<ONE_PART>(job, begins, job.text.group_offsets, ids, block, num_blocks);
}

// Writes the number of ids before each row: those before its unit, and those of the pieces in front of it in its unit.
// A warp has neighbouring rows, and continues counting from row to row of a tile.
//
//     unit          |  piece piece piece piece . . .    a unit of a tile, whose first piece is number `before`
//     ids of each   |    1     3     1     2
//     row begins                     ^                  two pieces are before it: 4 ids behind the unit's first one
//
// `counted` is the byte up to which the tile's pieces are counted (`pieces`), and `ids` those of the pieces from the
// part's first one up to there. They begin anew with a tile, and `ids` with a part.
template <uint32_t PARTS, class Count>
DEVICE void row_offsets_stage(const Job& job, const GroupSums<Count>& sums, int64_t* offsets, uint32_t block,
                              uint32_t num_blocks) {
    uint32_t lane = lane_of_thread(), warps = num_blocks * WARPS, part = 0, pieces = 0, ids = 0;
    uint64_t rows = job.batch.num_rows + 1, of_warp = (rows + warps - 1) / warps;
    // The last warps do this first, because the first ones write ids if there are few units.
    uint32_t warp = warps - 1 - (block * WARPS + threadIdx.x / 32);
    uint64_t first = warp * of_warp, counted = 0;
    for (uint64_t row = first; row < first + of_warp && row < rows; row++) {
        uint64_t begin = job.rows.row_begins[row], tile = begin / TILE, tile_begin = tile * TILE;
        if (tile >= num_tiles(job)) {
            if (lane == 0) offsets[row] = sums.num_ids;
            continue;
        }
        if (row == first || counted < tile_begin) counted = tile_begin, part = pieces = ids = 0;
        uint32_t all_pieces = job.text.tile_pieces[tile];  // Loaded before it is needed, as is of_lane.
        uint32_t more_pieces = 0, more_ids = 0, before = pieces;
        // Pieces between the last row's begin and this one's.
        for (uint64_t i = counted / 64 + lane; i * 64 < begin; i += 32) {
            uint64_t bits = job.text.starts[i];
            if (i == counted / 64) bits &= ~0ull << counted % 64;
            if (i == begin / 64) bits &= (1ull << begin % 64) - 1;
            more_pieces += count_bits(bits);
        }
        counted = begin;
        pieces += __reduce_add_sync(ALL_LANES, more_pieces);
        // The part that the next piece is in, and the ids from its first piece, or the last row's, up to that one.
        uint32_t size = size_of_part<PARTS>(all_pieces), own = min_of(pieces / size, PARTS - 1);
        if (own != part) part = own, before = part * size, ids = 0;
        uint32_t unit = static_cast<uint32_t>(tile) * PARTS + part, of_lane = ids_of_lane(job, unit);
        for (uint32_t i = before + lane; i < pieces; i += 32)
            more_ids += count_of(job, job.text.records[tile_begin + i]);
        ids += __reduce_add_sync(ALL_LANES, more_ids);
        uint64_t before_unit = ids_before(sums.before, unit, of_lane);
        if (lane == 0) offsets[row] = before_unit + ids;
    }
}

}  // namespace warptok::text
