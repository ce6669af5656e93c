// Patches that begin wrong: bridges lead past them.
//
// In "...aaaabbbb..." a patch where the run of b begins starts amid the a's, at a place that the run of
// a may not be cut at. Mostly what follows is right all the same; where it depends on how many a's are
// left over, the bridge before finds no place to enter the patch. It is *lost* then, and so is one that
// enters a patch behind the place where its own bridge, built at the same time, has left it: the patch is
// *late*. Lost bridges are built again here, past the patches that they cannot enter and what these wrote;
// those that are near each other one after the other by one warp, others side by side.
#pragma once
#include "cut_bridge.cuh"

constexpr uint32_t MAX_PASSED = 4, NEAR = MAX_PASSED + 2;  // In patches.

// Whether a window's bridge leads nowhere, or into a patch that others have left by then.
DEVICE bool is_lost(const Job& job, uint32_t window) {
    const Patch& patch = patch_of(job, window);
    return patch.is_lost || (patch.entered != NO_PLACE && patch_of(job, patch.entered).is_late);
}

// Whether one of the NEAR patches of the piece in front of a window's is lost.
DEVICE bool is_lost_before(const Job& job, const LongPiece& piece, uint32_t window) {
    uint32_t word = window / 32, bits = patched_windows(job, word) & ((1u << window % 32) - 1);
    for (uint32_t left = NEAR; left; left--) {
        while (!bits) {
            if (word == piece.first_window / 32) return false;
            bits = patched_windows(job, --word);
        }
        uint32_t other = word * 32 + highest_bit(bits);
        if (other < piece.first_window) return false;
        if (is_lost(job, other)) return true;
        bits ^= 1u << other % 32;
    }
    return false;
}

// The first of the NEAR patches behind a window's that is lost, `end` where there is none.
DEVICE uint32_t next_lost(const Job& job, uint32_t window, uint32_t end) {
    for (uint32_t left = NEAR; left && window < end; left--) {
        window = look_ahead(job, window, end).next;
        if (window < end && is_lost(job, window)) return window;
    }
    return end;
}

// Takes back what a bridge has noted.
DEVICE void forget_run_starts(const Job& job, Patch& patch) {
    if (!patch.run_starts || (threadIdx.x & 31)) return;
    job.run_starts[patch.run_starts - 1].length = 0;
    patch.run_starts = 0;
}

// Takes what a lost bridge wrote and the patches that it passes, with what theirs wrote, out of the
// chain; false where one of them wrote behind the exit of the next patch.
DEVICE bool take_back(const Job& job, const LongPiece& piece, const Bridge& bridge, uint32_t from) {
    uint32_t end = bridge.last + 1, next = bridge.ahead.next, window = bridge.patched;
    uint32_t clear_end = bridge.has_next() ? latest_entry(bridge, patch_of(job, next)) : piece.end;
    bool is_right = true;
    for (; window < next; window = look_ahead(job, window, end).next)
        is_right &= patch_of(job, window).written <= clear_end;
    if (!is_right) return false;
    clear_starts(job, from, clear_end, threadIdx.x & 31, 32);
    forget_run_starts(job, patch_of(job, bridge.patched));
    window = look_ahead(job, bridge.patched, end).next;
    for (; window < next; window = look_ahead(job, window, end).next) {
        Patch& patch = patch_of(job, window);
        if ((threadIdx.x & 31) == 0) patch.entry = patch.exit = patch.begin;
        forget_run_starts(job, patch);
    }
    pass_windows(job, bridge.patched + 1, min_of(next, bridge.last) + 1, true);
    __syncwarp();
    return true;
}

DEVICE Bridge begin_detour(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t window,
                           uint32_t from) {
    Bridge bridge = begin_bridge(job, piece, shared, window);
    bridge.from = from;
    bridge.is_detour = true;
    bridge.may_pass = MAX_PASSED;
    if (bridge.has_next() && patch_of(job, window).is_lost) pass_next(job, bridge);
    return bridge;
}

// Builds a lost bridge again; `reached` is the patch in or in front of which it ends. False where it
// leads nowhere.
DEVICE bool detour(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t window, uint32_t& reached) {
    __syncwarp();
    const Patch& patch = patch_of(job, window);
    uint32_t from = is_live(job, window) ? patch.joint : patch.entry;
    if (from == NO_PLACE) return false;
    Bridge bridge = begin_detour(job, piece, shared, window, from);
    bridge.is_trial = true;
    if (!build(job, piece, shared, bridge)) return false;
    reached = bridge.ahead.next;
    if (!take_back(job, piece, bridge, from)) return false;
    bridge = begin_detour(job, piece, shared, window, from);
    return build(job, piece, shared, bridge);
}

DEVICE void detours_stage(const Job& job, BridgeShared* shared, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]), warp = threadIdx.x / 32;
    if (job.window_counts[1] < ONE_LOST) return;
    uint32_t step = num_blocks * BRIDGE_WARPS * WINDOWS_A_WARP;
    for (uint32_t first = (warp * num_blocks + block) * WINDOWS_A_WARP; first < windows; first += step) {
        for (uint32_t bits = patched_of_warp(job, first); bits; bits &= bits - 1) {
            uint32_t window = first + lowest_bit(bits);
            if (!is_lost(job, window)) continue;
            LongPiece& piece = piece_of_window(job, window);
            uint32_t end = last_window(piece) + 1, reached = window;
            if (is_lost_before(job, piece, window)) continue;
            for (bool leads = true; leads && window < end; window = next_lost(job, window, end)) {
                if (window < reached) continue;
                leads = detour(job, piece, shared[warp], window, reached);
                if (!leads && threadIdx.x % 32 == 0) fail_piece(job, piece);
            }
            __syncwarp();
        }
    }
}
