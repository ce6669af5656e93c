// What bridges cut: parts of their windows, noted while bridges are built and written when it is known which of
// them the chain takes.
//
//     bridge     |--w1--|                     a part of w1, a part of w2, and a run that w2's borders repeat in
//                    |--w2--|====>====>===|
#pragma once
#include "text/split/seams.cuh"

constexpr uint32_t PART_BYTES = 1 << 14;  // Of text at most, so that a long run is many warps' work.

struct Part {  // From `place` on `length` bytes have the borders from `first` on, again every `period` bytes.
    uint32_t owner;  // The window whose bridge it is of.
    uint32_t place, length, first, period;
    Borders borders;
};

// They lie behind the windows.
DEVICE Part* parts_of(const Job& job) {
    return reinterpret_cast<Part*>(&window_of(job, all_windows(job)));
}

// For how many there is room: `merged_ids` has eight bytes for each one of text.
DEVICE uint64_t room_of_parts(const Job& job) {
    uint64_t windows = all_windows(job) * sizeof(Window);  // Less than one byte each.
    return (8 * job.num_bytes - windows) / sizeof(Part);
}

// How many are noted. Where more were than there is room for, pieces fail (text/split/chain.cuh).
DEVICE uint64_t num_parts(const Job& job) {
    uint64_t noted = job.window_counts[COUNT_PARTS], room = room_of_parts(job);
    return noted < room ? noted : room;
}

// Notes what a window of a bridge cuts; by the whole warp. `period` is at least 64, or `length`.
DEVICE void note_parts(const Job& job, uint32_t owner, const Borders& borders, uint32_t first, uint32_t period,
                       uint32_t place, uint32_t length) {
    if (!length) return;
    uint32_t lane = threadIdx.x & 31, each = period < PART_BYTES ? PART_BYTES / period * period : period;
    uint32_t count = (length + each - 1) / each;
    uint64_t number = 0, room = room_of_parts(job);
    if (lane == 0) number = atomic_add(job.window_counts + COUNT_PARTS, count);
    number = __shfl_sync(ALL_LANES, number, 0);
    for (uint32_t i = 0; i < count && number + i < room; i++) {
        Part& part = parts_of(job)[number + i];
        part.borders.words[lane] = borders.words[lane];
        if (lane < 2) part.borders.words[WALK_WORDS + lane] = borders.words[WALK_WORDS + lane];
        if (lane) continue;
        part.owner = owner;
        part.place = place + i * each;
        part.length = min_of(each, length - i * each);
        part.first = first;
        part.period = period;
    }
}

// Sets the start bits of a part, by the whole warp.
DEVICE void write_part(const Job& job, const Part& part) {
    for (uint32_t i = 64 * (threadIdx.x & 31); i < part.length; i += 64 * 32) {
        uint32_t phase = i % part.period, left = part.period - phase, rest = part.length - i;
        uint64_t bits = long_bits_from(part.borders, part.first + phase);
        if (left < 64) bits = (bits & ((1ull << left) - 1)) | long_bits_from(part.borders, part.first) << left;
        set_starts(job, part.place + i, rest < 64 ? bits & ((1ull << rest) - 1) : bits);
    }
}
