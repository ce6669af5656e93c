// Level 2 of cutting long pieces: a bridge leads from a patch to where the chain goes on.
//
// That is the next patch or a window of level 0 behind the last one that fails. Where the patch itself
// meets neither, windows of up to WINDOW_1 bytes follow, each from a border of the one before it. One
// in a run slides along it (cut_slide.cuh).
//
//     text       x a a a a a a a a a a a a a ... a a a a b . . .
//     patch    |---------|
//     bridge       |-------|=======> slides ====> |-------|
//                                                     |-------|     meets level 0
#pragma once
#include "cut_slide.cuh"

constexpr uint32_t BRIDGE_WARPS = 4;
constexpr uint32_t FAR = 1024;  // Windows of level 0 in a run that only a slide may pass.

// How far a window should reach into the next patch: a little, then as far as it may be entered.
DEVICE uint32_t wanted_in_next(const Job& job, const Bridge& bridge) {
    const Patch& next = patch_of(job, bridge.ahead.next);
    uint32_t little = next.begin + 3 * WINDOW_0;
    return bridge.end() < little ? little : last_of_entry(bridge, next);
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
    bool is_there = bridge.has_next() && (calm == stop || patch_of(job, bridge.ahead.next).begin < bridge.end());
    uint32_t end = is_there ? wanted_in_next(job, bridge) : begin_of_window(piece, calm) + 2 * WINDOW_0;
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
    return {window, last, ahead, patch.begin, patch.length, from, patch.begin, true, 0, false, 0, NO_PLACE};
}

// Takes back what a bridge has noted.
DEVICE void forget_run_starts(const Job& job, Patch& patch) {
    if (!patch.run_starts || (threadIdx.x & 31)) return;
    job.run_starts[patch.run_starts - 1].length = 0;
    patch.run_starts = 0;
}

// Leaves the next patch behind without entering it, and takes it out of the chain; false where that is one too
// many.
DEVICE bool pass_next(const Job& job, Bridge& bridge) {
    if (bridge.may_pass == 0) return false;
    uint32_t passed = bridge.ahead.next;
    Patch& patch = patch_of(job, passed);
    if ((threadIdx.x & 31) == 0) patch.entry = patch.exit = patch.begin;
    forget_run_starts(job, patch);
    bridge.may_pass--;
    bridge.ahead = look_ahead(job, passed, bridge.last + 1);
    if (bridge.ahead.fine == passed) bridge.ahead.fine++;
    pass_windows(job, passed + 1, min_of(bridge.ahead.next, bridge.last) + 1, true);
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
            pass_windows(job, bridge.patched + 1, bridge.last + 1);
            return true;
        }
        if (bridge.has_next()) {
            const Patch& next = patch_of(job, bridge.ahead.next);
            if (next.begin < bridge.end() && enter_next(job, bridge, shared)) return true;
            passes = last_of_entry(bridge, next) <= bridge.end();
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
