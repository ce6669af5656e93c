// The path of a part, from the lengths of the last tokens, and how many ids it has.
//
// The last tokens lead from any place back to the begin of the row, and two ways that meet are one from
// there on: mostly a few letters in front of where they began. A thread goes back from some letters behind its
// segment, and where it comes in the next thread must have left its own: else it begins anew where that one did.
// Then all these ways are one, which comes from the text's end if the parts' ways meet (docs/internals/dna-bpe.md,
// Parts).
//
//     segment 1        . . . . .|. . . . .          from the right: comes in at 6
//     segment 2                 |. . . . .|. . .    leaves at 6, comes in at 10
#pragma once
#include "dna/parts/last_tokens.cuh"
#include "common/block_reduce.cuh"

namespace warptok::dna {

constexpr uint64_t PART_THERE = 1ull << 63;  // A state: ids | letters behind where the path comes in << 32;
constexpr uint64_t PART_LEFT = 1ull << 62; // what is not there, as the batch is left to other kernels.

constexpr uint32_t NEAR = 16;              // Letters behind a segment that a way begins at;
constexpr uint32_t MOST_AGAIN = 32;        // and times that ways which do not meet are begun anew.

// The place where the last token of another one begins.
DEVICE uint32_t place_before(const PartShared& shared, uint32_t place) {
    uint32_t length = shared.lengths[place];
    return place - (length < GAP_LENGTH ? length : 1);
}

DEVICE bool has_id(const PartShared& shared, uint32_t length) {
    return length < GAP_LENGTH || shared.letters[length - GAP_LENGTH] < BASES_DROPPED;
}

// A part of the path that one thread finds.
struct Segment {
    uint32_t begin, end;
    uint32_t entry;                        // Where the path comes in,
    uint32_t exit;                         // and where it leaves.
    uint32_t ends;                         // Bits of places behind the first one: a piece with an id ends here.
    bool is_lost;
};

DEVICE void find_path(const PartShared& shared, Segment& segment) {
    uint32_t place = segment.entry;
    segment.ends = 0;
    segment.is_lost = false;
    while (place > segment.begin) {
        uint32_t length = shared.lengths[place];
        segment.is_lost |= length == NEVER_KNOWN;
        if (has_id(shared, length)) segment.ends |= 1u << (place - segment.begin - 1);
        place -= length < GAP_LENGTH ? length : 1;
    }
    segment.exit = place;
}

DEVICE Segment segment_of(const PartShared& shared, const View& view, uint32_t number) {
    uint32_t begin = view.lead + SEGMENT * number, end = min_of(begin + SEGMENT, view.end);
    uint32_t entry = end == view.end ? view.size : min_of(end + NEAR, view.size);
    while (entry > end) entry = place_before(shared, entry);
    return {begin, end, entry, 0, 0, false};
}

// Ids of a part; its path is found. `entry` is where it comes in. The whole block calls it.
DEVICE uint32_t find_paths(PartShared& shared, const View& view, uint32_t& entry) {
    uint32_t number = threadIdx.x, segments = (view.end - view.lead + SEGMENT - 1) / SEGMENT, total;
    bool is_one = number < segments, is_new = is_one;
    Segment segment = {0, 0, 0, 0, 0, false};
    if (is_one) segment = segment_of(shared, view, number);
    for (uint32_t times = 0; __syncthreads_or(is_new); times++) {
        if (is_new) find_path(shared, segment);
        if (is_one) shared.exits[number] = segment.exit;
        __syncthreads();
        is_new = number + 1 < segments && shared.exits[number + 1] != segment.entry;
        if (is_new) segment.entry = shared.exits[number + 1];
        if (is_new && times == MOST_AGAIN) shared.is_left = IS_OTHER;
        if (times == MOST_AGAIN) is_new = false;
    }
    if (segment.is_lost) atomicOr(&shared.is_left, IS_LOST);
    uint32_t before = sum_before<BASES_THREADS>(count_bits(segment.ends), shared.scratch, total);
    shared.before[number] = before;
    shared.ends[number] = segment.ends;
    if (number + 1 == segments) shared.scratch[0] = view.end - segment.entry;
    __syncthreads();
    entry = segments ? shared.scratch[0] : 0;
    return total;
}

// Tells all parts behind how many ids a part has, and where its path comes in.
DEVICE void publish_part(const Job& job, const PartShared& shared, const View& view, uint32_t ids, uint32_t entry) {
    uint64_t state = PART_THERE | (shared.is_left ? PART_LEFT : static_cast<uint64_t>(entry) << 32 | ids);
    if (threadIdx.x == 0) store_volatile(job.parts.part_states + view.number, state);
}

// Adds up the ids of all parts in front; notes where these are left or do not meet. The whole block calls it.
DEVICE void add_parts_before(const Job& job, PartShared& shared, const View& view) {
    uint32_t sum = 0, total;
    bool is_left = false;
    for (uint32_t part = threadIdx.x; part < view.number; part += BASES_THREADS) {
        uint64_t state = 0;
        for (; !state; give_way()) state = load_volatile(job.parts.part_states + part);
        bool meets = part + 1 < view.number || view.lead - shared.exits[0] == (state >> 32 & 0xFF);
        is_left |= state & PART_LEFT || !meets;
        sum += static_cast<uint32_t>(state);
    }
    if (is_left) shared.is_left = IS_OTHER;
    sum_before<BASES_THREADS>(sum, shared.scratch, total);
    if (threadIdx.x == 0) shared.ids_before = total;
    __syncthreads();
}

}  // namespace warptok::dna
