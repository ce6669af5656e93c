// Level 2 of cutting long pieces: a bridge leads from a patch to where the chain goes on.
//
// That is the next patch or a window of level 0 behind the last one that fails. Where the patch itself
// meets neither, windows of up to WINDOW_1 bytes follow, each from a border of the one before it. One
// in a run slides along it: the same text has the same borders, a multiple of their period further on.
//
//     text       x a a a a a a a a a a a a a ... a a a a b . . .
//     patch    |---------|
//     bridge       |-------|=======> slides ====> |-------|
//                                                     |-------|     meets level 0
#pragma once
#include "cut_patch.cuh"
#include "walk_window.cuh"

constexpr uint32_t BRIDGE_WARPS = 4;
constexpr uint64_t ONE_LOST = 1ull << 40;  // window_counts[1]: bridges that lead nowhere << 40 | seams.
constexpr uint32_t FAR = 1024;  // Windows of level 0 in a run that only a slide may pass.

struct BridgeShared {  // Of a warp.
    WarpColumns<32> columns;
    Borders borders[2];
};

// The window at the end of a bridge, which the whole warp builds.
struct Bridge {
    uint32_t patched, last;  // Windows of level 0: where it begins, the piece's last one.
    Ahead ahead;
    uint32_t begin, length;
    uint32_t from;           // The chain leaves the window here or later,
    uint32_t right;          // and from here on it is right.
    bool is_patch;
    uint32_t current;        // Number of `borders`.
    bool is_trial;           // Nothing is written: to see where it leads.
    bool is_detour;          // All other bridges are there (cut_detour.cuh).
    uint32_t may_pass;       // Patches that it may leave behind without entering them.

    DEVICE_METHOD uint32_t end() const { return begin + length; }
    DEVICE_METHOD bool has_next() const { return ahead.next <= last; }
};

// Loads a patch's borders.
DEVICE void load_patch(Borders& borders, const Patch& patch) {
    uint32_t lane = threadIdx.x & 31;
    borders.words[lane] = lane < PATCH_WORDS ? patch.borders[lane] : 0;
    if (lane < 2) borders.words[WALK_WORDS + lane] = 0;
    __syncwarp();
}

// Notes where a patch is entered or left, by two warps: the second of them sees whether both fit.
DEVICE void note_end(const Job& job, Patch& patch, uint32_t end) {
    uint32_t ends = atomicAdd(&patch.ends, end) + end;
    if (ends >> 16 == 0 || (ends & 0xFFFF) < ends >> 16) return;
    patch.is_late = 1;
    atomic_add(job.window_counts + 1, ONE_LOST);
}

// Ends the window at a place: the chain goes on in another one.
DEVICE void leave(const Job& job, const Bridge& bridge, const Borders& borders, uint32_t place) {
    if (bridge.is_trial) return;
    Patch& patch = patch_of(job, bridge.patched);
    if (!bridge.is_patch) write_walk(job, borders, bridge.begin, bridge.from - bridge.begin, place - bridge.begin);
    if (threadIdx.x & 31) return;
    patch.written = place;
    if (!bridge.is_patch) return;
    patch.exit = place;
    if (!bridge.is_detour) note_end(job, patch, (place - patch.begin + 1) << 16);
}

// Where the chain leaves the window, of the places where it meets another one, which begins at `begin`: a
// patch behind its middle if possible, since bridges enter it in front.
DEVICE uint32_t place_to_leave(const Bridge& bridge, uint32_t met, uint32_t begin) {
    if (!bridge.is_patch) return begin + first_of(met);
    uint32_t middle = bridge.begin + bridge.length / 8 * 5;
    uint32_t place = first_of(met & ~bits_below(middle > begin ? middle - begin : 0));
    return begin + (place == NO_PLACE ? last_of(met) : place);
}

