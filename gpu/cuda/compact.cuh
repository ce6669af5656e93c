// Puts the ids of all tiles one after another, and says where each row's begin.
//
// One pass: a block takes the next tile, adds up its ids, publishes the sum, finds the sum of all
// tiles before it (decoupled look-back), and writes. A tile is taken only when all before it are, so
// waiting for them ends.
#pragma once
#include "merge_stage.cuh"

constexpr uint64_t IS_SUM = 1ull << 62;    // tile_offsets holds the ids of one tile ...
constexpr uint64_t IS_TOTAL = 1ull << 63;  // ... or of all tiles up to it, in the lower bits.
constexpr uint64_t OFFSET = IS_SUM - 1;

struct CompactShared {
    uint32_t scratch[BLOCK / 32 + 1];
    uint32_t tile;
    uint64_t before, bin_begins[NUM_BINS];
    uint32_t bin_counts[NUM_BINS], num_misses;
    uint32_t misses[4 * BLOCK];      // Records of missed pieces,
    uint32_t miss_places[4 * BLOCK];  // and place in `ids` | count << 16 of each.
    uint32_t ids[TILE + MAX_PIECE];  // The last piece may end behind the tile.
};

DEVICE uint32_t count_of(const Job& job, uint32_t record) {
    if (!(record & MISS)) return 1;
    return job.merged_counts[record >> BIN_SHIFT & 7][record & MISS_NUMBER];
}

// Copies the ids of 32 missed pieces, a lane each, the whole warp together: with counts 2 0 3 the
// first five lanes copy, and each finds its piece by the running sums 2 2 5.
DEVICE void copy_merged(const Job& job, CompactShared& shared, uint32_t miss) {
    bool here = miss < shared.num_misses;
    uint32_t record = here ? shared.misses[miss] : 0, place = here ? shared.miss_places[miss] : 0;
    uint32_t lane = threadIdx.x & 31, sums = place >> 16;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(0xFFFFFFFF, sums, distance);
        if (lane >= distance) sums += other;
    }
    uint32_t total = __shfl_sync(0xFFFFFFFF, sums, 31);
    for (uint32_t first = 0; first < total; first += 32) {
        uint32_t wanted = first + lane, owner = 0;
        for (uint32_t step = 16; step; step /= 2)
            if (__shfl_sync(0xFFFFFFFF, sums, owner + step - 1) <= wanted) owner += step;
        owner &= 31;
        uint32_t ids_before = __shfl_sync(0xFFFFFFFF, sums, (owner + 31) & 31);
        uint32_t number = wanted - (owner ? ids_before : 0);
        uint32_t its_record = __shfl_sync(0xFFFFFFFF, record, owner);
        uint32_t its_place = __shfl_sync(0xFFFFFFFF, place, owner) & 0xFFFF;
        if (wanted >= total) continue;
        uint32_t bin = its_record >> BIN_SHIFT & 7;
        const uint32_t* from = job.merged_ids + shared.bin_begins[bin] + (its_record & MISS_NUMBER);
        shared.ids[its_place + number] = from[static_cast<uint64_t>(number) * shared.bin_counts[bin]];
    }
}

// The ids of all tiles before one: a warp adds up what the tiles before it have published.
DEVICE uint64_t ids_before(const Job& job, uint32_t tile) {
    uint32_t lane = threadIdx.x & 31;
    uint64_t before = 0;
    for (int64_t last = static_cast<int64_t>(tile) - 1; last >= 0; last -= 32) {
        int64_t mine = last - lane;
        uint64_t word = mine < 0 ? IS_TOTAL : 0;
        while (!word) word = load_volatile(job.tile_offsets + mine);
        __syncwarp();
        uint32_t totals = __ballot_sync(0xFFFFFFFF, (word & IS_TOTAL) != 0);
        bool counts = !totals || lane <= lowest_bit(totals);
        uint64_t sum = counts ? word & OFFSET : 0;
        for (uint32_t distance = 16; distance; distance /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFF, sum, distance);
        before += sum;
        if (totals) break;
    }
    return before;
}

// Ids of up to 4 * BLOCK records of a tile (four a thread), put into shared memory from `written` on.
DEVICE uint32_t gather_ids(const Job& job, CompactShared& shared, uint64_t tile_begin, uint32_t first,
                           uint32_t count, uint32_t written) {
    uint32_t number = first + 4 * threadIdx.x, ids[4] = {0, 0, 0, 0}, total;
    uint4 four = {0, 0, 0, 0};
    if (number < count) four = *reinterpret_cast<const uint4*>(job.records + tile_begin + number);
    uint32_t records[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (number + i < count) ids[i] = count_of(job, records[i]);
    if (threadIdx.x == 0) shared.num_misses = 0;
    uint32_t to = written + sum_before(ids[0] + ids[1] + ids[2] + ids[3], shared.scratch, total);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (ids[i] && !(records[i] & MISS)) shared.ids[to] = records[i];
        if (ids[i] && (records[i] & MISS)) {
            uint32_t miss = atomicAdd(&shared.num_misses, 1u);
            shared.misses[miss] = records[i];
            shared.miss_places[miss] = to | ids[i] << 16;
        }
        to += ids[i];
    }
    __syncthreads();
    uint32_t lane = threadIdx.x & 31;
    for (uint32_t miss = threadIdx.x - lane; miss < shared.num_misses; miss += BLOCK)
        copy_merged(job, shared, miss + lane);
    __syncthreads();
    return total;
}

DEVICE void compact_stage(const Job& job, CompactShared& shared) {
    uint32_t tiles = num_tiles(job);
    if (threadIdx.x < NUM_BINS) {
        shared.bin_begins[threadIdx.x] = merged_begin(job, threadIdx.x);
        shared.bin_counts[threadIdx.x] = job.miss_counts[threadIdx.x];
    }
    for (;;) {
        if (threadIdx.x == 0) shared.tile = atomicAdd(job.next_tile, 1u);
        __syncthreads();
        uint32_t tile = shared.tile, written = 0;
        if (tile >= tiles) return;
        uint64_t tile_begin = static_cast<uint64_t>(tile) * TILE;
        uint32_t count = job.tile_pieces[tile];
        for (uint32_t first = 0; first < count; first += 4 * BLOCK)
            written += gather_ids(job, shared, tile_begin, first, count, written);
        if (threadIdx.x == 0) store_volatile(job.tile_offsets + tile, IS_SUM | written);
        if (threadIdx.x < 32) {
            uint64_t before = ids_before(job, tile);
            if (threadIdx.x == 0) {
                shared.before = before;
                store_volatile(job.tile_offsets + tile, IS_TOTAL | (before + written));
                if (tile + 1 == tiles) job.status[STATUS_NUM_IDS] = before + written;
            }
        }
        __syncthreads();
        int32_t* to = job.ids + shared.before;
        for (uint32_t i = threadIdx.x; i < written; i += BLOCK) to[i] = shared.ids[i];
        __syncthreads();
    }
}

// The number of ids before each row: one warp a row adds up the records before it in its tile.
DEVICE void row_offsets_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32);
    for (uint64_t row = block * (BLOCK / 32) + threadIdx.x / 32; row <= job.num_rows; row += warps) {
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
        if (lane == 0) job.id_offsets[row] = (tile ? job.tile_offsets[tile - 1] & OFFSET : 0) + ids;
    }
}
