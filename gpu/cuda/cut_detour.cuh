// Windows that begin wrong: bridges lead past them.
//
// In "...aaaabbbb..." a window that begins amid the a's may begin at a place that the run of a may not be
// cut at. Mostly it is right from the b's on; where that is too late for the bridge before it, this is *lost*.
// Lost bridges are built again here, past the windows that they cannot enter and what the bridges of these wrote;
// those that are near each other one after the other by one block, others side by side.
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

// Whether detours begin at a window.
DEVICE bool is_first_lost(const Job& job, uint32_t window) {
    return window_of(job, window).is_lost && !is_lost_before(job, piece_of_window(job, window), window);
}

// The first of the NEAR windows with bridges behind one whose bridge is lost, `end` where there is none; a lane looks
// at each.
DEVICE uint32_t next_lost(const Job& job, uint32_t window, uint32_t end) {
    uint32_t lane = threadIdx.x & 31, words = (end + 31) / 32, left = NEAR;
    for (uint32_t first = window / 32; first < words && left; first += 32) {
        uint32_t word = first + lane, bits = word < words ? bridged_windows(job, word) : 0;
        if (word == window / 32) bits &= bits_above(window % 32);
        if (word < words && end - word * 32 < 32) bits &= (1u << end % 32) - 1;
        uint32_t up_to = sum_of_lanes(count_bits(bits)), count = min_of(left, __shfl_sync(ALL_LANES, up_to, 31));
        uint32_t owner = lane_of_item(up_to, lane), passed = lane - __shfl_sync(ALL_LANES, up_to - count_bits(bits), owner);
        bits = __shfl_sync(ALL_LANES, bits, owner);
        uint32_t other = end;
        bool is_lost = false;
        if (lane < count) {
            for (; passed; passed--) bits &= bits - 1;
            other = (first + owner) * 32 + lowest_bit(bits);
            is_lost = window_of(job, other).is_lost;
        }
        uint32_t lost = __ballot_sync(ALL_LANES, is_lost);
        if (lost) return __shfl_sync(ALL_LANES, other, lowest_bit(lost));
        left -= count;
    }
    return end;
}

// Makes a bridge that has begun one that was lost before.
DEVICE void begin_again(const Job& job, const LongPiece& piece, Bridge& bridge) {
    Window& window = window_of(job, bridge.first);
    bridge.from = bridge.cleared = entered_at(job, piece, bridge.first);
    bridge.is_detour = true;
    bridge.may_pass = MAX_PASSED;
    bridge.written = window.written;
    __syncwarp();
    forget_run_starts(job, window);
    pass_windows(job, bridge.first + 1, min_of(bridge.ahead.next, bridge.last + 1), true);
    // The one that the bridge was near when it was lost is what it could not enter.
    bool was_near = bridge.has_next() && window_of(job, bridge.ahead.next).begin < bridge.written + WINDOW_1;
    if (was_near) pass_next(job, bridge);
}

// Takes back what is left of what the bridge wrote when it was lost, and of what those of the windows wrote that the
// detour passes; false where one of them wrote behind the exit of the next one.
DEVICE bool clear_behind(const Job& job, const LongPiece& piece, Bridge& bridge) {
    uint32_t end = bridge.last + 1, next = bridge.ahead.next, window = bridge.first, written = bridge.written;
    uint32_t clear_end = bridge.has_next() ? latest_entry(job, piece, bridge, next) : piece.end;
    while ((window = look_ahead(job, window, end).next) < next)
        if (window_of(job, window).written > written) written = window_of(job, window).written;
    clear_up_to(job, bridge, clear_end);
    return written <= clear_end;
}

// Ends a detour; returns the next window whose bridge is lost and near, behind where this one ends, else NO_PLACE.
DEVICE uint32_t end_detour(const Job& job, LongPiece& piece, Bridge& bridge, bool leads) {
    uint32_t end = bridge.last + 1, window = bridge.first;
    if (!leads || !clear_behind(job, piece, bridge)) {
        if (threadIdx.x == 0) fail_piece(job, piece);
        return NO_PLACE;
    }
    do window = next_lost(job, window, end);
    while (window < bridge.ahead.next && window < end);
    return window < end ? window : NO_PLACE;
}

// Builds the lost bridge of a window again, and those behind it that are near; the whole block does.
DEVICE void detours_from(const Job& job, BridgeShared& shared, uint32_t window) {
    LongPiece& piece = piece_of_window(job, window);
    while (window != NO_PLACE) {
        Bridge bridge = {};
        if (threadIdx.x < 32) {
            bridge = begin_bridge(job, piece, shared, window);
            begin_again(job, piece, bridge);
        }
        bool leads = build(job, piece, shared, bridge);
        if (threadIdx.x < 32) {
            uint32_t next = end_detour(job, piece, bridge, leads);
            if (threadIdx.x == 0) shared.window = next;
            __syncwarp();
        }
        __syncthreads();
        window = shared.window;
    }
}

DEVICE void detours_stage(const Job& job, BridgeShared& shared, uint32_t block, uint32_t num_blocks) {
    if (job.window_counts[1] < ONE_LOST) return;
    for_own_bridges(job, block, num_blocks, [&](uint32_t window) {
        if (is_first_lost(job, window)) detours_from(job, shared, window);
    });
}
