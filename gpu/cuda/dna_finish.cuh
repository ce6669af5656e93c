// The last way of repair: from a window that still does not meet the one before a single thread walks
// through one after the other, until its path meets another. Slow, and right whatever happens.
#pragma once
#include "dna_repair.cuh"

// A path through many windows, its columns in memory that the ids will have.
template <uint32_t CHUNK>
struct LongPath {
    static constexpr uint32_t WORDS = Window<CHUNK>::WORDS;
    uint32_t first, cleared;               // The window it begins in; words of the columns that are cleared.
    Columns columns;
    Path path;
};

// A path that begins where a window's does.
template <uint32_t CHUNK>
DEVICE LongPath<CHUNK> long_path(const Job& job, uint32_t window) {
    uint32_t* words = reinterpret_cast<uint32_t*>(job.ids);
    uint64_t half = (job.num_bytes - static_cast<uint64_t>(window) * CHUNK) / 32 + LongPath<CHUNK>::WORDS;
    LongPath<CHUNK> made = {window, 0, {words, words + half, 1}, {}};
    uint64_t borders = window ? borders_from<CHUNK>(job, window, 0) : 1;
    begin_path(job, made.path, borders ? lowest_bit(borders) : 0, NO_TOKEN);
    return made;
}

// Walks through the next window, number `window`, and writes it.
template <uint32_t CHUNK>
DEVICE bool extend_path(const Job& job, LongPath<CHUNK>& made, uint32_t window) {
    uint32_t offset = (window - made.first) * CHUNK, end = offset / 32 + made.WORDS;
    for (; made.cleared < end; made.cleared++) made.columns.borders[made.cleared] = made.columns.dead[made.cleared] = 0;
    uint64_t begin = static_cast<uint64_t>(made.first) * CHUNK, left = job.num_bytes - begin;
    uint32_t limit = offset + Window<CHUNK>::LIMIT;
    if (!walk_to<false>(job, made.columns, begin, made.path, left < limit ? left : limit)) return false;
    word_of(made.columns.borders, made.columns, made.path.place) |= 1u << made.path.place % 32;
    return true;
}

// Copies the path to the windows before one, and checks where each meets the one before.
template <uint32_t CHUNK>
DEVICE void write_path(const Job& job, const LongPath<CHUNK>& made, uint32_t end) {
    for (uint32_t window = made.first; window < end; window++) {
        uint32_t* words = made.columns.borders + (window - made.first) * CHUNK / 32;
        write_window<CHUNK>(job, window, {words, words, 1});
        if (window) job.meetings[window] = meeting_again<CHUNK>(job, window);
    }
}

// Whether a path that was walked so far meets a window.
template <uint32_t CHUNK>
DEVICE bool meets_path(const Job& job, const LongPath<CHUNK>& made, uint32_t window) {
    const uint32_t* words = made.columns.borders + (window - made.first) * CHUNK / 32;
    uint64_t low = words[0] | static_cast<uint64_t>(words[1]) << 32, high = words[2] | static_cast<uint64_t>(words[3]) << 32;
    return meeting_with<CHUNK>(job, window, low, high) != NO_MEETING;
}

// Walks from an unmet window on until the path meets another, by a single thread. It begins in the
// window before; where that leads nowhere, or does not meet what is in front of it, further back: the
// first window's path leads everywhere.
template <uint32_t CHUNK>
DEVICE uint32_t finish_from(const Job& job, uint32_t unmet) {
    uint32_t windows = num_windows<CHUNK>(job);
    for (uint32_t back = 1;; back *= 2) {
        LongPath<CHUNK> made = long_path<CHUNK>(job, back < unmet ? unmet - back : 0);
        uint32_t window = made.first;
        while (extend_path<CHUNK>(job, made, window)) {
            window++;
            if (window < windows && (window <= unmet || !meets_path<CHUNK>(job, made, window))) continue;
            write_path<CHUNK>(job, made, window);
            if (window < windows) job.meetings[window] = meeting_of<CHUNK>(job, window);
            if (made.first == 0 || job.meetings[made.first] != NO_MEETING) return window;
            break;
        }
        if (made.first) continue;
        job.status[STATUS_FAULT] = 1;      // No path at all: the tables are wrong.
        return windows;
    }
}

// Whatever is left, by one block: its threads look for unmet windows, one thread walks.
template <uint32_t CHUNK>
DEVICE void finish_windows(const Job& job, uint32_t* next) {
    uint32_t windows = num_windows<CHUNK>(job);
    for (uint32_t first = 0; first < windows; first = *next) {
        uint32_t window = first + threadIdx.x;
        bool unmet = window < windows && job.meetings[window] == NO_MEETING;
        bool any = __syncthreads_or(unmet);
        if (threadIdx.x == 0) {
            *next = first + blockDim.x;
            for (uint32_t i = first; any && i < first + blockDim.x && i < windows;)
                if (job.meetings[i] == NO_MEETING) *next = i = finish_from<CHUNK>(job, i);
                else i++;
        }
        __syncthreads();
    }
}

// All of repair, in one launch.
template <uint32_t CHUNK>
DEVICE void repair_windows_stage(const Job& job, RepairShared<CHUNK>& shared) {
    Steps steps = {job.repair_counts, shared.part};
    for (uint32_t round = 0; round < ROUNDS; round++) repair_round<CHUNK>(job, round, shared, steps);
    if (job.unmet_counts[ROUNDS] && steps.take() == 0) finish_windows<CHUNK>(job, &shared.next);
}
