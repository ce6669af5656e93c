// Windows that begin wrong: bridges lead past them.
//
// In "...aaaabbbb..." a window that begins amid the a's may begin at a place that the run of a may not be
// cut at. Mostly it is right from the b's on; where that is too late for the bridge before it, this is *lost*.
// Lost bridges are built again here, past the windows that they cannot enter and what the bridges of these wrote;
// those that are near each other one after the other by one warp, others side by side.
#pragma once
#include "cut_bridge.cuh"

constexpr uint32_t MAX_PASSED = 4, NEAR = MAX_PASSED + 2;  // In windows with bridges.

// Whether one of the NEAR bridges of the piece in front of a window's is lost.
DEVICE bool is_lost_before(const Job& job, const LongPiece& piece, uint32_t window) {
    uint32_t word = window / 32, bits = bridged_windows(job, word) & ((1u << window % 32) - 1);
    for (uint32_t left = NEAR; left; left--) {
        while (!bits) {
            if (word == piece.first_window / 32) return false;
            bits = bridged_windows(job, --word);
        }
        uint32_t other = word * 32 + highest_bit(bits);
        if (other < piece.first_window) return false;
        if (window_of(job, other).is_lost) return true;
        bits ^= 1u << other % 32;
    }
    return false;
}

// The first of the NEAR windows with bridges behind one whose bridge is lost, `end` where there is none.
DEVICE uint32_t next_lost(const Job& job, uint32_t window, uint32_t end) {
    for (uint32_t left = NEAR; left && window < end; left--) {
        window = look_ahead(job, window, end).next;
        if (window < end && window_of(job, window).is_lost) return window;
    }
    return end;
}

DEVICE Bridge begin_detour(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t window,
                           uint32_t from) {
    Bridge bridge = begin_bridge(job, piece, shared, window);
    bridge.from = bridge.cleared = from;
    bridge.is_detour = true;
    bridge.may_pass = MAX_PASSED;
    pass_windows(job, window + 1, min_of(bridge.ahead.next, bridge.last + 1), true);
    return bridge;
}

// Takes back what is left of what the bridge wrote when it was lost, up to `written`, and of what those of
// the windows wrote that the detour passes; false where one of them wrote behind the exit of the next one.
DEVICE bool clear_behind(const Job& job, const LongPiece& piece, Bridge& bridge, uint32_t written) {
    uint32_t end = bridge.last + 1, next = bridge.ahead.next, window = bridge.first;
    uint32_t clear_end = bridge.has_next() ? latest_entry(job, piece, bridge, next) : piece.end;
    while ((window = look_ahead(job, window, end).next) < next)
        if (window_of(job, window).written > written) written = window_of(job, window).written;
    clear_up_to(job, bridge, clear_end);
    return written <= clear_end;
}

// Builds a lost bridge again; `reached` is the window with a bridge on or in front of which it ends. False
// where it leads nowhere.
DEVICE bool detour(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t number, uint32_t& reached) {
    __syncwarp();
    Window& window = window_of(job, number);
    uint32_t from = entered_at(job, piece, number), written = window.written;
    forget_run_starts(job, window);
    __syncwarp();
    Bridge bridge = begin_detour(job, piece, shared, number, from);
    // The one that the bridge was near when it was lost is what it could not enter.
    bool was_near = bridge.has_next() && window_of(job, bridge.ahead.next).begin < written + WINDOW_1;
    if (was_near) pass_next(job, bridge);
    if (!build(job, piece, shared, bridge)) return false;
    reached = bridge.ahead.next;
    return clear_behind(job, piece, bridge, written);
}

// Builds the lost bridge of a window again, and those behind it that are near.
DEVICE void detours_from(const Job& job, BridgeShared& shared, uint32_t window) {
    LongPiece& piece = piece_of_window(job, window);
    uint32_t end = last_window(piece) + 1, reached = window;
    for (bool leads = true; leads && window < end; window = next_lost(job, window, end)) {
        if (window < reached) continue;
        leads = detour(job, piece, shared, window, reached);
        if (!leads && threadIdx.x % 32 == 0) fail_piece(job, piece);
    }
    __syncwarp();
}

DEVICE void detours_stage(const Job& job, BridgeShared* shared, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]), warp = threadIdx.x / 32;
    if (job.window_counts[1] < ONE_LOST) return;
    for (uint32_t window = warp * num_blocks + block; window < windows; window += num_blocks * BRIDGE_WARPS) {
        if (!is_bridged(job, window) || !window_of(job, window).is_lost) continue;
        if (!is_lost_before(job, piece_of_window(job, window), window)) detours_from(job, shared[warp], window);
    }
}
