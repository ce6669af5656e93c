// Puts the ids of all tiles one after another, and says where each row's begin.
#pragma once
#include "look_up.cuh"

constexpr uint32_t SCAN_BLOCK = 1024;

// tile_offsets from tile_counts, by one block of SCAN_BLOCK threads; a thread takes eight tiles.
DEVICE void sum_tiles_stage(const Job& job, uint64_t* scratch) {
    constexpr uint32_t EACH = 8;
    uint32_t tiles = num_tiles(job), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint64_t before = 0;
    for (uint32_t first = 0; first < tiles; first += EACH * SCAN_BLOCK) {
        uint32_t tile = first + EACH * threadIdx.x, counts[EACH], value = 0;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            counts[i] = tile + i < tiles ? job.tile_counts[tile + i] : 0;
            value += counts[i];
        }
        uint64_t inclusive = value;
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint64_t other = __shfl_up_sync(0xFFFFFFFF, inclusive, distance);
            if (lane >= distance) inclusive += other;
        }
        if (lane == 31) scratch[warp] = inclusive;
        __syncthreads();
        uint64_t sum = scratch[lane];
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint64_t other = __shfl_up_sync(0xFFFFFFFF, sum, distance);
            if (lane >= distance) sum += other;
        }
        uint64_t others = __shfl_sync(0xFFFFFFFF, sum, (warp + 31) % 32);
        uint64_t offset = before + (warp ? others : 0) + inclusive - value;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            if (tile + i < tiles) job.tile_offsets[tile + i] = offset;
            offset += counts[i];
        }
        before += __shfl_sync(0xFFFFFFFF, sum, 31);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        job.tile_offsets[tiles] = before;
        job.status[STATUS_NUM_IDS] = before;
    }
}

DEVICE uint32_t count_of(uint32_t record) {
    return record & MISS ? record >> PLACE_BITS & 0x7FFFF : 1;
}

struct CompactShared {
    uint32_t scratch[BLOCK / 32 + 1];
};

// Writes the ids of one record.
DEVICE void write_ids(const Job& job, uint32_t record, uint64_t tile_begin, int32_t* to) {
    if (!(record & MISS)) {
        *to = record;
        return;
    }
    const uint32_t* from = job.merged_ids + tile_begin + (record & (TILE - 1));
    for (uint32_t i = 0, ids = count_of(record); i < ids; i++) to[i] = from[i];
}

// A thread takes four records at a time.
DEVICE void compact_stage(const Job& job, CompactShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t tiles = num_tiles(job);
    for (uint32_t tile = block; tile < tiles; tile += num_blocks) {
        uint64_t tile_begin = static_cast<uint64_t>(tile) * TILE, place = job.tile_offsets[tile];
        uint32_t count = job.tile_pieces[tile];
        for (uint32_t first = 0; first < count; first += 4 * BLOCK) {
            uint32_t number = first + 4 * threadIdx.x, ids = 0, total;
            uint4 four = {0, 0, 0, 0};
            if (number < count)
                four = *reinterpret_cast<const uint4*>(job.records + tile_begin + number);
            uint32_t records[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                if (number + i < count) ids += count_of(records[i]);
            int32_t* to = job.ids + place + sum_before(ids, shared.scratch, total);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                if (number + i >= count) break;
                write_ids(job, records[i], tile_begin, to);
                to += count_of(records[i]);
            }
            place += total;
        }
    }
}

// The number of ids before each row: one warp a row adds up the records before it in its tile.
DEVICE void row_offsets_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32);
    for (uint64_t row = block * (BLOCK / 32) + threadIdx.x / 32; row <= job.num_rows; row += warps) {
        uint64_t begin = job.row_begins[row], tile_begin = begin / TILE * TILE, word = tile_begin / 64;
        uint32_t pieces = 0, ids = 0;
        for (uint64_t i = word + lane; i * 64 < begin; i += 32) {
            uint64_t bits = job.starts[i];
            if (i == begin / 64) bits &= (1ull << begin % 64) - 1;
            pieces += count_bits(bits);
        }
        pieces = __reduce_add_sync(0xFFFFFFFF, pieces);
        for (uint32_t i = lane; i < pieces; i += 32) ids += count_of(job.records[tile_begin + i]);
        ids = __reduce_add_sync(0xFFFFFFFF, ids);
        if (lane == 0) job.id_offsets[row] = job.tile_offsets[tile_begin / TILE] + ids;
    }
}
