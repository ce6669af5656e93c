// The last step of repair, for windows that still do not meet the one before. A thread walks through one window after
// the other, until its path meets another.
//
// Windows are divided into *parts*, a thread each: of 8 windows, then of 64, then of 512 (of large chunks half as
// many). Each size runs twice, the second time with parts that begin half a part further on, because no thread reads
// windows in front of its part. Then a single thread repairs all windows that are left, which is slow but always right.
//
//     window    0   1   2   3   4   5   6   7        parts of 4
//     unmet     .   .   x   .   x   .   .   .
//     first     - - - - - - - | - - - - - - -        2 is repaired; 4 needs windows in front of its part
//     then      - - - | - - - - - - - | - - -        4 is repaired
#pragma once
#include "dna/repair/rounds.cuh"

namespace warptok::dna {

constexpr uint32_t FINISH_ROUNDS = 6;

// The number of windows of a part, at first.
template <uint32_t CHUNK>
constexpr uint32_t LEAST_FINISHED = CHUNK == LARGE_CHUNK ? 4 : 8;

// The windows that a thread may write, from `begin` to `end` - 1.
struct WindowPart {
    uint32_t begin, end;
};

// A path through many windows, its columns in memory that the ids will have.
template <uint32_t CHUNK>
struct LongPath {
    static constexpr uint32_t WORDS = Window<CHUNK>::WORDS;
    uint32_t first, cleared;               // The window it begins in; words of the columns that are cleared.
    Columns columns;
    Path path;
};

// A path that begins where a window of a part does. Each part has memory of its own: a word a letter is there.
template <uint32_t CHUNK>
DEVICE LongPath<CHUNK> long_path(const Job& job, WindowPart part, uint32_t window) {
    uint32_t* words = reinterpret_cast<uint32_t*>(job.answer.ids) + static_cast<uint64_t>(part.begin) * CHUNK;
    uint64_t half = static_cast<uint64_t>(part.end - window) * (CHUNK / 32) + LongPath<CHUNK>::WORDS;
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
    uint64_t begin = static_cast<uint64_t>(made.first) * CHUNK, left = job.batch.num_bytes - begin;
    uint32_t limit = offset + Window<CHUNK>::LIMIT;
    if (!walk_to<WalkBy::THREAD>(job, made.columns, begin, made.path, left < limit ? left : limit)) return false;
    word_of(made.columns.borders, made.columns, made.path.place) |= 1u << made.path.place % 32;
    return true;
}

// Copies the path to the windows before a given one, and checks where each meets the one before it.
template <uint32_t CHUNK>
DEVICE void write_path(const Job& job, const LongPath<CHUNK>& made, uint32_t end) {
    for (uint32_t window = made.first; window < end; window++) {
        uint32_t* words = made.columns.borders + (window - made.first) * CHUNK / 32;
        write_window<CHUNK>(job, window, {words, words, 1});
        if (window) job.dna.meetings[window] = meeting_again<CHUNK>(job, window);
    }
}

// Whether the path as walked so far meets a window.
template <uint32_t CHUNK>
DEVICE bool meets_path(const Job& job, const LongPath<CHUNK>& made, uint32_t window) {
    const uint32_t* words = made.columns.borders + (window - made.first) * CHUNK / 32;
    uint64_t low = words[0] | static_cast<uint64_t>(words[1]) << 32;
    uint64_t high = words[2] | static_cast<uint64_t>(words[3]) << 32;
    return meeting_with<CHUNK>(job, window, low, high) != NO_MEETING;
}

// Walks from an unmet window of a part on until the path meets that of another window, or to the part's end; returns
// the window that it reached. The walk begins in the window before. If it leads nowhere from there, or does not meet
// the window in front, it begins further back. A path from the first window leads everywhere.
template <uint32_t CHUNK>
DEVICE uint32_t finish_from(const Job& job, WindowPart part, uint32_t unmet) {
    if (unmet == part.begin) return unmet + 1;
    for (uint32_t back = 1;; back *= 2) {
        LongPath<CHUNK> made = long_path<CHUNK>(job, part, back < unmet - part.begin ? unmet - back : part.begin);
        uint32_t window = made.first;
        bool leads_on = true;
        do leads_on = extend_path<CHUNK>(job, made, window++);
        while (leads_on && window < part.end && (window <= unmet || !meets_path<CHUNK>(job, made, window)));
        if (leads_on) {
            write_path<CHUNK>(job, made, window);
            if (window < part.end) job.dna.meetings[window] = meeting_of<CHUNK>(job, window);
            if (made.first == part.begin || job.dna.meetings[made.first] != NO_MEETING) return window;
        } else if (made.first == part.begin) {
            job.answer.status[STATUS_FAULT] = 1;  // No path at all: the tables are wrong.
            return part.end;
        }
    }
}

template <uint32_t CHUNK>
DEVICE_NOINLINE void finish_part(const Job& job, WindowPart part) {
    for (uint32_t window = part.begin; window < part.end;)
        window = job.dna.meetings[window] == NO_MEETING ? finish_from<CHUNK>(job, part, window) : window + 1;
}

// Repairs all parts of one size, each by the first lane of a warp; then checks all meetings.
template <uint32_t CHUNK>
DEVICE void finish_round(const Job& job, uint32_t number, Steps& steps) {
    constexpr uint32_t WARPS = BLOCK / 32;
    uint32_t size = LEAST_FINISHED<CHUNK> << 3 * (number / 2), shift = number % 2 * size / 2;
    uint32_t windows = num_windows<CHUNK>(job), parts = (windows + shift) / size + 1;
    steps.run((parts + WARPS - 1) / WARPS, [&](uint64_t block) {
        uint64_t part = block * WARPS + threadIdx.x / 32, end = (part + 1) * size - shift;
        if (threadIdx.x % 32 || part >= parts) return;
        uint64_t begin = part ? end - size : 0;
        finish_part<CHUNK>(job, {static_cast<uint32_t>(begin), static_cast<uint32_t>(end < windows ? end : windows)});
    });
    steps.run((windows + BLOCK - 1) / BLOCK, [&](uint64_t block) {
        uint32_t window = block * BLOCK + threadIdx.x;
        if (window && window < windows) note_meeting<CHUNK>(job, REPAIR_ROUNDS + number, window);
    });
}

// Whether another round of repair is worth its time: the first two are, later ones if they halve the unmet windows.
DEVICE bool is_worth(const Job& job, uint32_t round) {
    uint32_t unmet = job.dna.unmet_counts[round];
    return unmet && round < REPAIR_ROUNDS && (round < 2 || unmet <= job.dna.unmet_counts[round - 1] / 2);
}

// Repairs all windows, in one launch.
template <uint32_t CHUNK>
DEVICE void repair_windows_stage(const Job& job, RepairShared& shared) {
    Steps steps = {job.dna.repair_counts, shared.part};
    if (job.dna.unmet_counts[0]) note_differing<CHUNK>(job, steps);
    uint32_t round = 0;
    for (; is_worth(job, round); round++) repair_round<CHUNK>(job, round, shared, steps);
    uint32_t left = job.dna.unmet_counts[round];
    for (round = REPAIR_ROUNDS; left && round < REPAIR_ROUNDS + FINISH_ROUNDS; left = job.dna.unmet_counts[++round])
        finish_round<CHUNK>(job, round - REPAIR_ROUNDS, steps);
    if (left && steps.claim() == 0 && threadIdx.x == 0) finish_part<CHUNK>(job, {0, num_windows<CHUNK>(job)});
}

}  // namespace warptok::dna
