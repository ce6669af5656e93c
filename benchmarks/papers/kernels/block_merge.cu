/* papers/kernels/block_merge.cu: BPE merges without a regular expression, a text to a block, as BlockBPE and GPUTok do.
 *
 * Launch: a block of 256, 512 or 1,024 threads for each text of at most `capacity` bytes. Shared memory: two buffers
 * of `capacity` ids, from which a pass writes to the other; merge_local_minima has a third, of ranks. Merges of text
 * "abcb" with ranks bc 0, ab 1:
 *
 *   merge_leftmost, merge_scanned   a b c b   ->   a bc b      the least pair's first place in a pass
 *   merge_every                     every place of the least pair in a pass
 *   merge_local_minima              every pair below its neighbours: not exact
 *
 * Invariant: ids and counts of all but merge_local_minima are those of byte-pair encoding of the whole text.
 * Cost: the passes of a text follow each other, each with a look-up for every pair and several barriers; the launch
 * lasts as long as its longest text.
 *
 * Sources: You, BlockBPE, section 4 (merge_every); Kadamba and Jaisankar, GPUTok, sections 3.4 (merge_scanned) and 3.5
 * (merge_leftmost), and section 1.1, whose optimized kernel merges local minima.
 */
#include "common/platform.cuh"

constexpr uint64_t NO_PAIR = ~0ull;
constexpr uint32_t MAX_WARPS = 32;

// A merge: left and right id, and the id of both with the merge's rank; key NO_PAIR: an empty place.
struct Merge {
    uint64_t key, value;
};

// What a launch reads and writes. Text i is text[begins[i]] to text[begins[i + 1]]; its ids begin at ids[begins[i]].
struct Texts {
    const uint8_t* text;
    const uint32_t* begins;
    const uint32_t* byte_ids;
    const Merge* merges;
    uint32_t* ids;
    uint32_t* counts;
    uint32_t mask, capacity;
};

DEVICE uint64_t key_of(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << 32 | right; }

// The value of a pair's merge, by linear probing; NO_PAIR: it has none. `mask` is the number of places less one.
DEVICE uint64_t find_merge(const Texts& texts, uint32_t left, uint32_t right) {
    uint64_t key = key_of(left, right);
    uint32_t place = static_cast<uint32_t>(key * 0x9E3779B97F4A7C15ull >> 32) & texts.mask;
    for (;; place = (place + 1) & texts.mask) {
        const Merge& merge = texts.merges[place];
        if (merge.key == key) return merge.value;
        if (merge.key == NO_PAIR) return NO_PAIR;
    }
}

DEVICE uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

// The least value of all threads, for each of them: across the lanes of a warp, then across the warps.
DEVICE uint64_t least_of_block(uint64_t value, uint64_t* scratch) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (uint32_t distance = 16; distance; distance /= 2)
        value = least_of(value, __shfl_xor_sync(ALL_LANES, value, distance));
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    uint64_t least = lane < warps ? scratch[lane] : NO_PAIR;
    for (uint32_t distance = 16; distance; distance /= 2)
        least = least_of(least, __shfl_xor_sync(ALL_LANES, least, distance));
    __syncthreads();
    return least;
}

// The sum of the values of all threads before this one; `total` is the sum of all.
DEVICE uint32_t sum_of_threads_before(uint32_t value, uint32_t* scratch, uint32_t& total) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, sum = value;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, sum, distance);
        if (lane >= distance) sum += other;
    }
    if (lane == 31) scratch[warp] = sum;
    __syncthreads();
    uint32_t warp_sum = lane < warps ? scratch[lane] : 0;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, warp_sum, distance);
        if (lane >= distance) warp_sum += other;
    }
    total = __shfl_sync(ALL_LANES, warp_sum, warps - 1);
    uint32_t before = __shfl_sync(ALL_LANES, warp_sum, (warp + 31) & 31);
    __syncthreads();
    return (warp ? before : 0) + sum - value;
}

DEVICE uint32_t read_bytes(const Texts& texts, uint32_t* ids) {
    uint32_t begin = texts.begins[blockIdx.x], length = texts.begins[blockIdx.x + 1] - begin;
    for (uint32_t i = threadIdx.x; i < length; i += blockDim.x) ids[i] = texts.byte_ids[texts.text[begin + i]];
    __syncthreads();
    return length;
}

