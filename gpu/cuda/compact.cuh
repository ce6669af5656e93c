// Puts the ids of all tiles one after another, and says where each row's begin.
//
// Three passes: a warp counts the ids of a tile, one block adds the counts up, a warp writes a tile's
// ids. Warps and not blocks: nothing waits for its neighbours, and sixty-four warps of a multiprocessor
// are in different places of their tiles.
#pragma once
#include "merge_stage.cuh"

constexpr uint32_t SCAN_BLOCK = 1024;
constexpr uint32_t WARPS = BLOCK / 32;

DEVICE uint32_t lane_of_thread() { return threadIdx.x & 31; }

// The sum of the values of this lane and all before it.
DEVICE uint32_t sum_of_lanes(uint32_t value) {
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(0xFFFFFFFF, value, distance);
        if (lane_of_thread() >= distance) value += other;
    }
    return value;
}

DEVICE uint32_t count_of(const Job& job, uint32_t record) {
    if (!(record & MISS)) return 1;
    return job.merged_counts[record >> BIN_SHIFT & 7][record & MISS_NUMBER];
}

// tile_counts: the ids of each tile's pieces; a lane reads four records at a time.
DEVICE void count_tiles_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t tiles = num_tiles(job), stride = num_blocks * WARPS;
    for (uint32_t tile = block * WARPS + threadIdx.x / 32; tile < tiles; tile += stride) {
        const uint32_t* records = job.records + static_cast<uint64_t>(tile) * TILE;
        uint32_t pieces = job.tile_pieces[tile], ids = 0;
        for (uint32_t number = 4 * lane_of_thread(); number < pieces; number += 128) {
            uint4 four = *reinterpret_cast<const uint4*>(records + number);
            ids += count_of(job, four.x);
            if (number + 1 < pieces) ids += count_of(job, four.y);
            if (number + 2 < pieces) ids += count_of(job, four.z);
            if (number + 3 < pieces) ids += count_of(job, four.w);
        }
        ids = __reduce_add_sync(0xFFFFFFFF, ids);
        if (lane_of_thread() == 0) job.tile_counts[tile] = ids;
    }
}

// group_offsets: the ids before every WARPS tiles, by one block of any number of warps.
DEVICE void sum_tiles_stage(const Job& job, uint32_t* scratch) {
    uint32_t tiles = num_tiles(job), groups = (tiles + WARPS - 1) / WARPS, warp = threadIdx.x >> 5;
    uint64_t before = 0;
    for (uint32_t first = 0; first < groups; first += blockDim.x) {
        uint32_t group = first + threadIdx.x, sum = 0;
        for (uint32_t tile = group * WARPS; tile < (group + 1) * WARPS && tile < tiles; tile += 4) {
            // tile_counts has room for whole groups.
            uint4 four = *reinterpret_cast<const uint4*>(job.tile_counts + tile);
            sum += four.x + (tile + 1 < tiles ? four.y : 0) + (tile + 2 < tiles ? four.z : 0) +
                   (tile + 3 < tiles ? four.w : 0);
        }
        uint32_t inclusive = sum_of_lanes(sum);
        if (lane_of_thread() == 31) scratch[warp] = inclusive;
        __syncthreads();
        uint32_t warps = sum_of_lanes(lane_of_thread() < blockDim.x / 32 ? scratch[lane_of_thread()] : 0);
        uint32_t others = __shfl_sync(0xFFFFFFFF, warps, (warp + 31) % 32);
        if (group < groups) job.group_offsets[group] = before + (warp ? others : 0) + inclusive - sum;
        before += __shfl_sync(0xFFFFFFFF, warps, 31);
        __syncthreads();
    }
    if (threadIdx.x == 0) job.status[STATUS_NUM_IDS] = before;
}

// The ids before a tile; the whole warp asks.
DEVICE uint64_t ids_before(const Job& job, uint32_t tile) {
    uint32_t group = tile / WARPS, other = group * WARPS + lane_of_thread();
    uint32_t sum = __reduce_add_sync(0xFFFFFFFF, other < tile ? job.tile_counts[other] : 0);
    return job.group_offsets[group] + sum;
}

// Where the merged ids of each bin lie, for all threads of a block.
struct CompactShared {
    uint64_t bin_begins[NUM_BINS];
};

