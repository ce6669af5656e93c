// Finds the path of a part, from the lengths of the last tokens, and how many ids it has.
//
// The last tokens form a path from any place back to the begin of its row. Two paths that meet are the same from there
// on, and mostly meet after a few letters. A part is divided into segments, one for each thread. A thread begins NEAR
// letters after its segment and goes back. Its path must enter the segment at the place where the path of the next
// segment leaves; if it does not, the thread begins again at that place. Then all segments have one path. If the paths
// of neighbouring parts meet as well, it is the path from the text's end (docs/internals/dna-bpe.md, Parts).
//
//     segment 1        . . . . .|. . . . .          from the right: comes in at 6
//     segment 2                 |. . . . .|. . .    leaves at 6, comes in at 10
#pragma once
#include "dna/parts/part_last_tokens.cuh"
#include "common/block_reduce.cuh"

namespace warptok::dna {

// The state of a part: PART_THERE | ids | letters of the part behind where its path comes in << 32, or PART_FAILED.
constexpr uint64_t PART_THERE = 1ull << 63;
constexpr uint64_t PART_FAILED = 1ull << 62;

constexpr uint32_t NEAR = 16;              // How many letters behind its segment a thread begins the path.
constexpr uint32_t MOST_AGAIN = 32;        // How often a thread begins a path again, at most.

// The place where the last token of a place begins.
DEVICE uint32_t place_before(const PartShared& shared, uint32_t place) {
    uint32_t length = shared.lengths[place];
    return place - (length < GAP_LENGTH ? length : 1);
}

DEVICE bool has_id(const PartShared& shared, uint32_t length) {
    return length < GAP_LENGTH || shared.letters[length - GAP_LENGTH] < PART_CLASS_DROPPED;
}

// A part of the path that one thread finds.
struct Segment {
    uint32_t begin, end;                   // Its places.
    uint32_t entry;                        // The place where the path comes in,
    uint32_t exit;                         // and the place where it leaves.
    uint32_t ends;                         // Bits of places behind the first one: a piece with an id ends there.
    bool is_unknown;                       // The path comes by a place that is NEVER_KNOWN.
};

DEVICE void find_path(const PartShared& shared, Segment& segment) {
    uint32_t place = segment.entry;
    segment.ends = 0;
    segment.is_unknown = false;
    while (place > segment.begin) {
        uint32_t length = shared.lengths[place];
        segment.is_unknown |= length == NEVER_KNOWN;
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

// Finds the path of a part; returns how many ids it has. `entry` is where the path comes in. The whole block calls it.
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
        if (is_new && times == MOST_AGAIN) shared.failure = NOT_ENCODED;
        if (times == MOST_AGAIN) is_new = false;
    }
    if (segment.is_unknown) atomicOr(&shared.failure, NEEDS_LONG_LEAD);
    uint32_t before = sum_before<PART_THREADS>(count_bits(segment.ends), shared.scratch, total);
    shared.before[number] = before;
    shared.ends[number] = segment.ends;
    if (number + 1 == segments) shared.scratch[0] = view.end - segment.entry;
    __syncthreads();
    entry = segments ? shared.scratch[0] : 0;
    return total;
}

// Publishes how many ids a part has, and where its path comes in.
DEVICE void publish_part(const Job& job, const PartShared& shared, const View& view, uint32_t ids, uint32_t entry) {
    uint64_t state = PART_THERE | (shared.failure ? PART_FAILED : static_cast<uint64_t>(entry) << 32 | ids);
    if (threadIdx.x == 0) store_volatile(job.parts.part_states + view.number, state);
}

// Adds up the ids of all parts in front. The part fails if one of these has failed, or does not meet the next one. The
// whole block calls it.
DEVICE void add_parts_before(const Job& job, PartShared& shared, const View& view) {
    uint32_t sum = 0, total;
    bool has_failed = false;
    for (uint32_t part = threadIdx.x; part < view.number; part += PART_THREADS) {
        uint64_t state = 0;
        for (; !state; give_way()) state = load_volatile(job.parts.part_states + part);
        bool meets = part + 1 < view.number || view.lead - shared.exits[0] == (state >> 32 & 0xFF);
        has_failed |= state & PART_FAILED || !meets;
        sum += static_cast<uint32_t>(state);
    }
    if (has_failed) shared.failure = NOT_ENCODED;
    sum_before<PART_THREADS>(sum, shared.scratch, total);
    if (threadIdx.x == 0) shared.ids_before = total;
    __syncthreads();
}

}  // namespace warptok::dna