DEVICE void write_ids(const Texts& texts, const uint32_t* ids, uint32_t length) {
    uint32_t begin = texts.begins[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < length; i += blockDim.x) texts.ids[begin + i] = ids[i];
    if (threadIdx.x == 0) texts.counts[blockIdx.x] = length;
}

// Moves all ids but that at `place` + 1 to the other buffer; `merged` comes to `place`.
DEVICE void shift_ids(const uint32_t* from, uint32_t* to, uint32_t length, uint32_t place, uint32_t merged) {
    for (uint32_t i = threadIdx.x; i < length; i += blockDim.x) {
        if (i == place + 1) continue;
        to[i <= place ? i : i - 1] = i == place ? merged : from[i];
    }
}

// The same where a thread has one id: places by a prefix sum over flags.
DEVICE void scan_ids(
    const uint32_t* from, uint32_t* to, uint32_t length, uint32_t place, uint32_t merged, uint32_t* sums) {
    uint32_t i = threadIdx.x, total;
    bool is_removed = i == place + 1;
    uint32_t removed = sum_of_threads_before(is_removed, sums, total);
    if (i < length && !is_removed) to[i - removed] = i == place ? merged : from[i];
}

// Merges the first place of the least pair, pass after pass.
template <bool SCANS_SHORT> DEVICE void merge_first_places(const Texts& texts, uint8_t* memory) {
    SHARED uint64_t least_scratch[MAX_WARPS];
    SHARED uint32_t sum_scratch[MAX_WARPS], winner;
    uint32_t *from = reinterpret_cast<uint32_t*>(memory), *to = from + texts.capacity;
    uint32_t length = read_bytes(texts, from);
    while (length > 1) {
        uint64_t best = NO_PAIR;
        uint32_t merged = 0;
        for (uint32_t i = threadIdx.x; i + 1 < length; i += blockDim.x) {
            uint64_t value = find_merge(texts, from[i], from[i + 1]);
            uint64_t candidate = value == NO_PAIR ? NO_PAIR : key_of(static_cast<uint32_t>(value), i);
            if (candidate < best) best = candidate, merged = static_cast<uint32_t>(value >> 32);
        }
        uint64_t least = least_of_block(best, least_scratch);
        if (least == NO_PAIR) break;
        if (best == least) winner = merged;  // Places differ, so one thread has it.
        __syncthreads();
        uint32_t place = static_cast<uint32_t>(least);
        if (SCANS_SHORT && length <= blockDim.x) scan_ids(from, to, length, place, winner, sum_scratch);
        else shift_ids(from, to, length, place, winner);
        __syncthreads();
        uint32_t* other = from;
        from = to, to = other;
        length--;
    }
    write_ids(texts, from, length);
}

// Whether the pair (left, right) is merged at place i. In a run of equal ids it is at every second place.
DEVICE bool is_merged_at(const uint32_t* ids, uint32_t length, uint32_t i, uint32_t left, uint32_t right) {
    if (i + 1 >= length || ids[i] != left || ids[i + 1] != right) return false;
    if (left != right) return true;
    uint32_t begin = i;
    while (begin && ids[begin - 1] == left) begin--;
    return (i - begin) % 2 == 0;
}

// Writes what is left of `length` ids in their order and returns how many; `left` has the ids, `keeps` says which.
template <class Keeps, class Id>
DEVICE uint32_t compact_ids(uint32_t* to, uint32_t length, uint32_t* sums, Keeps keeps, Id id_at) {
    uint32_t kept = 0;
    for (uint32_t first = 0; first < length; first += blockDim.x) {
        uint32_t i = first + threadIdx.x, total;
        bool is_kept = i < length && keeps(i);
        uint32_t place = kept + sum_of_threads_before(is_kept, sums, total);
        if (is_kept) to[place] = id_at(i);
        kept += total;
    }
    return kept;
}

