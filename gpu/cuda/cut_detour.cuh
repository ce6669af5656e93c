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

DEVICE Bridge begin_detour(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t window,
                           uint32_t from) {
    Bridge bridge = begin_bridge(job, piece, shared, window);
    bridge.from = bridge.cleared = from;
    bridge.is_detour = true;
    bridge.may_pass = MAX_PASSED;
    pass_windows(job, window + 1, min_of(bridge.ahead.next, bridge.last) + 1, true);
    if (bridge.has_next() && patch_of(job, window).is_lost) pass_next(job, bridge);
    return bridge;
}

// Takes back what is left of what the bridge wrote when it was lost, up to `written`, and of what those of
// the patches wrote that the detour passes; false where one of them wrote behind the exit of the next patch.
DEVICE bool clear_behind(const Job& job, const LongPiece& piece, Bridge& bridge, uint32_t written) {
    uint32_t end = bridge.last + 1, next = bridge.ahead.next, window = bridge.patched;
    uint32_t clear_end = bridge.has_next() ? latest_entry(bridge, patch_of(job, next)) : piece.end;
    while ((window = look_ahead(job, window, end).next) < next)
        if (patch_of(job, window).written > written) written = patch_of(job, window).written;
    clear_up_to(job, bridge, clear_end);
    return written <= clear_end;
}

// Builds a lost bridge again; `reached` is the patch in or in front of which it ends. False where it
// leads nowhere.
DEVICE bool detour(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t window, uint32_t& reached) {
    __syncwarp();
    Patch& patch = patch_of(job, window);
    uint32_t from = is_live(job, window) ? patch.joint : patch.entry, written = patch.written;
    if (from == NO_PLACE) return false;
    forget_run_starts(job, patch);
    __syncwarp();
    Bridge bridge = begin_detour(job, piece, shared, window, from);
    if (!build(job, piece, shared, bridge)) return false;
    reached = bridge.ahead.next;
    return clear_behind(job, piece, bridge, written);
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