// Where the bridge meets a window of level 0 in front of that window's own end of the chain.
DEVICE uint32_t landing_on(const Job& job, const LongPiece& piece, const Bridge& bridge, const Borders& borders,
                           uint32_t window) {
    uint32_t begin = begin_of_window(piece, window), limit;
    uint64_t bits = long_bits_from(borders, begin - bridge.begin);
    if (bridge.from > begin) bits = bridge.from - begin < 64 ? bits & ~0ull << (bridge.from - begin) : 0;
    if (window != bridge.ahead.next) limit = STRIDE_0 + meeting_of_windows(job, window);
    else if (patch_of(job, window).joint == NO_PLACE) return NO_PLACE;
    else limit = patch_of(job, window).joint - begin;
    uint32_t place = meeting_place(bits, job.window_borders[window], limit);
    return place == NO_PLACE ? NO_PLACE : begin + place;
}

// Ends the bridge on a window of level 0, the last that it covers.
DEVICE bool land(const Job& job, const LongPiece& piece, const Bridge& bridge, const Borders& borders) {
    if (bridge.length < WINDOW_0) return false;
    // A patch without a joint can be entered by a bridge only, if it is not too far.
    if (bridge.has_next() && patch_of(job, bridge.ahead.next).joint == NO_PLACE &&
        patch_of(job, bridge.ahead.next).begin - bridge.begin < 2 * WINDOW_1)
        return false;
    uint32_t window = piece.first_window + (bridge.end() - WINDOW_0 - piece.begin) / STRIDE_0;
    window = min_of(window, bridge.ahead.next);
    if (window < bridge.ahead.fine || window <= bridge.patched || begin_of_window(piece, window) < bridge.begin)
        return false;
    uint32_t place = landing_on(job, piece, bridge, borders, window);
    if (place == NO_PLACE) return false;
    leave(job, bridge, borders, place);
    if (bridge.is_trial) return true;
    if ((threadIdx.x & 31) == 0) patch_of(job, window).landing = place;
    pass_windows(job, bridge.patched + 1, window);
    return true;
}

// Up to where the next patch may be entered: in its first half, since it is left in its second if possible;
// a detour knows where.
DEVICE uint32_t latest_entry(const Bridge& bridge, const Patch& next) {
    bool is_left = bridge.is_detour && !next.is_lost;
    return is_left ? min_of(next.exit, middle_of(next)) : middle_of(next);
}

