// Repairs windows whose path does not meet that of the window before. In long repeats of one or several
// letters, all paths have the same tokens, but at different places.
//
//     window w       | A A A A|A A A A|A A A A|A A A        tokens of 4
//     window w + 1       A A|A A A A|A A A A|A A A A
//
// A window *repeats* if its text has a period of at most 32 letters and no certain border, since the path behind a
// certain border does not depend on the text before it. Among neighbouring windows that repeat, all from the first
// unmet one on are *bad*: if one begins wrongly, so does the next one, even where the two meet. A *segment* is the bad
// windows and the windows behind them that begin in text that still repeats. Neighbouring unmet windows that do not
// repeat are a segment, too. The path of the window before a segment is right at that window's end, even if it is bad,
// because paths meet in text that does not repeat.
//
//     window    0   1   2   3   4   5   6   7   8   9
//     repeats   .   .   x   x   x   x   .   .   .   .
//     unmet     .   .   .   x   .   .   .   .   .   x
//     segment               3 - - - - - - - - - 7   9
//
// The first step notes which windows repeat. Then four steps follow, in two rounds or more, because the path of one
// run may lead into another run. In most batches the steps have nothing to do:
//
//     rank       lists the unmet windows in order, and the windows that do not repeat
//     continue   walks the first windows of each segment again, from the first border that the window before has
//                in them, behind that window's token
//     align      copies the repeating borders of the last of these windows to the others; a window in which the
//                run ends is walked again from one of these borders
//     meet       checks again where windows of segments, and the windows behind these, meet the ones before
//
// From a window that still does not meet the one before, a thread walks through one window after the other
// (dna/repair/sequential.cuh). All this is one launch of repair_small or repair_large (chunk128.cu, chunk512.cu),
// after meet_windows; common/grid_steps.cuh divides it into steps. repeats.cuh has the borders of a run.
//
// Invariant: the launch ends when every window meets the one before, or with STATUS_FAULT; then no id is used.
#pragma once
#include "dna/repair/repeats.cuh"
#include "common/grid_steps.cuh"