// Merges every place of the least pair, pass after pass.
DEVICE void merge_every_place(const Texts& texts, uint8_t* memory) {
    SHARED uint64_t least_scratch[MAX_WARPS];
    SHARED uint32_t sum_scratch[MAX_WARPS], pair[3];
    uint32_t *from = reinterpret_cast<uint32_t*>(memory), *to = from + texts.capacity;
    uint32_t length = read_bytes(texts, from);
    while (length > 1) {
        uint64_t best = NO_PAIR;
        uint32_t merged = 0;
        for (uint32_t i = threadIdx.x; i + 1 < length; i += blockDim.x) {
            uint64_t value = find_merge(texts, from[i], from[i + 1]);
            uint64_t candidate = value == NO_PAIR ? NO_PAIR : key_of(static_cast<uint32_t>(value), i);
            if (candidate < best) best = candidate, merged = static_cast<uint32_t>(value >> 32);
        }
        uint64_t least = least_of_block(best, least_scratch);
        if (least == NO_PAIR) break;
        if (best == least) {
            uint32_t place = static_cast<uint32_t>(least);
            pair[0] = from[place], pair[1] = from[place + 1], pair[2] = merged;
        }
        __syncthreads();
        const uint32_t left = pair[0], right = pair[1], both = pair[2], *ids = from;
        length = compact_ids(
            to, length, sum_scratch, [=](uint32_t i) { return !i || !is_merged_at(ids, length, i - 1, left, right); },
            [=](uint32_t i) { return is_merged_at(ids, length, i, left, right) ? both : ids[i]; });
        __syncthreads();
        uint32_t* other = from;
        from = to, to = other;
    }
    write_ids(texts, from, length);
}

// Merges every pair whose rank is below its neighbours', pass after pass.
DEVICE void merge_least_neighbours(const Texts& texts, uint8_t* memory) {
    SHARED uint64_t least_scratch[MAX_WARPS];
    SHARED uint32_t sum_scratch[MAX_WARPS];
    constexpr uint32_t NO_RANK = 0xFFFFFFFF;
    uint32_t *from = reinterpret_cast<uint32_t*>(memory), *to = from + texts.capacity, *ranks = to + texts.capacity;
    uint32_t length = read_bytes(texts, from);
    while (length > 1) {
        uint64_t least = NO_PAIR;
        for (uint32_t i = threadIdx.x; i < length; i += blockDim.x) {
            uint64_t value = i + 1 < length ? find_merge(texts, from[i], from[i + 1]) : NO_PAIR;
            ranks[i] = value == NO_PAIR ? NO_RANK : static_cast<uint32_t>(value);
            least = least_of(least, value);
        }
        if (least_of_block(least, least_scratch) == NO_PAIR) break;
        const uint32_t* ids = from;
        auto is_merged = [=](uint32_t i) {
            return ranks[i] != NO_RANK && (!i || ranks[i] < ranks[i - 1]) && ranks[i] <= ranks[i + 1];
        };
        length = compact_ids(
            to, length, sum_scratch, [=](uint32_t i) { return !i || !is_merged(i - 1); },
            [=](uint32_t i) {
                return is_merged(i) ? static_cast<uint32_t>(find_merge(texts, ids[i], ids[i + 1]) >> 32) : ids[i];
            });
        __syncthreads();
        uint32_t* other = from;
        from = to, to = other;
    }
    write_ids(texts, from, length);
}

#define TEXTS_ARGUMENTS \
    const uint8_t *text, const uint32_t *begins, const uint32_t *byte_ids, const Merge *merges, uint32_t *ids, \
        uint32_t *counts, uint32_t mask, uint32_t capacity
#define TEXTS Texts{text, begins, byte_ids, merges, ids, counts, mask, capacity}

KERNEL __launch_bounds__(1024) merge_leftmost(TEXTS_ARGUMENTS) {
    DYNAMIC_SHARED(memory);
    merge_first_places<false>(TEXTS, memory);
}

KERNEL __launch_bounds__(1024) merge_scanned(TEXTS_ARGUMENTS) {
    DYNAMIC_SHARED(memory);
    merge_first_places<true>(TEXTS, memory);
}

KERNEL __launch_bounds__(1024) merge_every(TEXTS_ARGUMENTS) {
    DYNAMIC_SHARED(memory);
    merge_every_place(TEXTS, memory);
}

KERNEL __launch_bounds__(1024) merge_local_minima(TEXTS_ARGUMENTS) {
    DYNAMIC_SHARED(memory);
    merge_least_neighbours(TEXTS, memory);
}