// Ends the bridge on the next patch.
DEVICE bool enter_next(const Job& job, const Bridge& bridge, BridgeShared& shared) {
    const Borders& borders = shared.borders[bridge.current];
    Borders& others = shared.borders[!bridge.current];
    Patch& next = patch_of(job, bridge.ahead.next);
    load_patch(others, next);
    uint32_t from = bridge.from > next.begin ? bridge.from - next.begin : 0;
    uint32_t met = meetings(borders, others, next.begin - bridge.begin) & ~bits_below(from);
    met &= bits_below(latest_entry(bridge, next) - next.begin + 1);
    if (!__any_sync(ALL_LANES, met != 0)) return false;
    uint32_t place = place_to_leave(bridge, met, next.begin);
    leave(job, bridge, borders, place);
    if (bridge.is_trial) return true;
    if ((threadIdx.x & 31) == 0) {
        next.entry = place;
        if (!bridge.is_detour) {
            patch_of(job, bridge.patched).entered = bridge.ahead.next;
            note_end(job, next, place - next.begin);
        }
    }
    pass_windows(job, bridge.patched + 1, bridge.ahead.next + 1);
    return true;
}

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
    Patch& patch = patch_of(job, bridge.patched);
    uint64_t number = 0, room = job.num_bytes / SLIDE_BYTES + 1;
    bool is_noted = length > SLIDE_BYTES && !patch.run_starts;
    if (is_noted && (threadIdx.x & 31) == 0) number = atomic_add(job.window_counts + 3, 1) + 1;
    number = __shfl_sync(ALL_LANES, number, 0);
    is_noted = is_noted && number <= room;
    write_repeated(job, borders, first, period, place, is_noted ? period : length);
    __syncwarp();
    if (!is_noted || (threadIdx.x & 31)) return;
    job.run_starts[number - 1] = {place, period, length, 0};
    patch.run_starts = static_cast<uint32_t>(number);
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
    if (bridge.length < 2 * WINDOW_0 || (bridge.has_next() && patch_of(job, bridge.ahead.next).begin < bridge.end()))
        return false;
    uint32_t window = piece.first_window + (bridge.end() - WINDOW_0 - piece.begin) / STRIDE_0;
    if (!(job.seam_bits[window / 32].runs >> window % 32 & 1)) return false;
    uint32_t behind = end_of_run(job, window, bridge.last + 1, false), lane = threadIdx.x & 31;
    uint32_t last = begin_of_window(piece, behind - 1), run_end = last + run_bytes(last, piece.end);
    uint32_t begin = begin_of_window(piece, begin_of_run(job, piece, window));
    if (begin < bridge.right) begin = bridge.right;
    uint32_t first = first_of(borders.words[lane] & ~bits_below(begin - bridge.begin));
    uint32_t place = last_of(borders.words[lane] & bits_below(bridge.length / 4 * 3 - 63));
    if (first == NO_PLACE || place <= first) return false;
    uint32_t period = period_at(borders, first, place);
    if (!period) return false;
    period *= (63 + period) / period;
    uint32_t in_run = begin_of_window(piece, window);
    uint32_t text_period = lowest_bit(periods_of(job.text + in_run, run_bytes(in_run, piece.end))) + 1;
    if (period % text_period || run_end < bridge.end() + period) return false;
    uint32_t from = bridge.from - bridge.begin;
    if (bridge.is_patch && from < bridge.length / 2) from = bridge.length / 2;  // Behind its entry.
    uint32_t earliest = from > first + period ? from - period : first;
    uint32_t meeting = first_of(meetings(borders, borders, period) & ~bits_below(earliest));
    if (meeting == NO_PLACE) return false;
    uint32_t times = (run_end - bridge.end()) / period, to = bridge.begin + period + meeting;
    leave(job, bridge, borders, to);
    bridge.begin += times * period;
    bridge.from = bridge.right = bridge.begin + meeting;
    if (!bridge.is_trial) {
        write_run_starts(job, bridge, borders, meeting, period, to, bridge.from - to);
        if (lane == 0) patch_of(job, bridge.patched).written = bridge.from;
    }
    bridge.is_patch = false;
    return true;
}

// How far the next window should reach: to the next patch, or over two windows of level 0 behind
// failing ones and runs.
DEVICE uint32_t wanted_end(const Job& job, const LongPiece& piece, const Bridge& bridge, bool& is_far) {
    uint32_t window = piece.first_window, ahead = bridge.ahead.fine;
    if (bridge.length >= WINDOW_0) window += (bridge.end() - WINDOW_0 - piece.begin) / STRIDE_0 + 1;
    if (window < ahead) window = ahead;
    uint32_t stop = min_of(bridge.ahead.next, bridge.last), calm = window;
    if (window < stop) calm = end_of_run(job, window, stop, true);
    is_far = calm - window > FAR && window < stop;
    uint32_t end = calm < stop || !bridge.has_next() ? begin_of_window(piece, calm) + 2 * WINDOW_0
                                                     : patch_of(job, bridge.ahead.next).begin + 3 * PATCH / 4;
    return end > bridge.end() + 2 * WINDOW_0 ? end : bridge.end() + 2 * WINDOW_0;
}

