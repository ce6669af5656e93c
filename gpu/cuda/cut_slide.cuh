// How a bridge slides along a run: the same text has the same borders, a multiple of their period further on.
//
//     text       a a a a a a a a a ... a a a a b
//     window     |-------|=======> =====> |-------|     its first period, again and again
//
// Of a long run only the first period and a note are written; the rest comes later (RunStarts).
#pragma once
#include "cut_landing.cuh"

// Sets the start bits of `length` bytes from a place on: those of `period` bytes (at least 64) of a
// window from `first` on, again and again.
DEVICE void write_repeated(const Job& job, const Borders& borders, uint32_t first, uint32_t period,
                           uint64_t place, uint32_t length) {
    for (uint32_t i = 64 * (threadIdx.x & 31); i < length; i += 64 * 32) {
        uint32_t phase = i % period, left = period - phase;
        uint64_t bits = long_bits_from(borders, first + phase);
        if (left < 64) bits = (bits & ((1ull << left) - 1)) | long_bits_from(borders, first) << left;
        set_starts(job, place + i, length - i < 64 ? bits & ((1ull << (length - i)) - 1) : bits);
    }
}

// Writes a long run's start bits, or their first period and a note of the rest; by the whole warp. A bridge
// has one such note, which a detour takes back.
DEVICE void write_run_starts(const Job& job, Bridge& bridge, const Borders& borders, uint32_t first,
                             uint32_t period, uint32_t place, uint32_t length) {
    Window& own = window_of(job, bridge.first);
    uint64_t number = 0, room = job.num_bytes / SLIDE_BYTES + 1;
    bool is_noted = length > SLIDE_BYTES && !own.run_starts;
    if (is_noted && (threadIdx.x & 31) == 0) number = atomic_add(job.window_counts + 3, 1) + 1;
    number = __shfl_sync(ALL_LANES, number, 0);
    is_noted = is_noted && number <= room;
    write_repeated(job, borders, first, period, place, is_noted ? period : length);
    __syncwarp();
    if (!is_noted || (threadIdx.x & 31)) return;
    job.run_starts[number - 1] = {place, period, length, 0};
    own.run_starts = static_cast<uint32_t>(number);
}

// The first window of the run that `window` is in, or one behind it.
DEVICE uint32_t begin_of_run(const Job& job, const LongPiece& piece, uint32_t window) {
    uint32_t word = window / 32;
    uint64_t runs = static_cast<uint64_t>(job.seam_bits[word].runs) << 32;
    if (word) runs |= job.seam_bits[word - 1].runs;
    uint64_t others = ~(runs << (31 - window % 32));
    uint32_t before = 62 - highest_bit(others | 1);
    return window - min_of(before, window - piece.first_window);
}

// Moves the window along the run that it ends in; false where there is none or its borders do not repeat.
DEVICE bool slide(const Job& job, const LongPiece& piece, Bridge& bridge, const Borders& borders) {
    uint32_t window = window_reached(piece, bridge), lane = threadIdx.x & 31;
    if (bridge.length < STRIDE_0 || window == bridge.ahead.next || !is_in_run(job, window)) return false;
    const Window& last = window_of(job, end_of_run(job, window, bridge.last + 1) - 1);
    uint32_t run_end = last.begin + last.length;
    uint32_t begin = begin_of_window(piece, begin_of_run(job, piece, window));
    if (begin < bridge.right) begin = bridge.right;
    uint32_t first = first_of(borders.words[lane] & ~bits_below(begin - bridge.begin));
    uint32_t place = last_of(borders.words[lane] & bits_below(bridge.length / 4 * 3 - 63));
    if (first == NO_PLACE || place <= first) return false;
    uint32_t period = period_at(borders, first, place);
    if (!period) return false;
    period *= (63 + period) / period;
    if (period % window_of(job, window).period || run_end < bridge.end() + period) return false;
    uint32_t from = bridge.from - bridge.begin;
    if (bridge.is_first && from < bridge.length / 2) from = bridge.length / 2;  // Behind its entry.
    uint32_t earliest = from > first + period ? from - period : first;
    uint32_t meeting = first_of(meetings(borders, borders, period) & ~bits_below(earliest));
    if (meeting == NO_PLACE) return false;
    uint32_t times = (run_end - bridge.end()) / period, to = bridge.begin + period + meeting;
    leave(job, bridge, borders, to);
    bridge.begin += times * period;
    bridge.from = bridge.right = bridge.begin + meeting;
    clear_up_to(job, bridge, bridge.from);
    write_run_starts(job, bridge, borders, meeting, period, to, bridge.from - to);
    if (lane == 0) window_of(job, bridge.first).written = bridge.from;
    bridge.is_first = false;
    return true;
}
