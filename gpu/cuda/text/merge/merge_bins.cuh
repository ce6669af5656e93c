// Merges the missed pieces of all bins in one launch.
//
// The lists are divided into chunks of as many pieces as a warp merges at once, the longest pieces first. A warp draws
// tickets, which are numbers of chunks of all lists:
//
//     bin      7 (4 pieces a chunk)   6 (8)   5 ...
//     chunks   0 1 2                  3 4     5 6 7 ...
//
// Neighbours in a list have about equal lengths, so that the pieces of a chunk end together.
//
// Invariant: after the launch each listed piece has its ids in merged_ids, from where its bin and number say, and how
// many these are in merged_counts.
#pragma once
#include "text/lookup/lookup.cuh"
#include "text/merge/merge_piece.cuh"

namespace warptok::text {

// The most ids of a piece in a bin.
DEVICE uint32_t longest_in_bin(uint32_t bin) {
    return bin < 4 ? 4 * bin + 4 : bin < 6 ? 8 * bin - 8 : 64 << (bin - 6);
}

// The binary logarithm of the lanes for a piece of a bin, which suffice for its longest one. A launch that is latency
// bound merges all pieces that need more than one lane in one way, since it fetches the code of each way from memory.
template <class Policy> DEVICE uint32_t lane_bits(uint32_t bin) {
    if (bin < 4) return 0;
    if (Policy::IS_LATENCY_BOUND) return 3;
    return bin < 6 ? 1 : bin - 4;
}

// The bins as all threads of a block read them: their lists, where the ids of their pieces begin in
// merged_ids, and their chunks.
struct BinBegins {
    uint64_t merged[NUM_BINS];
    const uint64_t* misses[NUM_BINS];
    uint32_t counts[NUM_BINS], chunks[NUM_BINS], num_chunks;
    uint32_t lane_bits;                    // Binary logarithm of the lanes of a warp that merge.
};

// The binary logarithm of the lanes of a warp that merge. Few pieces are spread over the warps, since a warp takes as
// long as its longest piece. A piece of the longest bins has that many lanes at least.
template <class Policy> DEVICE uint32_t lanes_that_merge(uint32_t bin, uint32_t count) {
    constexpr uint32_t LEAST = 3, MOST = 5;
    if (!Policy::IS_LATENCY_BOUND) return MOST;
    uint32_t lanes = __reduce_add_sync(ALL_LANES, count << lane_bits<Policy>(bin % NUM_BINS)), bits = LEAST;
    while (bits < MOST && lanes >> bits >= gridDim.x * blockDim.x / 32) bits++;
    return bits;
}

// Fills a BinBegins. The whole block calls it; each lane of its first warp computes one bin. Each piece has
// room for longest_in_bin ids; the chunks of longer bins come first.
template <class Policy>
DEVICE void find_begins(const Job& job, BinBegins& begins) {
    uint32_t bin = threadIdx.x;
    if (bin < 32) {
        uint32_t count = bin < NUM_BINS ? job.text.miss_counts[bin] : 0, lanes = lanes_that_merge<Policy>(bin, count);
        if (bin == 0) begins.lane_bits = lanes;
        uint32_t chunk_bits = lanes - lane_bits<Policy>(bin % NUM_BINS), slots = count * longest_in_bin(bin % NUM_BINS);
        uint32_t chunks = (count + (1u << chunk_bits) - 1) >> chunk_bits;
        uint32_t all_slots = slots, all_chunks = chunks;  // With those of shorter, of longer bins.
        for (uint32_t distance = 1; distance < NUM_BINS; distance *= 2) {
            uint32_t shorter = __shfl_up_sync(ALL_LANES, all_slots, distance);
            uint32_t longer = __shfl_down_sync(ALL_LANES, all_chunks, distance);
            if (bin >= distance) all_slots += shorter;
            all_chunks += longer;  // Zeros from bin NUM_BINS on.
        }
        if (bin < NUM_BINS) {
            begins.merged[bin] = all_slots - slots;
            begins.misses[bin] = job.text.misses[bin];
            begins.counts[bin] = count;
            begins.chunks[bin] = all_chunks - chunks;
        }
        if (bin == 0) begins.num_chunks = all_chunks;
    }
    __syncthreads();
}

// The columns come last: a block of fewer warps, as of cards with 64 KiB of shared memory, asks for fewer of them.
struct MergeShared {
    PairFilter filter;
    BinBegins begins;
    Columns columns[MERGE_WARPS];
};
constexpr uint32_t MERGE_SHARED = 97 * 1024;
static_assert(sizeof(MergeShared) <= MERGE_SHARED, "the launch asks for so much");

// The state with which the warps of a block merge.
struct Mergers {
    Columns* columns;  // One for each warp.
    BinBegins& begins;
    const PairFilter* filter;
};

// Notes how many ids a missed piece has.
template <class Policy>
DEVICE void note_count(const Job& job, uint32_t bin, uint32_t number, uint32_t count, uint64_t entry) {
    job.text.merged_counts[bin][number] = count;
    if (Policy::COUNTS_IDS) atomicAdd(job.text.tile_counts + unit_of_miss(entry), count - 1);
}

// Writes the ids of a merged piece, four at a time; returns how many there are.
template <uint32_t LANES>
DEVICE uint32_t write_merged(const uint32_t* symbol_ids, Group<LANES>& group, uint32_t length, uint32_t* to) {
    uint4* fours = reinterpret_cast<uint4*>(to);
    uint32_t count = 0;
    for (uint32_t place = 0; place < length;) {
        uint32_t ids[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (place >= length) break;
            uint32_t word = group.word(place);
            ids[i] = __ldg(symbol_ids + symbol_of(word));
            place += length_of(word);
            count++;
        }
        *fours++ = {ids[0], ids[1], ids[2], ids[3]};
    }
    return count;
}

// The pieces of a bin's list from number `first` on, one for each group of the warp.
struct MissChunk {
    uint32_t bin, first;
};

// The chunk of a number; the whole warp calls it with the same one.
template <class Policy> DEVICE MissChunk chunk_of(const BinBegins& begins, uint32_t chunk) {
    uint32_t lane = threadIdx.x & 31;
    bool begun = lane < NUM_BINS && begins.chunks[lane % NUM_BINS] <= chunk;
    uint32_t bin = lowest_bit(__ballot_sync(ALL_LANES, begun));
    return {bin, (chunk - begins.chunks[bin]) << (begins.lane_bits - lane_bits<Policy>(bin))};
}

// The entry of this lane's piece in the list of misses, 0 behind its end.
template <class Policy> DEVICE uint64_t entry_of(const BinBegins& begins, const MissChunk& chunk) {
    uint32_t lane = threadIdx.x & 31, number = chunk.first + (lane >> lane_bits<Policy>(chunk.bin));
    if (Policy::IS_LATENCY_BOUND && lane >> begins.lane_bits) return 0;
    return number < begins.counts[chunk.bin] ? begins.misses[chunk.bin][number] : 0;
}

// Merges the pieces of a chunk; `entry` is this lane's.
template <class Policy, uint32_t LANES, uint32_t SLOTS>
DEVICE void merge_chunk(const Job& job, const Mergers& mergers, const MissChunk& chunk, uint64_t entry) {
    Group<LANES> group(mergers.columns[threadIdx.x / 32]);
    uint32_t number = chunk.first + group.number, bin = chunk.bin;
    const uint8_t* text = job.batch.text + static_cast<uint32_t>(entry);
    uint32_t length = length_of_miss(entry);
    merge_piece<LANES, SLOTS, Policy>(merging(job, mergers.filter), group, text, length);
    if (length && group.member == 0) {
        uint64_t begin = mergers.begins.merged[bin] + static_cast<uint64_t>(number) * longest_in_bin(bin);
        uint32_t count = write_merged(job.text.symbol_ids, group, length, job.text.merged_ids + begin);
        note_count<Policy>(job, bin, number, count, entry);
    }
}

// Merges the pieces of a chunk by the number of lanes that the pieces of its bin have.
template <class Policy>
DEVICE void merge_any_chunk(const Job& job, const Mergers& mergers, const MissChunk& chunk, uint64_t entry) {
    if (Policy::IS_LATENCY_BOUND) {
        if (chunk.bin < 4) merge_chunk<Policy, 1, 4>(job, mergers, chunk, entry);
        else merge_chunk<Policy, 8, 4>(job, mergers, chunk, entry);
        return;
    }
    if (chunk.bin == 0) merge_chunk<Policy, 1, 1>(job, mergers, chunk, entry);
    else if (chunk.bin == 1) merge_chunk<Policy, 1, 2>(job, mergers, chunk, entry);
    else if (chunk.bin == 2) merge_chunk<Policy, 1, 3>(job, mergers, chunk, entry);
    else if (chunk.bin == 3) merge_chunk<Policy, 1, 4>(job, mergers, chunk, entry);
    else if (chunk.bin < 6) merge_chunk<Policy, 2, 4>(job, mergers, chunk, entry);
    else if (chunk.bin == 6) merge_chunk<Policy, 4, 4>(job, mergers, chunk, entry);
    else merge_chunk<Policy, 8, 4>(job, mergers, chunk, entry);
}

// Merges all chunks, by blocks of any number of warps. The first chunk of each warp needs no ticket.
//
// While a chunk is merged, the entries of the next one and the ticket behind it are on their way.
template <class Policy>
DEVICE void merge_chunks(const Job& job, const Mergers& mergers, uint32_t block, uint32_t num_blocks) {
    uint32_t chunks = mergers.begins.num_chunks, first_ones = num_blocks * (blockDim.x / 32);
    uint32_t number = threadIdx.x / 32 * num_blocks + block;
    if (number >= chunks) return;
    bool draws = chunks > first_ones && threadIdx.x % 32 == 0;
    uint32_t ticket = draws ? atomicAdd(job.text.merge_tickets, 1u) : chunks;
    MissChunk chunk = chunk_of<Policy>(mergers.begins, number);
    uint64_t entry = entry_of<Policy>(mergers.begins, chunk);
    for (;;) {
        number = first_ones + __shfl_sync(ALL_LANES, ticket, 0);
        bool is_last = number >= chunks;
        MissChunk next = is_last ? chunk : chunk_of<Policy>(mergers.begins, number);
        uint64_t next_entry = is_last ? 0 : entry_of<Policy>(mergers.begins, next);
        if (draws) ticket = atomicAdd(job.text.merge_tickets, 1u);
        merge_any_chunk<Policy>(job, mergers, chunk, entry);
        if (is_last) return;
        chunk = next;
        entry = next_entry;
        __syncwarp();
    }
}

// Merges all missed pieces of a large batch.
DEVICE void merge_stage(const Job& job, MergeShared& shared, uint32_t block, uint32_t num_blocks) {
    find_begins<SeparateLaunches>(job, shared.begins);
    if (block >= shared.begins.num_chunks) return;
    load_filter(job, shared.filter);
    merge_chunks<SeparateLaunches>(job, {shared.columns, shared.begins, &shared.filter}, block, num_blocks);
}

}  // namespace warptok::text