// Adds one window to the bridge; false where it does not meet the last one.
DEVICE bool prolong(const Job& job, const LongPiece& piece, Bridge& bridge, BridgeShared& shared) {
    const Borders& borders = shared.borders[bridge.current];
    Borders& others = shared.borders[!bridge.current];
    bool is_far, is_longest = bridge.length == WINDOW_1;
    uint32_t end = wanted_end(job, piece, bridge, is_far);
    uint32_t from = bridge.from - bridge.begin, right = bridge.right - bridge.begin;
    if (is_far && is_longest) return false;
    uint32_t reach = bridge.length - min_of(bridge.length / 4 * 3, WINDOW_1 / 2);
    if (bridge.has_next()) reach = min_of(reach, patch_of(job, bridge.ahead.next).begin - bridge.begin);
    uint32_t place = last_of(borders.words[threadIdx.x & 31] & bits_below(reach + 1) & ~bits_below(right));
    if (place < right) place = right;
    if (place == 0 && is_longest) return false;
    uint32_t begin = bridge.begin + place, length = min_of(min_of(end, piece.end) - begin, WINDOW_1);
    encode_window(job, shared.columns, others, begin, length);
    uint32_t met = meetings(borders, others, place);
    if (from > place) met &= ~bits_below(from - place);
    if (!__any_sync(ALL_LANES, met != 0)) return false;
    uint32_t meeting = place_to_leave(bridge, met, begin);
    leave(job, bridge, borders, meeting);
    bridge.begin = begin;
    bridge.length = length;
    bridge.from = bridge.right = meeting;
    bridge.is_patch = false;
    bridge.current = !bridge.current;
    return true;
}

// Begins the bridge of a window's patch.
DEVICE Bridge begin_bridge(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t window) {
    const Patch& patch = patch_of(job, window);
    uint32_t last = last_window(piece), from = patch.joint == NO_PLACE ? patch.begin : patch.joint;
    load_patch(shared.borders[0], patch);
    Ahead ahead = look_ahead(job, window, last + 1);
    return {window, last, ahead, patch.begin, patch.length, from, patch.begin, true, 0, false, false, 0};
}

// Leaves the next patch behind without entering it; false where that is one too many.
DEVICE bool pass_next(const Job& job, Bridge& bridge) {
    if (bridge.may_pass == 0) return false;
    uint32_t passed = bridge.ahead.next;
    bridge.may_pass--;
    bridge.ahead = look_ahead(job, passed, bridge.last + 1);
    if (bridge.ahead.fine == passed) bridge.ahead.fine++;
    return true;
}

// Builds a bridge to its end; false where it leads nowhere.
DEVICE bool build(const Job& job, const LongPiece& piece, BridgeShared& shared, Bridge& bridge) {
    for (;;) {
        const Borders& borders = shared.borders[bridge.current];
        bool passes = false;
        if (bridge.is_detour && bridge.has_next() && patch_of(job, bridge.ahead.next).is_late) {
            if (!pass_next(job, bridge)) return false;
            continue;
        }
        if (!bridge.has_next() && bridge.end() == piece.end) {
            leave(job, bridge, borders, piece.end);
            if (!bridge.is_trial) pass_windows(job, bridge.patched + 1, bridge.last + 1);
            return true;
        }
        if (bridge.has_next()) {
            const Patch& next = patch_of(job, bridge.ahead.next);
            if (next.begin < bridge.end() && enter_next(job, bridge, shared)) return true;
            passes = next.begin + next.length <= bridge.end();
        }
        if (land(job, piece, bridge, borders)) return true;
        if (passes) {
            if (!pass_next(job, bridge)) return false;
            continue;
        }
        slide(job, piece, bridge, borders);
        if (!prolong(job, piece, bridge, shared)) return false;
        __syncwarp();
    }
}

DEVICE void bridges_stage(const Job& job, BridgeShared* shared, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]), warp = threadIdx.x / 32;
    if (!job.window_counts[1]) return;
    uint32_t step = num_blocks * BRIDGE_WARPS * WINDOWS_A_WARP;
    for (uint32_t first = (warp * num_blocks + block) * WINDOWS_A_WARP; first < windows; first += step) {
        for (uint32_t bits = patched_of_warp(job, first); bits; bits &= bits - 1) {
            uint32_t window = first + lowest_bit(bits);
            LongPiece piece = piece_of_window(job, window);
            Bridge bridge = begin_bridge(job, piece, shared[warp], window);
            bool leads = build(job, piece, shared[warp], bridge);
            if (!leads && threadIdx.x % 32 == 0) {
                patch_of(job, window).is_lost = 1;
                atomic_add(job.window_counts + 1, ONE_LOST);
            }
            __syncwarp();
        }
    }
}
