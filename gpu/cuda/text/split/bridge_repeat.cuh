// How a bridge slides along a run: the same text has the same borders, a multiple of their period further on.
//
//     text       a a a a a a a a a ... a a a a b
//     window     |-------|=======> =====> |-------|     its first period, again and again
#pragma once
#include "text/split/bridge_end.cuh"

// The first window of the run that `window` is in, or one behind it.
DEVICE uint32_t begin_of_run(const Job& job, const LongPiece& piece, uint32_t window) {
    uint32_t word = window / 32;
    uint64_t runs = static_cast<uint64_t>(job.seam_bits[word].runs) << 32;
    if (word) runs |= job.seam_bits[word - 1].runs;
    uint64_t others = ~(runs << (31 - window % 32));
    uint32_t before = 62 - highest_bit(others | 1);
    return window - min_of(before, window - piece.first_window);
}

// How a window's borders repeat: at `meeting` + `period` it meets itself. Period 0: they do not.
struct Repeat {
    uint32_t period, meeting;
};

// The shortest period, a multiple of `unit` of 64 bytes or more, that the borders from `first` to `place` show. The
// window meets itself at `from` or later.
DEVICE Repeat repeat_of(const Borders& borders, uint32_t first, uint32_t place, uint32_t unit, uint32_t from) {
    uint32_t alike = borders_like(borders, first, place, unit);
    while (__any_sync(ALL_LANES, alike != 0)) {
        uint32_t last = last_of(alike), period = place - last;
        period *= (63 + period) / period;
        uint32_t earliest = from > first + period ? from - period : first;
        uint32_t meeting = first_of(meetings(borders, borders, period) & ~bits_below(earliest));
        if (meeting != NO_PLACE) return {period, meeting};
        alike &= bits_below(last);
    }
    return {0, 0};
}

// Moves the window along the run that it ends in; false where there is none or its borders do not repeat.
DEVICE bool slide(const Job& job, const LongPiece& piece, Bridge& bridge, const Borders& borders) {
    uint32_t window = window_reached(piece, bridge), lane = threadIdx.x & 31;
    if (bridge.length < STRIDE_0 || window == bridge.ahead.next || !is_in_run(job, window)) return false;
    const Window& last = window_of(job, end_of_run(job, window, bridge.last + 1) - 1);
    uint32_t run_end = last.begin + last.length;
    uint32_t begin = window_of(job, begin_of_run(job, piece, window)).begin;
    if (begin < bridge.right) begin = bridge.right;
    uint32_t first = first_of(borders.words[lane] & ~bits_below(begin - bridge.begin));
    uint32_t place = last_of(borders.words[lane] & bits_below(bridge.length / 4 * 3 - 63));
    if (first == NO_PLACE || place <= first) return false;
    uint32_t from = bridge.from - bridge.begin;
    if (bridge.is_first && from < bridge.length / 2) from = bridge.length / 2;  // Behind its entry.
    Repeat repeat = repeat_of(borders, first, place, window_of(job, window).period, from);
    if (!repeat.period || run_end < bridge.end() + repeat.period) return false;
    uint32_t times = (run_end - bridge.end()) / repeat.period, to = bridge.begin + repeat.period + repeat.meeting;
    leave(job, bridge, borders, to);
    bridge.begin += times * repeat.period;
    bridge.from = bridge.right = bridge.begin + repeat.meeting;
    note_parts(job, bridge.first, borders, repeat.meeting, repeat.period, to, bridge.from - to);
    bridge.is_first = false;
    return true;
}