// Copies the ids of the lanes' missed pieces, the whole warp together: with counts 2 0 3 the first
// five lanes copy, and each finds its piece by the running sums 2 2 5.
DEVICE void copy_merged(const Job& job, const CompactShared& shared, uint32_t record, uint32_t count,
                        int32_t* ids, uint32_t place) {
    uint32_t lane = lane_of_thread(), sums = sum_of_lanes(count);
    uint32_t total = __shfl_sync(0xFFFFFFFF, sums, 31);
    for (uint32_t first = 0; first < total; first += 32) {
        uint32_t wanted = first + lane, owner = 0;
        for (uint32_t step = 16; step; step /= 2)
            if (__shfl_sync(0xFFFFFFFF, sums, owner + step - 1) <= wanted) owner += step;
        owner &= 31;
        uint32_t ids_before = __shfl_sync(0xFFFFFFFF, sums, (owner + 31) & 31);
        uint32_t number = wanted - (owner ? ids_before : 0);
        uint32_t its_record = __shfl_sync(0xFFFFFFFF, record, owner);
        uint32_t its_place = __shfl_sync(0xFFFFFFFF, place, owner);
        if (wanted >= total) continue;
        uint32_t bin = its_record >> BIN_SHIFT & 7;
        uint64_t first_id = static_cast<uint64_t>(its_record & MISS_NUMBER) * longest_in_bin(bin);
        ids[its_place + number] = job.merged_ids[shared.bin_begins[bin] + first_id + number];
    }
}

// Writes the ids of one tile; a lane takes a record.
DEVICE void write_tile(const Job& job, const CompactShared& shared, uint32_t tile) {
    const uint32_t* records = job.records + static_cast<uint64_t>(tile) * TILE;
    uint32_t pieces = job.tile_pieces[tile], written = 0;
    int32_t* ids = job.ids + ids_before(job, tile);
    for (uint32_t first = 0; first < pieces; first += 32) {
        uint32_t number = first + lane_of_thread();
        bool here = number < pieces;
        uint32_t record = here ? records[number] : 0;
        bool miss = here && (record & MISS);
        if (!__any_sync(0xFFFFFFFF, miss)) {
            if (here) ids[written + lane_of_thread()] = record;
            written += min_of(32, pieces - first);
            continue;
        }
        uint32_t count = here ? count_of(job, record) : 0, sums = sum_of_lanes(count);
        uint32_t place = written + sums - count;
        if (here && !miss) ids[place] = record;
        copy_merged(job, shared, record, miss ? count : 0, ids, place);
        written += __shfl_sync(0xFFFFFFFF, sums, 31);
    }
}

DEVICE void compact_stage(const Job& job, CompactShared& shared, uint32_t block, uint32_t num_blocks) {
    if (threadIdx.x < NUM_BINS) shared.bin_begins[threadIdx.x] = merged_begin(job, threadIdx.x);
    __syncthreads();
    uint32_t tiles = num_tiles(job), stride = num_blocks * WARPS;
    for (uint32_t tile = block * WARPS + threadIdx.x / 32; tile < tiles; tile += stride)
        write_tile(job, shared, tile);
}

// The number of ids before each row: one warp a row adds up the records before it in its tile.
DEVICE void row_offsets_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t lane = lane_of_thread(), warps = num_blocks * WARPS;
    for (uint64_t row = block * WARPS + threadIdx.x / 32; row <= job.num_rows; row += warps) {
        uint64_t begin = job.row_begins[row], tile = begin / TILE, tile_begin = tile * TILE;
        uint32_t pieces = 0, ids = 0;
        for (uint64_t i = tile_begin / 64 + lane; i * 64 < begin; i += 32) {
            uint64_t bits = job.starts[i];
            if (i == begin / 64) bits &= (1ull << begin % 64) - 1;
            pieces += count_bits(bits);
        }
        pieces = __reduce_add_sync(0xFFFFFFFF, pieces);
        for (uint32_t i = lane; i < pieces; i += 32) ids += count_of(job, job.records[tile_begin + i]);
        ids = __reduce_add_sync(0xFFFFFFFF, ids);
        uint64_t before = tile < num_tiles(job) ? ids_before(job, tile) : job.status[STATUS_NUM_IDS];
        if (lane == 0) job.id_offsets[row] = before + ids;
    }
}