namespace warptok::dna {

constexpr uint32_t RANK_BITS = 31;
constexpr uint32_t REPAIR_ROUNDS = 4;
constexpr uint32_t MAX_SEGMENT = 16;       // How many unmet windows back the begin of their segment is searched.

// window_ranks has four lists. UNMET lists the unmet windows in order. UNMET + RANK has for each window twice the
// number of unmet windows before it, plus 1 if it is unmet itself. DIFFERING has the same two lists for windows that do
// not repeat. So two reads find the first unmet window from any window on:
//
//     window          0      1      2      3      4
//     unmet           .      x      .      .      x
//     UNMET           1      4                           from window 2 on: entry 1, which is window 4
//     UNMET + RANK    0 x 2  0 x 2  1 x 2  1 x 2  1 x 2
//                     + 0    + 1    + 0    + 0    + 1
constexpr uint32_t UNMET = 0, DIFFERING = 2, RANK = 1;

// The entry of a list: of the window of a rank, or with RANK of a window.
template <uint32_t CHUNK>
DEVICE uint32_t& ranked(const Job& job, uint32_t list, uint32_t number) {
    return job.dna.window_ranks[list * num_windows<CHUNK>(job) + number];
}

template <uint32_t CHUNK>
DEVICE void rank_window(const Job& job, uint32_t list, uint32_t window, bool is_one, uint32_t before) {
    if (is_one) ranked<CHUNK>(job, list, before) = window;
    ranked<CHUNK>(job, list + RANK, window) = before << 1 | is_one;
}

template <uint32_t CHUNK>
DEVICE bool is_differing(const Job& job, uint32_t window) {
    return ranked<CHUNK>(job, DIFFERING + RANK, window) & 1;
}

template <uint32_t CHUNK>
DEVICE bool is_unmet(const Job& job, uint32_t window) {
    return ranked<CHUNK>(job, UNMET + RANK, window) & 1;
}

// Notes for is_differing which windows do not repeat. This step runs once, as the text does not change.
template <uint32_t CHUNK>
DEVICE void note_differing(const Job& job, Steps& steps) {
    uint32_t windows = num_windows<CHUNK>(job);
    steps.run((windows + BLOCK - 1) / BLOCK, [&](uint64_t part) {
        uint32_t window = part * BLOCK + threadIdx.x;
        if (window < windows) ranked<CHUNK>(job, DIFFERING + RANK, window) = !repeats<CHUNK>(job, window);
    });
}

// Fills the lists, by one running sum for both; unmet windows are counted in its lower RANK_BITS. This is a step of its
// own, by all blocks.
template <uint32_t CHUNK>
DEVICE void rank_windows(const Job& job, uint32_t round, ScanShared& shared, Steps& steps) {
    constexpr uint64_t LOW = (1ull << RANK_BITS) - 1;
    uint32_t windows = num_windows<CHUNK>(job);
    auto has_no_meeting = [&](uint64_t window) { return job.dna.meetings[window] == NO_MEETING; };
    uint64_t own = scan(job.dna.window_states + round * (windows / SCAN_TILE + 2), windows, shared,
         [&](uint64_t window) -> uint64_t {
             return has_no_meeting(window) | static_cast<uint64_t>(is_differing<CHUNK>(job, window)) << RANK_BITS;
         },
         [&](uint64_t window, uint64_t before) {
             if (window == windows) return;
             rank_window<CHUNK>(job, UNMET, window, has_no_meeting(window), before & LOW);
             rank_window<CHUNK>(job, DIFFERING, window, is_differing<CHUNK>(job, window), before >> RANK_BITS);
         });
    steps.end(own, scan_tiles(windows));
}

// Whether a window may be wrong because the one before is: no certain border is in that one's chunk.
template <uint32_t CHUNK>
DEVICE bool goes_on(const Job& job, uint32_t window) {
    if (window == 0) return false;
    uint64_t any = 0;
    for (uint32_t i = 0; i < CHUNK / 64; i++) any |= certain_in<CHUNK>(job, window - 1, i);
    return !any;
}

// The first unmet window among the repeating windows up to this one, which repeats, too; NO_BORDER if there is none.
// They begin behind the last window in front that does not repeat.
template <uint32_t CHUNK>
DEVICE uint32_t first_of_row(const Job& job, uint32_t round, uint32_t window) {
    uint32_t differing = ranked<CHUNK>(job, DIFFERING + RANK, window) >> 1;
    uint32_t first = differing ? ranked<CHUNK>(job, DIFFERING, differing - 1) + 1 : 0;
    uint32_t rank = ranked<CHUNK>(job, UNMET + RANK, first) >> 1;
    uint32_t unmet = rank < job.dna.unmet_counts[round] ? ranked<CHUNK>(job, UNMET, rank) : NO_BORDER;
    return unmet <= window ? unmet : NO_BORDER;
}

// The first window of the segment that a window is in; NO_BORDER if it is in none.
//
// If the window repeats, or begins in text of a repeating window that is at most BEHIND windows back, this is the first
// unmet window of that row of repeating windows. For any other unmet window it is the first one of the unmet windows
// in a row, MAX_SEGMENT back at most.
template <uint32_t CHUNK>
DEVICE uint32_t segment_of(const Job& job, uint32_t round, uint32_t window) {
    constexpr uint32_t BEHIND = (32 * Window<CHUNK>::WORDS + CHUNK - 1) / CHUNK;
    if (window >= num_windows<CHUNK>(job)) return NO_BORDER;
    uint32_t back = window;
    while (window - back < BEHIND && goes_on<CHUNK>(job, back) && is_differing<CHUNK>(job, back)) back--;
    uint32_t first = is_differing<CHUNK>(job, back) ? NO_BORDER : first_of_row<CHUNK>(job, round, back);
    if (first != NO_BORDER) return first;
    if (!is_unmet<CHUNK>(job, window)) return NO_BORDER;
    for (first = window; window - first < MAX_SEGMENT && goes_on<CHUNK>(job, first) && is_unmet<CHUNK>(job, first - 1);)
        first--;
    return first;
}

// How many windows at the begin of a segment continue the path before it. They cover 256 letters or more, so that behind
// them the borders of a run repeat, and no more windows are unmet where a run ends.
template <uint32_t CHUNK>
constexpr uint32_t CONTINUED = CHUNK < 256 ? 256 / CHUNK : 1;

// The first certain border from a place of a window on and before `limit`; NO_BORDER if there is none.
template <uint32_t CHUNK>
DEVICE uint32_t first_certain(const Job& job, uint32_t window, uint32_t place, uint32_t limit) {
    uint64_t begin = static_cast<uint64_t>(window) * CHUNK;
    for (uint32_t word = place / 64; 64 * word < limit; word++) {
        uint64_t found = job.dna.certain[begin / 64 + word] >> (word == place / 64 ? place % 64 : 0);
        if (found) return lowest_bit(found) + (word == place / 64 ? place : 64 * word);
    }
    return NO_BORDER;
}

// Writes those borders of a window that are before the end of the columns' path; the window lies some letters behind
// the begin of the columns.
template <uint32_t CHUNK>
DEVICE void write_before(const Job& job, uint32_t window, const Columns& columns, uint32_t letters, uint32_t end) {
    uint32_t* to = job.dna.window_bits + window;
    for (uint32_t place = letters; place < letters + 32 * Window<CHUNK>::WORDS && place < end; place += 32) {
        uint32_t some = end - place < 32 ? (1u << end % 32) - 1 : ~0u;
        *to = (*to & ~some) | (word_of(columns.borders, columns, place) & some);
        to += num_windows<CHUNK>(job);
    }
}

// Walks through `count` windows as one, from a place of the first one on, and writes them unless no path leads on.
// Windows behind a certain border are right and stay. The columns have room for a large window.
template <uint32_t CHUNK>
DEVICE void walk_again(const Job& job, const Columns& columns, uint32_t window, uint32_t count, WalkBegin from) {
    uint64_t begin = static_cast<uint64_t>(window) * CHUNK, left = job.batch.num_bytes - begin;
    uint32_t limit = min_of(count * CHUNK + OVERLAP, left < NO_BORDER ? static_cast<uint32_t>(left) : NO_BORDER);
    uint32_t certain = first_certain<CHUNK>(job, window, from.place, limit);
    clear_columns<LARGE_CHUNK>(columns);
    Path path;
    begin_path(job, path, from);
    if (!walk_to<WalkBy::THREAD>(job, columns, begin, path, min_of(limit, certain))) return;
    word_of(columns.borders, columns, path.place) |= 1u << path.place % 32;
    for (uint32_t i = 0; i < count; i++) write_before<CHUNK>(job, window + i, columns, i * CHUNK, certain);
}

// If a segment begins with this window, its first windows continue the path of the window before.
template <uint32_t CHUNK>
DEVICE void continue_windows(const Job& job, const Columns& columns, uint32_t round, uint32_t window) {
    if (window == 0 || segment_of<CHUNK>(job, round, window) != window) return;
    uint64_t behind = borders_from<CHUNK>(job, window - 1, CHUNK);
    if (!behind) return;
    uint32_t count = 1, place = lowest_bit(behind), before = token_before<CHUNK>(job, window - 1, CHUNK + place);
    while (count < CONTINUED<CHUNK> && segment_of<CHUNK>(job, round, window + count) == window) count++;
    walk_again<CHUNK>(job, columns, window, count, {place, before, false});
}

// Aligns a window behind the first ones of its segment: a window within the run gets the run's borders; any other one
// is walked again from one of these borders.
template <uint32_t CHUNK>
DEVICE void align_window(const Job& job, const Columns& columns, uint32_t round, uint32_t window) {
    uint32_t segment = segment_of<CHUNK>(job, round, window), last = segment + CONTINUED<CHUNK> - 1;
    if (segment == NO_BORDER || window <= last) return;
    if (certain_in<CHUNK>(job, window, 0)) return;  // The path is right from the certain border on.
    RunBorders run = run_borders<CHUNK>(job, last);
    if (!run.period) return;
    if (!is_differing<CHUNK>(job, window)) {
        write_run<CHUNK>(job, window, run);
        return;
    }
    uint64_t begin = static_cast<uint64_t>(window) * CHUNK;
    uint32_t place = lowest_bit(run.from(begin));
    walk_again<CHUNK>(job, columns, window, 1, {place, token_before(job, run, begin + place), true});
}

template <uint32_t CHUNK>
DEVICE void note_meeting(const Job& job, uint32_t round, uint32_t window) {
    uint32_t meeting = meeting_again<CHUNK>(job, window);
    job.dna.meetings[window] = meeting;
    if (meeting == NO_MEETING) note_unmet(job, round + 1);
}

// Checks where a window meets the one before, if the path of either was walked again.
template <uint32_t CHUNK>
DEVICE void meet_again(const Job& job, uint32_t round, uint32_t window) {
    if (window == 0) return;
    if (segment_of<CHUNK>(job, round, window) == NO_BORDER && segment_of<CHUNK>(job, round, window - 1) == NO_BORDER)
        return;
    note_meeting<CHUNK>(job, round, window);
}

// The shared memory of a block.
struct RepairShared {
    union {
        uint32_t columns[2][Window<LARGE_CHUNK>::WORDS * BLOCK];
        ScanShared scan;
    };
    uint64_t part;
};

// The four steps of a round, if any window is unmet.
template <uint32_t CHUNK>
DEVICE void repair_round(const Job& job, uint32_t round, RepairShared& shared, Steps& steps) {
    if (!job.dna.unmet_counts[round]) return;
    Columns columns = {shared.columns[0] + threadIdx.x, shared.columns[1] + threadIdx.x, BLOCK};
    uint32_t windows = num_windows<CHUNK>(job), parts = (windows + BLOCK - 1) / BLOCK;
    auto each = [&](auto work) {
        steps.run(parts, [&](uint64_t part) {
            uint32_t window = part * BLOCK + threadIdx.x;
            if (window < windows) work(window);
        });
    };
    rank_windows<CHUNK>(job, round, shared.scan, steps);
    each([&](uint32_t window) { continue_windows<CHUNK>(job, columns, round, window); });
    each([&](uint32_t window) { align_window<CHUNK>(job, columns, round, window); });
    each([&](uint32_t window) { meet_again<CHUNK>(job, round, window); });
}

}  // namespace warptok::dna
