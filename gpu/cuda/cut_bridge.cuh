// Level 1 of cutting long pieces: a bridge leads from a seam to where the chain goes on.
//
// That is the next window with a bridge or one behind the last that fails. Windows of up to WINDOW_1 bytes follow
// the one of level 0, each from a border of the one before it. One in a run slides along it (cut_slide.cuh).
//
//     text       x a a a a a a a a a a a a a ... a a a a b . . .
//     level 0  |---------|
//     bridge       |-------|=======> slides ====> |-------|
//                                                     |-------|     meets level 0
#pragma once
#include "cut_slide.cuh"

constexpr uint32_t BRIDGE_WARPS = 4;
constexpr uint32_t FAR = 128;  // Windows of level 0 in a run that only a slide may pass.

// Whether the window at the end is in a run that is too long to be walked through.
DEVICE bool is_amid_run(const Job& job, const LongPiece& piece, const Bridge& bridge) {
    uint32_t window = window_reached(piece, bridge);
    return bridge.length == WINDOW_1 && end_of_run(job, window, bridge.last + 1) - window > FAR;
}

// Adds one window to the bridge; false where it does not meet the last one.
DEVICE bool prolong(const Job& job, const LongPiece& piece, Bridge& bridge, BridgeShared& shared) {
    const Borders& borders = shared.borders[bridge.current];
    Borders& others = shared.borders[!bridge.current];
    if (is_amid_run(job, piece, bridge)) return false;
    uint32_t from = bridge.from - bridge.begin, right = bridge.right - bridge.begin, reach = bridge.length / 2;
    if (bridge.has_next()) reach = min_of(reach, window_of(job, bridge.ahead.next).begin - bridge.begin);
    uint32_t place = last_of(borders.words[threadIdx.x & 31] & bits_below(reach + 1) & ~bits_below(right));
    if (place < right) place = right;
    if (place == 0 && bridge.length == WINDOW_1) return false;
    bool is_short = bridge.is_first && place && !is_in_run(job, window_reached(piece, bridge));
    uint32_t begin = bridge.begin + place, length = min_of(piece.end - begin, is_short ? WINDOW_0 : WINDOW_1);
    encode_window(job, shared.columns, others, begin, length);
    uint32_t met = meetings(borders, others, place);
    if (from > place) met &= ~bits_below(from - place);
    if (!__any_sync(ALL_LANES, met != 0)) return false;
    uint32_t meeting = place_to_leave(bridge, met, begin);
    leave(job, bridge, borders, meeting);
    bridge.begin = begin;
    bridge.length = length;
    bridge.from = bridge.right = meeting;
    bridge.is_first = false;
    bridge.current = !bridge.current;
    return true;
}

// Begins the bridge of a window.
DEVICE Bridge begin_bridge(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t number) {
    const Window& window = window_of(job, number);
    uint32_t last = last_window(piece);
    load_window(shared.borders[0], window);
    Ahead ahead = look_ahead(job, number, last + 1);
    return {number, last, ahead, window.begin, window.length, window.joint, window.joint, true, 0, false, 0, NO_PLACE};
}

// Takes back what a bridge has noted.
DEVICE void forget_run_starts(const Job& job, Window& window) {
    if (!window.run_starts || (threadIdx.x & 31)) return;
    job.run_starts[window.run_starts - 1].length = 0;
    window.run_starts = 0;
}

// Leaves the next window with a bridge behind without entering it; false where that is one too many.
DEVICE bool pass_next(const Job& job, Bridge& bridge) {
    if (bridge.may_pass == 0) return false;
    uint32_t passed = bridge.ahead.next;
    forget_run_starts(job, window_of(job, passed));
    bridge.may_pass--;
    bridge.ahead = look_ahead(job, passed, bridge.last + 1);
    if (bridge.ahead.fine == passed) bridge.ahead.fine++;
    pass_windows(job, passed + 1, min_of(bridge.ahead.next, bridge.last + 1), true);
    return true;
}

// Builds a bridge to its end; false where it leads nowhere.
DEVICE bool build(const Job& job, const LongPiece& piece, BridgeShared& shared, Bridge& bridge) {
    for (;;) {
        const Borders& borders = shared.borders[bridge.current];
        if (!bridge.has_next() && bridge.end() == piece.end) {
            leave(job, bridge, borders, piece.end);
            pass_windows(job, bridge.first + 1, bridge.last + 1);
            return true;
        }
        if (land(job, piece, bridge, shared)) return true;
        if (is_past_next(job, piece, bridge)) {
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
    for (uint32_t window = warp * num_blocks + block; window < windows; window += num_blocks * BRIDGE_WARPS) {
        if (!is_bridged(job, window)) continue;
        LongPiece piece = piece_of_window(job, window);
        Bridge bridge = begin_bridge(job, piece, shared[warp], window);
        bool leads = build(job, piece, shared[warp], bridge);
        if (!leads && threadIdx.x % 32 == 0) {
            window_of(job, window).is_lost = 1;
            atomic_add(job.window_counts + 1, ONE_LOST);
        }
        __syncwarp();
    }
}
